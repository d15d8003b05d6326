"""Pipeline (d) of the eight, built in Python; `yaml/d.yaml` says the same."""

from __future__ import annotations

from d_nightly import judge, notify

from suimon import Cron, Pipeline

p = Pipeline("nightly_stock")
p.on(Cron("30 2 * * *", tz="Europe/Berlin", gap="next", fold="first", catch_up="last"))
s = p.sql(
    "late",
    "select count(*) late from read_parquet($files) where due < $at",
    files="lake/stock/*.parquet",
    at=p.input.scheduled_at,
)
j = p.run("judged", judge, s, limit=50)
p.run("alarm", notify, "many late", j.late, when=j.over)
p.run("calm", notify, "all well", j.late, unless=j.over)
