"""Pipeline (h) of the eight, built in Python; `yaml/h.yaml` says the same."""

from __future__ import annotations

from h_month_end import archive, close_books

from suimon import Cron, Pipeline

p = Pipeline("month_end")
p.on(Cron("0 6 1 * *", tz="Asia/Tokyo"))
b = p.start("billing", "bill_all", input={"scheduled_at": p.input.scheduled_at})
c = p.run("closed", close_books, b.total, p.input.scheduled_at)
p.start("archive", "archive_month", input={"books": c}, wait=False)

archiving = Pipeline("archive_month")
archiving.run("archived", archive, archiving.input.books)
