"""A webhook, a manager's approval, a payment or a refusal."""

from __future__ import annotations

from suimon import task


@task
def check_refund(body: dict, ctx) -> dict:
    return {**body, "needs_manager": body["amount"] > 100}


@task
def pay(order: str, amount: int, ctx) -> dict:
    if amount < 0:
        msg = "nothing is paid back twice"
        raise ValueError(msg)
    return {"paid": order}


@task
def refuse(order: str, why: str | None = None) -> dict:
    return {"refused": order, "why": why}


@task
def alarm(run: str, ctx) -> None:
    ctx.log(f"payment failed in run {run}")
