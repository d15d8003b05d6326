"""The thread that keeps time for everybody outlives whatever one of its acts meets."""

from __future__ import annotations

import threading

import pytest

from suimon.db.connect import Connection
from suimon.worker.upkeep import Upkeep


def test_an_act_that_fails_unforeseen_ends_neither_the_thread_nor_the_others(
    db_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    done = threading.Event()

    def fail(_: Connection) -> None:
        msg = "nobody thought of it"
        raise ValueError(msg)

    upkeep = Upkeep(db_url, None, 3600.0, duties=False)
    upkeep._ask("bad", fail)
    upkeep._ask("good", lambda _: done.set())
    upkeep.start()
    try:
        assert done.wait(60)
        assert "nobody thought of it" in caplog.text
        assert upkeep.is_alive()
    finally:
        upkeep.close()
        upkeep.join(60)
