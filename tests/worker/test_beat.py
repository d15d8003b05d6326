"""The heartbeat while the database is away."""

from __future__ import annotations

import pytest
from support.database import with_database
from support.lab import Lab
from support.wait import wait_until

from suimon.db.connect import Connection, connect
from suimon.worker.beat import Events, Heart

INTERVAL_SECONDS = 60.0


def _nothing(*_: object) -> None:
    return


@pytest.mark.slow
def test_a_beat_that_failed_does_not_wait_for_the_next_one(
    conn: Connection, db_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A database that is back soon finds the worker there, not an interval later, when its slots
    would have been ended.
    """
    name = conn.info.dbname
    heart = Heart(db_url, Lab(conn).worker(), INTERVAL_SECONDS, Events(*[_nothing] * 7))
    begun = heart._accepted_at
    with connect(with_database(db_url, "postgres"), name="test") as other:
        other.execute(f'alter database "{name}" allow_connections false'.encode())
        heart.start()
        wait_until(lambda: "heartbeat: " in caplog.text, 30, "told that there is none")
        other.execute(f'alter database "{name}" allow_connections true'.encode())
    wait_until(lambda: heart._accepted_at > begun, INTERVAL_SECONDS / 2, "accepted")
    assert heart.may_claim
    heart.close()
    heart.join(10)
    assert caplog.text.count("; trying again") == 1
