"""The lab, a hot connection, and one database with 100,000 rows for all plan tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.database import Databases
from support.lab import Lab
from support.lab_fixtures import lab, sessions

from suimon.db.connect import connect

ROWS = 100_000


@pytest.fixture(scope="module")
def full_url(databases: Databases) -> Iterator[str]:
    """100,000 children of a parent queued, as many finished ones, statistics fresh."""
    with databases.fresh() as url:
        with connect(url, name="fill") as conn:
            lab = Lab(conn)
            lab.pipeline("parents")
            lab.pipeline("p")
            lab.pipeline("serial", concurrency=1)
            worker = lab.worker()
            parent = lab.fan_out(worker, "parents", ROWS)
            _finish_half(lab, parent.fanout.id)
            conn.execute("vacuum analyze")
        yield url


def _finish_half(lab: Lab, fanout: int) -> None:
    lab.sql("alter table suimon.runs disable trigger user")
    lab.sql(
        "update suimon.runs set status = 'succeeded', finished_at = clock_timestamp()"
        " where fanout_id = %s and position %% 2 = 0",
        fanout,
    )
    lab.sql("update suimon.fanouts set succeeded = %s where id = %s", ROWS // 2, fanout)
    lab.sql("alter table suimon.runs enable trigger user")


@pytest.fixture
def full(full_url: str) -> Iterator[Lab]:
    """The full database; a test leaves it as it was, or nearly."""
    with connect(full_url, name="full") as conn:
        yield Lab(conn)


__all__ = ["full", "full_url", "lab", "sessions"]
