"""A webhook, a manager's approval, a payment or a refusal; the shop is called by the engine."""

from __future__ import annotations

from suimon import task


@task
def check_refund(body: dict, ctx) -> dict:
    return {**body, "needs_manager": body["amount"] > 100}
