"""At night: look at the stock, branch, tell somebody."""

from __future__ import annotations

from suimon import task


@task
def judge(rows: list[dict], limit: int) -> dict:
    return {"over": rows[0]["late"] > limit, "late": rows[0]["late"]}


@task
def notify(text: str, late: int, ctx) -> dict:
    ctx.emit("stock.late", {"text": text, "late": late})
    return {"text": text, "late": late}
