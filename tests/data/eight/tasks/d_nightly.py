"""At night: look at the stock, branch, tell somebody."""

from __future__ import annotations

from suimon import task


@task
def late_orders(at: str) -> list[dict]:
    return [{"late": 70 if at.endswith("Z") else 3}]


@task
def judge(rows: list[dict], limit: int) -> dict:
    return {"over": rows[0]["late"] > limit, "late": rows[0]["late"]}


@task
def notify(text: str, late: int, ctx) -> dict:
    return {"text": text, "late": late}
