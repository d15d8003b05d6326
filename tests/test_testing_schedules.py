"""The test kit lets time pass for schedules."""

from __future__ import annotations

from pathlib import Path

from suimon.testing import engine

CODE = """
from suimon import Cron, Every, pipeline

@pipeline(on=Cron("0 2 * * *", tz="Asia/Tokyo"))
def nightly(scheduled_at, folded):
    return [scheduled_at[11:], folded]

@pipeline(on=Every("7d"))
def weekly(scheduled_at):
    return None
"""


def test_a_day_that_passes_starts_the_nightly_run(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(CODE)
    with engine(tmp_path) as e:
        assert e.started("nightly") == []
        e.advance("1d")
        (first,) = e.started("nightly")
        assert e.wait(first).output == ["02:00:00+09:00", 0]
        e.advance("1d")
        assert len(e.started("nightly")) == 2
        assert e.started("weekly") == []
        e.advance("6d")
        assert len(e.started("weekly")) == 1
        (_, _, late) = e.started("nightly")
        assert e.wait(late).output == ["02:00:00+09:00", 5], "five nights folded into the last"
