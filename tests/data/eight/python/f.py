"""Pipeline (f) of the eight, built in Python; `yaml/f.yaml` says the same."""

from __future__ import annotations

from f_nested import book, customers, invoices

from suimon import Cron, Pipeline

one = Pipeline("bill_customer", concurrency="unlimited")
inv = one.run("invoices", invoices, one.input.customer_id)
kids = one.spawn("booked", book, inv, key="number", concurrency=5, currency=one.input.currency)
sums = one.merge("sums", kids, tolerate=["FAILED"], max_failures=3)
one.returns(sums.counts)

p = Pipeline("bill_all")
p.on(Cron("0 4 1 * *", tz="UTC"))
cs = p.run("customers", customers)
each = p.spawn("per_customer", one, cs, key="customer_id", concurrency=20, currency="EUR")
done = p.merge("done", each)
p.returns(done.counts)
