"""Images of a folder to a GPU pool, then one table."""

from __future__ import annotations

from pathlib import Path

from suimon import task


@task(pool="gpu", retries=2, timeout="3m")
def read_image(image: dict, ctx) -> dict:
    return {"name": image["name"], "bytes": len(Path(image["path"]).read_bytes())}


@task
def write_xlsx(outcome, sheet: str, ctx) -> dict:
    return {"sheet": sheet, "rows": [one.value for one in outcome.succeeded]}
