"""Pipeline (a) of the eight, built in Python; `yaml/a.yaml` says the same."""

from __future__ import annotations

from a_orders import post_order, write_report

from suimon import File, Pipeline

p = Pipeline("import_orders", pool="default", concurrency=1)
p.on(File("inbox/*.csv", settle="5s"))
rows = p.read("rows", p.input.path, encoding="auto")
orders = p.spawn("orders", post_order, rows, key="order_id", concurrency=200, tenant="acme")
outcome = p.merge("outcome", orders, tolerate=["FAILED"], max_failure_ratio=0.05, fail_fast=True)
report = p.run("report", write_report, outcome)
p.returns(report)
