"""An outside job that is asked about until it is done; no slot is held between the looks."""

from __future__ import annotations

from suimon import Later, task


@task(retries=3)
def start_render(prompt: str, ctx) -> str:
    return ctx.http("video").post("/jobs", json={"prompt": prompt}).raise_for_status().json()["job"]


@task(retries=20, backoff="10s..10m", deadline="12h")
def poll_render(job: str, ctx) -> dict:
    state = ctx.http("video").get(f"/jobs/{job}").raise_for_status().json()
    if state["state"] == "running":
        raise Later("1s", progress=state["percent"])  # noqa: EM101 - a time, not a message
    return state
