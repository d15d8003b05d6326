"""File arrival, a call per row with tolerance, a report."""

from __future__ import annotations

from far import crm

from suimon import Fatal, task


@task(retries=5, backoff="2s..5m", timeout="30s", destination=crm)
async def post_order(order: dict, tenant: str, ctx) -> dict:
    if not order["quantity"].isdigit():
        msg = f"order {order['order_id']} has the quantity {order['quantity']!r}"
        raise Fatal(msg)  # no other try would change that
    r = await ctx.http("crm").post("/orders", json={**order, "tenant": tenant})
    return {"crm_id": r.raise_for_status().json()["id"], "key": ctx.item_key}


@task
def write_report(outcome, ctx) -> dict:
    rows = [f"{one.key},{one.state}" for one in outcome.failed]
    return {"not_posted": rows, **outcome.counts}
