"""One pipeline starts others: it waits for the first and lets the second go."""

from __future__ import annotations

from suimon import task


@task
def close_books(customers: int, month: str, ctx) -> dict:
    return {"customers": customers, "month": month}


@task
def archive(books: dict) -> dict:
    return {"archived": books["month"]}
