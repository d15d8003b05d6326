"""The thread that keeps time for everybody outlives whatever one of its acts meets."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from suimon.core import clock
from suimon.db.connect import Connection
from suimon.worker.away import Away
from suimon.worker.upkeep import Upkeep


def _unforeseen(_: Connection) -> None:
    msg = "nobody thought of it"
    raise ValueError(msg)


def _refused(conn: Connection) -> None:
    conn.execute("select nobody_thought_of_it")


@pytest.mark.parametrize("fail", [_unforeseen, _refused])
def test_an_act_that_fails_unforeseen_ends_neither_the_thread_nor_the_others(
    db_url: str, caplog: pytest.LogCaptureFixture, fail: Callable[[Connection], None]
) -> None:
    done = threading.Event()
    upkeep = Upkeep(db_url, None, 3600.0, duties=False)
    upkeep._ask("bad", fail)
    upkeep._ask("good", lambda _: done.set())
    upkeep.start()
    try:
        assert done.wait(60)
        assert re.search("nobody.thought.of.it", caplog.text)
        assert upkeep.is_alive()
    finally:
        upkeep.close()
        upkeep.join(60)


def test_a_database_that_is_away_is_said_now_and_then(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Twice a second tried: at once, every 10 s, and once when it is back."""
    now = 1000.0
    monkeypatch.setattr(clock, "boottime", lambda: now)
    caplog.set_level(logging.INFO)
    away = Away("upkeep", logging.getLogger("test"))
    away.back()
    for _ in range(50):
        away.lost(ValueError("cannot connect\nmore"))
        now += 0.5
    away.back()
    away.back()
    assert caplog.messages == [
        "upkeep: cannot connect; trying again",
        "upkeep: cannot connect (for 10 s); trying again",
        "upkeep: cannot connect (for 20 s); trying again",
        "upkeep: the database is back after 25 s",
    ]


def test_what_the_driver_ignores_is_not_in_the_log() -> None:
    """Its own warnings while a connection breaks; whoever held it says so."""
    program = (
        "import logging; from suimon.cli import logging_setup as made; "
        "made.start('text', verbose=False); logging.getLogger('psycopg').warning('error ignored'); "
        "logging.getLogger('suimon').warning('ours')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "ours" in done.stderr
    assert "error ignored" not in done.stderr
