"""Pipeline (e) of the eight, built in Python; `yaml/e.yaml` says the same."""

from __future__ import annotations

from e_ledger import append

from suimon import File, Pipeline

p = Pipeline("ledger", concurrency=1, on_failure="hold", max_queued=10_000)
p.on(File("ledger/*.csv", settle="5s", order="mtime"))
p.run("append", append, p.input.path, p.input.event_id)
