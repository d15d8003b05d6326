"""Pipeline (g) of the eight, built in Python; `yaml/g.yaml` says the same."""

from __future__ import annotations

from g_poll import poll_render, start_render

from suimon import Event, Pipeline

p = Pipeline("render", concurrency=4)
p.on(Event("render.wanted"))
job = p.run("job", start_render, p.input.payload.prompt)
res = p.run("result", poll_render, job)
p.returns(res.url)
