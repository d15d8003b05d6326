"""Customers, and for each of them its invoices."""

from __future__ import annotations

from suimon import task


@task
def customers(ctx):
    for number in range(3):
        yield {"customer_id": f"c{number}"}


@task
def invoices(customer_id: str, ctx):
    for number in range(4):
        yield {"number": f"{customer_id}-{number}", "amount": 10 * number}


@task(retries=3)
def book(invoice: dict, currency: str, ctx) -> dict:
    return {"booked": invoice["number"], "currency": currency}
