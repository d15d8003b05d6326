"""Every door that README shows in a few lines starts a run, by what README says one does."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from docs.blocks import ROOT, Block, blocks
from support.engine import Engine
from support.engine_fixtures import engine
from support.serving import serving

__all__ = ["engine"]

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

DOORS = {"pipelines/files.py", "pipelines/clock.py", "pipelines/hooks.py", "pipelines/events.py"}


def _blocks() -> dict[str, Block]:
    return {b.file: b for b in blocks(ROOT / "README.md") if b.file in DOORS}


def test_each_door_takes_five_lines_or_fewer() -> None:
    found = _blocks()
    assert set(found) == DOORS
    for block in found.values():
        lines = [line for line in block.text.splitlines()[1:] if line.strip()]
        assert len(lines) <= 5, block.place


def test_each_door_starts_a_run(engine: Engine, tmp_path: Path) -> None:
    """A file is dropped, an instant passes, a call comes, an event is emitted in SQL."""
    for name, block in _blocks().items():
        (engine.project.root / Path(name).name).write_text(block.text)
    orders = next(b for b in blocks(ROOT / "README.md") if b.file == "pipelines/orders.py")
    (engine.project.root / "orders.py").write_text(orders.text)
    inbox = engine.project.root / "inbox"
    inbox.mkdir()
    engine.deploy()
    engine.worker(slots=2)
    with serving(engine.url, tmp_path / "serve") as server:
        (inbox / "a.csv").write_text("order_id\n1\n")
        shutil.copy(inbox / "a.csv", engine.project.root / "orders.csv")
        answer = server.post("/webhooks/orders", {"order": 17}, headers={"Idempotency-Key": "17"})
        assert answer.status_code == 202
        _sql(engine)
        # the instant that has passed since a night when nothing ran
        engine.sql(
            "update suimon.triggers set cursor_at = clock_timestamp() - interval '2 days',"
            " next_at = clock_timestamp() - interval '1 day' where kind = 'CRON'"
        )
        for pipeline in ("take", "nightly", "receive", "react", "import-orders"):
            done = (
                "select count(*) from suimon.runs"
                " where pipeline = %s and status = 'succeeded' and parent_id is null"
            )
            engine.until(lambda done=done, p=pipeline: engine.one(done, p) == 1, pipeline)  # type: ignore[misc]


def _sql(engine: Engine) -> None:
    """README's own statements, in a transaction of their own."""
    text = (ROOT / "README.md").read_text().split("```sql\n")[1].split("```")[0]
    engine.conn.execute(text.encode())
