"""C60, the engine's part: an approval is decided by an explicit act, once, whoever comes when."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from support.lab import Lab
from support.sessions import Sessions
from support.wait import wait_until

from suimon.errors import Conflict
from suimon.run import approvals, audit, health, operate, read, wait, why
from suimon.run.approvals import Decision
from suimon.run.spawn import Holder

GRAPH: dict[str, Any] = {
    "ok": {"type": "APPROVAL", "inputs": {"show": {"$value": "the plan"}}},
    "go": {"type": "TASK", "after": ["ok"], "config": {"task": "m:f"}},
}


def asking(lab: Lab, *, quorum: int = 1, expires_s: float | None = None) -> str:
    """A run that waits for its approval "ok"."""
    lab.pipeline("asks", GRAPH)
    worker = lab.worker()
    row = lab.claim_run(worker, lab.submit("asks"))
    holder = Holder(row.id, row.claim_no, worker)
    in_s = ask(lab, holder, quorum=quorum, expires_s=expires_s)
    assert not isinstance(in_s, Decision)
    assert wait.park(lab.conn, holder, [wait.On(approval="ok", in_s=in_s)], grace_s=10)[0]
    assert lab.sql("select status::text, reason from suimon.runs where id = %s", row.id) == [
        ("waiting", "approval:ok")
    ]
    return row.id


def ask(
    lab: Lab, holder: Holder, *, quorum: int = 1, expires_s: float | None = None
) -> Decision | float | None:
    return approvals.ask(
        lab.conn, holder, "ok", pipeline="asks", show=b'"the plan"', required=True, title="Go on?",
        role=None, quorum=quorum, expires_s=expires_s,
    )  # fmt: skip


def wake(lab: Lab, run: str) -> None:
    """As its timer does when the approval expires."""
    lab.sql(
        "update suimon.runs set status = 'queued', reason = null, wake_at = null,"
        " rank = suimon.head_of(pool, priority) where id = %s",
        run,
    )


def decisions(lab: Lab, run: str) -> list[tuple[Any, ...]]:
    return lab.sql("select decision, decided_by from suimon.approvals where run_id = %s", run)


def person(url: str, run: str, word: str, name: str) -> subprocess.Popen[bytes]:
    """Somebody at a command line."""
    command = [sys.executable, "-P", "-m", "suimon.cli.main", "approvals", word, run, "ok",
               "--as", name, "--comment", f"{name} says so", "--json"]  # fmt: skip
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "SUIMON_DATABASE_URL": url},
    )


@pytest.mark.parametrize(("first", "second"), [("approve", "approve"), ("approve", "reject")])
def test_c60_two_people_at_the_same_moment(
    lab: Lab, db_url: str, sessions: Sessions, first: str, second: str
) -> None:
    """Two processes stand before the same lock: exactly one decides, and the other is told which
    decision there is and whose; the run goes on once.
    """
    run = asking(lab)
    (door,) = sessions("door")
    with door.transaction() as held:
        held.execute(wait.SQL.lock_run, {"run": run})
        words = {"ada": first, "bob": second}
        people = {name: person(db_url, run, word, name) for name, word in words.items()}
        wait_until(
            lambda: lab.one(
                "select count(*) from pg_stat_activity where datname = current_database()"
                " and wait_event_type = 'Lock' and application_name = 'suimon:cli'"
            ) == 2,
            40,
            "both stand before the lock",
        )  # fmt: skip
    said = {name: (*one.communicate(timeout=40), one.returncode) for name, one in people.items()}
    winners = [name for name, (_, _, code) in said.items() if code == 0]
    assert len(winners) == 1, said
    winner, loser = winners[0], "bob" if winners[0] == "ada" else "ada"
    word = {"approve": "approved", "reject": "rejected"}[words[winner]]
    assert decisions(lab, run) == [(word, winner)]
    assert json.loads(said[winner][0])["decision"] == word
    assert said[loser][2] == 5
    problem = json.loads(said[loser][1])
    assert f"was {word} by {winner} at" in problem["message"]
    assert lab.status(run) == "queued"
    records = [(r["actor"], r["action"]) for r in audit.listed(lab.conn, target=run)]
    assert records == [(winner, {"approved": "approve", "rejected": "reject"}[word])]


def test_c60_one_after_the_expiry(lab: Lab) -> None:
    """Nobody decides after it, also before the clock's own decision is written; then that one is
    named; and there is exactly one.
    """
    run = asking(lab, expires_s=3600)
    lab.sql("update suimon.approvals set expires_at = clock_timestamp() - interval '1 s'")
    with pytest.raises(Conflict, match="has expired"):
        operate.decide(lab.conn, run, "ok", approve=True, actor="ada")
    assert decisions(lab, run) == [(None, None)]
    wake(lab, run)
    worker = lab.worker()
    row = lab.claim_run(worker, run)
    found = ask(lab, Holder(run, row.claim_no, worker), expires_s=3600)
    assert isinstance(found, Decision)
    assert (found.decision, found.by) == ("expired", "clock")
    with pytest.raises(Conflict, match="was expired by clock"):
        operate.decide(lab.conn, run, "ok", approve=True, actor="ada")
    assert decisions(lab, run) == [("expired", "clock")]


def test_c60_a_vote_and_the_expiry_at_the_same_moment(lab: Lab, sessions: Sessions) -> None:
    """Whoever has the run's lock first decides; the other finds it decided."""
    run = asking(lab, expires_s=3600)
    wake(lab, run)
    worker = lab.worker()
    row = lab.claim_run(worker, run)
    lab.sql("update suimon.approvals set expires_at = clock_timestamp() + interval '300 ms'")
    voter, clock = sessions("voter", "clock")
    voter.hold(after=approvals.SQL.vote)
    vote = voter.start(lambda conn: approvals.decide(conn, run, "ok", approve=True, by="ada"))
    voter.until_held()
    over = "select clock_timestamp() > expires_at from suimon.approvals"
    wait_until(lambda: lab.one(over), 10, "expired")
    held = Lab(clock.conn)
    asked = clock.start(lambda _: ask(held, Holder(run, row.claim_no, worker), expires_s=3600))
    clock.until_blocked()
    voter.release()
    assert vote.done_in() == ("approved", 1)
    found = asked.done_in()
    assert isinstance(found, Decision)
    assert (found.decision, found.by) == ("approved", "ada")


def test_c60_looking_decides_nothing(lab: Lab) -> None:
    """Everything that shows a run or its approval, ten times over."""
    run = asking(lab)
    for _ in range(10):
        assert approvals.listed(lab.conn, run_id=run)[0]["decision"] is None
        read.show(lab.conn, run)
        why.why(lab.conn, run)
        health.overall(lab.conn)
    assert decisions(lab, run) == [(None, None)]
    assert lab.status(run) == "waiting"


def test_c60_a_quorum_is_of_different_people(lab: Lab) -> None:
    """One person is one vote; a rejection decides alone."""
    run = asking(lab, quorum=2)
    assert operate.decide(lab.conn, run, "ok", approve=True, actor="ada") == (None, 1)
    with pytest.raises(Conflict, match="has voted"):
        operate.decide(lab.conn, run, "ok", approve=True, actor="ada")
    assert lab.status(run) == "waiting"
    assert operate.decide(lab.conn, run, "ok", approve=True, actor="bob")[0] == "approved"
    assert lab.status(run) == "queued"
    other = asking(lab, quorum=3)
    assert operate.decide(lab.conn, other, "ok", approve=False, actor="ada")[0] == "rejected"
    assert lab.status(other) == "queued"
