"""Finding 2: no wake-up is lost between a submitter that looks and a worker that goes idle."""

from __future__ import annotations

from support.lab import Lab
from support.sessions import Sessions
from support.wait import wait_until

from suimon.run import wake
from suimon.worker.idle import FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS, Idle, State


def _notes(listener: object) -> list[str]:
    return [note.payload for note in listener.notifies(timeout=0.2)]  # type: ignore[attr-defined]


def test_02_a_submit_that_missed_the_idle_flag_keeps_the_worker_looking(
    lab: Lab, sessions: Sessions
) -> None:
    """The mark: silence is safe only when every older transaction has ended, and is visible."""
    lab.pipeline("p")
    worker = lab.worker()
    caller, listener = sessions("caller", "listener")
    listener.conn.execute(wake.SQL.listen)
    with caller.transaction():
        run = lab.submit_only("p", conn=caller.conn)
        wake.wake(caller.conn, ["default"])  # nobody is idle yet
        mark, _ = wake.go_idle(lab.conn, worker)
        assert mark is not None
        assert not wake.may_be_silent(lab.conn, mark)
        assert lab.claim(worker) == []
        assert not wake.may_be_silent(lab.conn, mark), "and stays unsafe for as long as it is open"
    # ids belong to the whole server: other tests' writers may be older for a moment
    wait_until(lambda: wake.may_be_silent(lab.conn, mark), 30, "safe")
    assert [row.id for row in lab.claim(worker)] == [run]
    assert _notes(listener.conn) == [], "nobody told the worker: its own look found the run"


def test_02_without_the_fix_the_run_waits_beside_an_idle_worker(
    lab: Lab, sessions: Sessions
) -> None:
    """Idle, one more claim, silence: the run is committed later, and its notify was never sent."""
    lab.pipeline("p")
    worker = lab.worker()
    caller, listener = sessions("caller", "listener")
    listener.conn.execute(wake.SQL.listen)
    with caller.transaction():
        lab.submit_only("p", conn=caller.conn)
        wake.wake(caller.conn, ["default"])
        wake.go_idle(lab.conn, worker)
        assert lab.claim(worker) == []
        # a worker without the mark is silent from here on
    assert _notes(listener.conn) == []
    assert lab.statuses() == {"queued": 1}


def test_02_a_submit_after_the_flag_names_one_idle_worker(lab: Lab, sessions: Sessions) -> None:
    """Seen in the statement after the insert, told at the commit; dead and leaving ones never."""
    lab.pipeline("p")
    idle = [lab.worker(idle=True) for _ in range(2)]
    lab.worker()
    lab.kill(lab.worker(idle=True))
    leaving = lab.worker(idle=True)
    lab.sql("update suimon.workers set draining = true where id = %s", leaving)
    lab.worker("elsewhere", idle=True)
    (listener,) = sessions("listener")
    listener.conn.execute(wake.SQL.listen)
    for _ in range(10):
        lab.submit("p")
    notes = _notes(listener.conn)
    assert len(notes) == 10
    assert set(notes) <= {f"default {worker}" for worker in idle}


def test_02_the_mark_is_this_workers_own_transaction(lab: Lab, sessions: Sessions) -> None:
    """Not the newest completed one: a submitter just above that would be missed."""
    worker = lab.worker()
    mark, _ = wake.go_idle(lab.conn, worker)
    assert mark is not None
    (caller,) = sessions("caller")
    with caller.transaction():
        younger = caller.conn.execute("select pg_current_xact_id()::text::bigint").fetchone()
        assert younger is not None
        assert younger[0] > mark
        # transaction ids belong to the whole server: other tests' writers may be older for a moment
        wait_until(
            lambda: wake.may_be_silent(lab.conn, mark), 30, "whoever begins later sees the flag"
        )


def test_02_a_buried_worker_does_not_go_idle(lab: Lab) -> None:
    """No mark for the dead: its heart says so, and it comes back as another worker."""
    worker = lab.worker()
    lab.kill(worker)
    assert wake.go_idle(lab.conn, worker)[0] is None


def test_an_empty_floored_claim_never_ends_a_search() -> None:
    """Hungry, probing and silent: silence comes only after a claim without floors that was safe."""
    idle = Idle()
    idle.nothing_found(0.0)
    assert idle.state is State.PROBING
    assert idle.next_at == 0.0
    pauses = []
    for _ in range(12):
        idle.probed(0.0, found=False, safe=False)
        pauses.append(idle.next_at)
    assert pauses[0] == FIRST_PAUSE_SECONDS
    assert pauses == sorted(pauses)
    assert pauses[-1] == LAST_PAUSE_SECONDS
    assert idle.state is State.PROBING
    idle.probed(0.0, found=False, safe=True)
    assert idle.state is State.SILENT
    idle.wake()
    assert idle.state is State.HUNGRY
    assert idle.unfloored, "what woke it may lie below the floor"


def test_an_idle_worker_that_was_not_named_looks_once_after_a_second() -> None:
    """The named one may be dead; a hundred notifications arm one look."""
    idle = Idle(state=State.SILENT)
    for at in range(100):
        idle.look_later(at / 1000)
    assert not idle.due(0.999)
    assert idle.due(1.0)
    assert idle.state is State.HUNGRY
    assert not idle.due(5.0)
