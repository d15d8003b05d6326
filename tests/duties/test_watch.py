"""Finding 8: who is dead is judged by what one has seen oneself, and by nothing else."""

from __future__ import annotations

import re
from importlib import resources

from suimon.run.rescue import Beat
from suimon.worker.watch import Watch


def _beat(worker: int, beat: int, *, mine: bool = False, ms: int = 1000) -> Beat:
    return Beat(worker, beat, ms, mine, asked_to_cancel=False)


def _look(watch: Watch, at: float, *beats: Beat, took: float = 0.01) -> list[tuple[int, int]]:
    return watch.look(at, at + took, beats)


def test_the_same_beat_over_three_intervals_is_death() -> None:
    """Not after two; and it is to be buried at that very beat."""
    watch = Watch(1.0)
    assert [_look(watch, at, _beat(7, 4)) for at in (0.0, 1.0, 2.0)] == [[], [], []]
    assert _look(watch, 3.0, _beat(7, 4)) == [(7, 4)]


def test_a_worker_that_beats_lives_and_so_do_i() -> None:
    """One new beat begins the count anew."""
    watch = Watch(1.0)
    for at in range(10):
        assert _look(watch, at, _beat(7, at // 2), _beat(1, 0, mine=True)) == []


def test_a_slower_worker_is_given_its_own_time() -> None:
    """Three of *its* intervals."""
    watch = Watch(1.0)
    found = [_look(watch, at, _beat(7, 0, ms=3000)) for at in range(10)]
    assert found[:9] == [[]] * 9
    assert found[9] == [(7, 0)]


def test_a_restart_of_the_database_starts_no_mass_rescue() -> None:
    """Every beat is old when it comes back: what was seen before the gap is forgotten."""
    watch = Watch(1.0)
    everybody = [_beat(n, 5) for n in range(20)]
    for at in (0.0, 1.0, 2.0):
        assert _look(watch, at, *everybody) == []
    watch.forget()  # the look at 3.0 failed
    for at in (60.0, 61.0, 62.0):
        assert _look(watch, at, *everybody) == []


def test_a_look_that_was_answered_late_proves_nothing() -> None:
    """A stall of the database makes all of them look silent."""
    watch = Watch(1.0)
    for at in (0.0, 1.0):
        _look(watch, at, _beat(7, 4))
    assert _look(watch, 2.0, _beat(7, 4), took=1.5) == []
    assert _look(watch, 4.0, _beat(7, 4)) == []


def test_a_look_that_came_late_proves_nothing() -> None:
    """The watcher itself was suspended: it has not seen what was in between."""
    watch = Watch(1.0)
    for at in (0.0, 1.0, 2.0):
        _look(watch, at, _beat(7, 4))
    assert _look(watch, 100.0, _beat(7, 4)) == []
    assert [_look(watch, at, _beat(7, 4)) for at in (101.0, 102.0)] == [[], []]
    assert _look(watch, 103.0, _beat(7, 4)) == [(7, 4)]


def test_who_appears_is_judged_from_then_on() -> None:
    """A worker seen for the first time has been silent for no time."""
    watch = Watch(1.0)
    for at in range(5):
        _look(watch, at, _beat(1, at, mine=True))
    assert _look(watch, 5.0, _beat(9, 0)) == []


def test_no_statement_asks_a_clock_or_the_server_who_is_dead() -> None:
    """Neither the age of a beat nor the server's start time decides anything."""
    for_people = ("health.sql", "pools.sql")
    for folder in ("run", "duties"):
        for file in resources.files(f"suimon.{folder}").iterdir():
            if file.name.endswith(".sql") and file.name not in for_people:
                text = re.sub(r"--.*", "", file.read_text(encoding="utf-8"))
                assert "pg_postmaster_start_time" not in text
                assert not re.search(r"where[^;]*beat_at\s*[<>]", text), file.name
