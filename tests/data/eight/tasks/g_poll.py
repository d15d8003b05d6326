"""An outside job that is asked about until it is done; no slot is held between the looks."""

from __future__ import annotations

import time

from suimon import Later, task


@task(retries=3)
def start_render(prompt: str, ctx) -> str:
    return f"{time.time() + 2:.3f} {prompt}"


@task(retries=20, backoff="10s..10m", deadline="12h")
def poll_render(job: str, ctx) -> dict:
    ready_at, _, prompt = job.partition(" ")
    if time.time() < float(ready_at):
        raise Later("1s", progress={"percent": 50})  # noqa: EM101 - a time, not a message
    return {"url": f"https://video.example/{prompt}"}
