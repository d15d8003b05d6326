"""C17: events of transactions that commit in another order than they began: each starts one run."""

from __future__ import annotations

import random
import threading
import time

import psycopg
import pytest
from support.engine import Engine

pytestmark = [pytest.mark.acceptance, pytest.mark.long]

CODE = """
from suimon import Event

@pipeline(concurrency=None, max_queued=None, on=Event("order.*"))
def hears(payload: dict, event_id: str):
    return payload["n"]
"""
EMIT = "select suimon.emit('order.paid', jsonb_build_object('n', %s::int))::text"
DELIVERED = "select count(*) from suimon.deliveries where state = 'delivered'"
OPEN = "select count(*) from suimon.deliveries where state = 'waiting'"
WRITERS = 20
EVENTS = 10_000
#: Events of one transaction, so that the delays of all of them fit into a minute.
TOGETHER = 5
LONGEST_DELAY_S = 0.5


@pytest.fixture
def doors(engine: Engine) -> Engine:
    engine.module("hears", CODE)
    engine.deploy()
    engine.worker(slots=2)
    return engine


def numbers(engine: Engine) -> list[int]:
    """What was told to the runs, in order of the numbers."""
    rows = engine.sql("select (input -> 'payload' ->> 'n')::int from suimon.runs order by 1")
    return [row[0] for row in rows]


def test_c17_an_earlier_event_that_is_committed_later(doors: Engine) -> None:
    with psycopg.connect(doors.url) as one, psycopg.connect(doors.url) as two:
        one.execute(EMIT, (1,))
        two.execute(EMIT, (2,))
        two.commit()
        doors.until(lambda: numbers(doors) == [2], "the second event has its run")
        doors.until(lambda: doors.one(OPEN) == 0, "nothing waits")
        one.commit()
        doors.until(lambda: numbers(doors) == [1, 2], "the first event has its run")
        two.execute(EMIT, (3,))
        two.rollback()
    with psycopg.connect(doors.url, autocommit=True) as last:
        last.execute(EMIT, (4,))
    doors.until(lambda: numbers(doors) == [1, 2, 4], "the last event has its run")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_c17_ten_thousand_events_of_twenty_writers(doors: Engine) -> None:
    committed: list[int] = []
    rolled_back: list[int] = []
    ids: dict[int, str] = {}
    problems: list[BaseException] = []

    def write(writer: int) -> None:
        rng = random.Random(writer)
        try:
            with psycopg.connect(doors.url) as conn:
                for start in range(writer * TOGETHER, EVENTS, WRITERS * TOGETHER):
                    told = range(start, start + TOGETHER)
                    made = {n: conn.execute(EMIT, (n,)).fetchone() for n in told}
                    time.sleep(rng.uniform(0, LONGEST_DELAY_S))  # the delay is what is tested
                    if rng.random() < 0.1:
                        conn.rollback()
                        rolled_back.extend(told)
                    else:
                        conn.commit()
                        committed.extend(told)
                        ids.update({n: row[0] for n, row in made.items() if row})
        except BaseException as error:
            problems.append(error)
            raise

    threads = [threading.Thread(target=write, args=(n,)) for n in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert len(committed) + len(rolled_back) == EVENTS
    assert len(rolled_back) > EVENTS / 20
    doors.until(lambda: doors.one(DELIVERED) == len(committed), "all are delivered", 120)
    assert numbers(doors) == sorted(committed)
    rows = doors.sql(
        "select (input -> 'payload' ->> 'n')::int, input ->> 'event_id' from suimon.runs"
    )
    assert dict(rows) == ids
    assert doors.one("select count(*) from suimon.events") == len(committed)
    assert doors.one(OPEN) == 0
