"""Rounds at a destination: SQL books and divides as the arithmetic does, and nothing leaks."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.lab import SPAWN_GRAPH, Lab

from suimon.core import gcra
from suimon.db.connect import Connection, connect
from suimon.run import destinations, rescue
from suimon.store import destination
from suimon.store.destination import Ask, Given


def declare(conn: Connection, name: str = "crm", **given: Any) -> None:
    destinations.declare(conn, [destinations.Declared(name, given)])


def count(conn: Connection) -> int:
    row = conn.execute("select count(*) from suimon.leases").fetchone()
    assert row is not None
    return int(row[0])


@pytest.fixture
def lab(conn: Connection) -> Lab:
    return Lab(conn)


def test_a_round_gives_calls_at_their_instants(conn: Connection, lab: Lab) -> None:
    declare(conn, rate="10/s", burst=4)
    worker = lab.worker()
    found = destination.take(conn, worker, Ask("crm", calls=50, wants=50, waiting=50))
    slack = gcra.slack(10, 4)
    # two at once, then one every tenth of a second up to the horizon
    assert len(found.calls) == gcra.steady(4) + 2
    firsts = [first for first, _ in found.calls]
    assert firsts[2] - firsts[1] == pytest.approx(0.1, abs=0.01)
    assert all(0 < last - first <= slack for first, last in found.calls)
    again = destination.take(conn, worker, Ask("crm", calls=50, wants=50, waiting=50))
    assert len(again.calls) <= 1


def test_places_are_never_more_than_there_are(conn: Connection, lab: Lab) -> None:
    declare(conn, concurrency=5)
    first, second = lab.worker(), lab.worker()
    one = destination.take(conn, first, Ask("crm", places=9, wants=9))
    assert len(one.places) == 5
    two = destination.take(conn, second, Ask("crm", places=9, wants=9))
    assert not two.places
    used = [(token, None) for token in one.places]
    one = destination.take(conn, first, Ask("crm", wants=9, used=used))
    assert one.kept == {token for token, _ in used}
    assert one.give_back in (2, 3)  # the other one's half
    back = [token for token, _ in used[:3]]
    destination.take(conn, first, Ask("crm", wants=9, back=back))
    two = destination.take(conn, second, Ask("crm", places=9, wants=9))
    assert len(two.places) in (2, 3)
    assert count(conn) <= 5


def test_a_place_is_freed_by_its_own_worker_only(conn: Connection, lab: Lab) -> None:
    declare(conn, concurrency=2)
    mine, other = lab.worker(), lab.worker()
    places = destination.take(conn, mine, Ask("crm", places=2, wants=2)).places
    destination.take(conn, other, Ask("crm", back=places))
    destination.give_back(conn, other, places)
    assert count(conn) == 2
    used = [(token, None) for token in places]
    assert destination.take(conn, other, Ask("crm", used=used)).kept == frozenset()
    destination.give_back(conn, mine, places)
    assert count(conn) == 0


def test_an_expired_place_goes_to_the_next_and_is_never_renewed(conn: Connection, lab: Lab) -> None:
    declare(conn, concurrency=1)
    frozen, other = lab.worker(), lab.worker()
    (token,) = destination.take(conn, frozen, Ask("crm", places=1, wants=1)).places
    lab.sql("update suimon.leases set expires_at = clock_timestamp() - interval '1 ms'")
    found = destination.take(conn, frozen, Ask("crm", used=[(token, None)]))
    assert found.kept == frozenset()
    assert len(destination.take(conn, other, Ask("crm", places=1, wants=1)).places) == 1


def test_who_buries_a_worker_frees_its_places(conn: Connection, lab: Lab) -> None:
    declare(conn, concurrency=3)
    dead = lab.worker()
    destination.take(conn, dead, Ask("crm", places=3, wants=3))
    beat = lab.one("select beat from suimon.workers where id = %s", dead)
    assert rescue.bury(conn, dead, beat) is not None
    assert count(conn) == 0
    assert not destination.take(conn, dead, Ask("crm", places=3, wants=3)).places


def test_a_hold_gives_nothing_and_says_how_long(conn: Connection, lab: Lab) -> None:
    declare(conn, rate="100/s", concurrency=3)
    worker = lab.worker()
    destination.hold(conn, "crm", 30.0, "it answered 429")
    destination.hold(conn, "crm", 1.0, "a shorter one")
    found = destination.take(conn, worker, Ask("crm", calls=5, places=3, wants=5, waiting=5))
    assert (found.calls, found.places) == ((), ())
    assert found.held_until is not None
    assert 29 < found.held_until - found.sent < 31
    destinations.release(conn, "crm", actor="mia")
    assert destination.take(conn, worker, Ask("crm", calls=1, places=1, wants=1)).places


def test_an_unknown_destination_is_no_answer(conn: Connection, lab: Lab) -> None:
    assert destination.take(conn, lab.worker(), Ask("nobody", calls=1)).terms is None


STEPS = st.lists(
    st.tuples(
        st.integers(0, 3), st.sampled_from(["take", "back", "die", "expire"]), st.integers(0, 6)
    ),
    max_size=25,
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(1, 6), STEPS)
def test_whatever_happens_there_are_never_more_places_and_none_leaks(
    conn: Connection, limit: int, steps: list[tuple[int, str, int]]
) -> None:
    lab = Lab(conn)
    conn.execute("delete from suimon.leases")
    conn.execute("delete from suimon.destinations")
    conn.execute("delete from suimon.destination_users")
    declare(conn, concurrency=limit)
    workers = {i: lab.worker(name=f"w{i}") for i in range(4)}
    held: dict[int, set[int]] = {i: set() for i in workers}

    def round_of(i: int, places: int, back: list[int] | None = None) -> Given:
        ask = Ask("crm", places=places, wants=places + len(held[i]), back=back or [],
                  used=[(token, None) for token in sorted(held[i])])  # fmt: skip
        found = destination.take(conn, workers[i], ask)
        held[i] = set(found.kept) | set(found.places)
        return found

    for i, what, n in steps:
        if what == "take":
            round_of(i, n)
        elif what == "back":
            back = sorted(held[i])[:n]
            held[i] -= set(back)
            round_of(i, 0, back)
        elif what == "die":
            beat = lab.one("select beat from suimon.workers where id = %s", workers[i])
            rescue.bury(conn, workers[i], beat)
            held[i], workers[i] = set(), lab.worker(name=f"w{i}")
        else:
            gone = sorted(held[i])[:n]
            lab.sql(
                "update suimon.leases set expires_at = '-infinity' where token = any (%s)", gone
            )
            held[i] -= set(gone)
        assert sum(map(len, held.values())) <= limit
    for i in workers:
        round_of(i, 0, sorted(held[i]))
        held[i] = set()
    lab.sql("delete from suimon.leases where expires_at <= clock_timestamp()")
    assert count(conn) == 0


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.sampled_from(["1/s", "20/s", "7/m", "900/s"]),
    st.integers(1, 300),
    st.lists(st.tuples(st.integers(0, 80), st.floats(0, 3)), max_size=8),
)
def test_sql_books_as_the_arithmetic_does(
    conn: Connection, rate: str, burst: int, asks: list[tuple[int, float]]
) -> None:
    """The row's clock is moved back between two rounds, as if time had passed."""
    per_second = gcra.per_second(rate)
    burst = max(burst, gcra.least_burst(per_second))
    conn.execute("delete from suimon.destinations")
    conn.execute("delete from suimon.destination_users")
    declare(conn, rate=rate, burst=burst)
    worker = Lab(conn).worker()
    tat, now = float("-inf"), 0.0
    for want, pause in asks:
        now += pause
        conn.execute(
            "update suimon.destinations set tat = tat - make_interval(secs => %s)", (pause,)
        )
        booked = gcra.take(tat, now, per_second, burst, want)
        found = destination.take(conn, worker, Ask("crm", calls=want, wants=want, waiting=want))
        # a millisecond or two pass in the database
        assert abs(len(found.calls) - booked.n) <= 1 + per_second * 0.02
        tat = (
            booked.tat
            if len(found.calls) == booked.n
            else max(tat, now) + len(found.calls) / per_second
        )


def test_who_parked_early_with_all_its_children_keeps_no_other_fan_out_waiting(
    conn: Connection, lab: Lab
) -> None:
    """Tickets of the second one are all later; each wave of wake-ups has as many of both."""
    declare(conn, rate="40/s")
    worker = lab.worker()
    lab.pipeline("p", SPAWN_GRAPH, concurrency="unlimited")
    for nth in (1, 2):
        parent = lab.parent(worker, "p")
        lab.chunk(parent, 0, 60)
        lab.sql(
            "update suimon.runs set status = 'running', worker_id = %s, claim_no = 1"
            " where fanout_id = %s",
            worker, parent.fanout.id,
        )  # fmt: skip
        lab.sql(
            "update suimon.runs set status = 'waiting', worker_id = null, reason = 'limit:crm',"
            " wake_at = clock_timestamp() + make_interval(mins => %s, secs => position)"
            " where fanout_id = %s",
            nth, parent.fanout.id,
        )  # fmt: skip
    while destination.take(conn, worker, Ask("crm")).parked:
        woken = lab.sql(
            "select count(*) filter (where status = 'queued') from suimon.runs"
            " where fanout_id is not null group by fanout_id"
        )
        assert abs(woken[0][0] - woken[1][0]) <= 10  # what is odd goes to either
        lab.sql("update suimon.destinations set tat = '-infinity'")  # time goes on
    assert woken == [(60,), (60,)]


def test_workers_that_ask_at_once_never_get_more_than_there_are(db_url: str) -> None:
    """Four connections take and give back; a fifth one counts, all the while."""
    limit, seen = 5, [0]
    with connect(db_url, name="test") as conn:
        declare(conn, concurrency=limit, rate="5000/s")
        lab = Lab(conn)
        workers = [lab.worker(name=f"w{i}") for i in range(4)]

        def one(worker: int) -> None:
            chance = random.Random(worker)
            held: list[int] = []
            with connect(db_url, name="test") as mine:
                for _ in range(60):
                    back, held = held[: chance.randint(0, 3)], held[3:]
                    used = [(token, None) for token in held]
                    ask = Ask("crm", calls=3, places=4, wants=4, waiting=4, back=back, used=used)
                    found = destination.take(mine, worker, ask)
                    held = [*found.kept, *found.places]
                destination.take(mine, worker, Ask("crm", back=held))

        threads = [threading.Thread(target=one, args=(worker,)) for worker in workers]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            seen.append(count(conn))
        for thread in threads:
            thread.join()
        assert max(seen) == limit
