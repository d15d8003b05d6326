"""Pauses by hand and by itself: in force at once, seen as a reason, lifted in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from support.lab import SPAWN_GRAPH, Lab
from support.wait import wait_until

from suimon.db.connect import transaction
from suimon.errors import Conflict, InputRefused, NotThere, UnknownPipeline
from suimon.run import audit, claim, lane, pause, why
from suimon.run.claim import Claimed
from suimon.worker import batch as batches
from suimon.worker.batch import Want

EVERY_MINUTE = [{"type": "CRON", "cron": "* * * * *"}]


def reason(lab: Lab, run_id: str) -> Any:
    return lab.one("select suimon.reason_of(r) from suimon.runs r where id = %s", run_id)


def hold(lab: Lab, worker: int, rows: list[Claimed]) -> None:
    """What a worker does with rows that met a pause."""
    made = lab.batch(worker, [])
    made.held_back = [(r.id, r.claim_no, f"paused:{r.paused}") for r in rows]
    made.lanes = {r.lane for r in rows if r.lane is not None}
    batches.execute(lab.conn, made)


def fail(lab: Lab, pipeline: str, status: str = "failed") -> str:
    """A run that nobody's trigger started ends like this."""
    worker = lab.worker()
    row = lab.claim_run(worker, lab.submit(pipeline))
    lab.end(worker, row, status)
    return row.id


class TestPool:
    def test_a_paused_pool_claims_nothing_and_says_so(self, lab: Lab) -> None:
        lab.pipeline("p", pool="gpu")
        worker, run = lab.worker("gpu"), lab.submit("p")
        pause.pause(lab.conn, "pool:gpu", "me", "the cards are being changed")
        assert lab.claim(worker, 10, pool="gpu") == []
        assert reason(lab, run) == "paused:pool:gpu"
        answer = why.why(lab.conn, run)
        assert "paused by me" in answer["text"]
        assert "the cards are being changed" in answer["text"]
        assert "suimon resume pool gpu" in answer["text"]

    def test_other_pools_go_on(self, lab: Lab) -> None:
        lab.pipeline("p", pool="gpu")
        lab.pipeline("q")
        pause.pause(lab.conn, "pool:gpu", "me")
        run = lab.submit("q")
        assert [row.id for row in lab.claim(lab.worker(), 10)] == [run]

    def test_its_resume_wakes_an_idle_worker(self, lab: Lab) -> None:
        lab.pipeline("p", pool="gpu")
        worker, run = lab.worker("gpu", idle=True), lab.submit("p")
        pause.pause(lab.conn, "pool:gpu", "me")
        lab.conn.execute("listen suimon_wake")
        pause.resume(lab.conn, "pool:gpu", "me")
        (notice,) = lab.conn.notifies(timeout=10, stop_after=1)
        assert notice.payload == f"gpu {worker}"
        assert [row.id for row in lab.claim(worker, 10, pool="gpu")] == [run]

    def test_the_head_of_a_paused_pool_stays(self, lab: Lab) -> None:
        """An idle worker must not publish the clock while a backlog stands before it."""
        lab.pipeline("p")
        worker = lab.worker()
        pause.pause(lab.conn, "pool:default", "me")
        before = lab.one("select max(head) from suimon.pools")
        claim.publish_clock(lab.conn, "default")
        assert lab.one("select max(head) from suimon.pools") == before
        pause.resume(lab.conn, "pool:default", "me")
        claim.publish_clock(lab.conn, "default")
        assert lab.one("select max(head) from suimon.pools") > before
        assert worker

    def test_code_that_was_waited_for_is_not_taken_from_a_paused_pool(self, lab: Lab) -> None:
        lab.pipeline("p")
        worker, run = lab.worker(), lab.submit("p")
        (row,) = lab.claim(worker)
        claim.hold_back(lab.conn, worker, [(row.id, row.claim_no, "no_code:m:f")])
        pause.pause(lab.conn, "pool:default", "me")
        assert claim.held_back(lab.conn, "default", ["no_code:m:f"], 10) == []
        pause.resume(lab.conn, "pool:default", "me")
        assert claim.held_back(lab.conn, "default", ["no_code:m:f"], 10) == [(run, None)]


class TestPipeline:
    def test_a_run_of_a_paused_pipeline_is_accepted_and_waits(self, lab: Lab) -> None:
        """The reason is there before a claim has met it, and after."""
        lab.pipeline("p")
        pause.pause(lab.conn, "pipeline:p", "me")
        run = lab.submit("p")
        assert reason(lab, run) == "paused:pipeline:p"
        worker = lab.worker()
        rows = lab.claim(worker, 10)
        assert [row.paused for row in rows] == ["pipeline:p"]
        hold(lab, worker, rows)
        assert reason(lab, run) == "paused:pipeline:p"
        assert lab.claim(worker, 10) == [], "met once, it is out of the claim's way"

    def test_resume_lets_the_held_in_again_in_their_order(self, lab: Lab) -> None:
        lab.pipeline("p")
        runs = lab.submit_many("p", 50)
        pause.pause(lab.conn, "pipeline:p", "me")
        worker = lab.worker()
        hold(lab, worker, lab.claim(worker, 30))
        answer = pause.resume(lab.conn, "pipeline:p", "me")
        assert answer == {"resumed": ["pipeline:p"], "let_in": 30}
        held, others = runs[:30], runs[30:]
        assert [row.id for row in lab.claim(worker, 100)] == others + held

    def test_a_lane_keeps_its_order_over_a_pause(self, lab: Lab) -> None:
        """Nobody behind the held ones passes them, with a limit above one either."""
        lab.pipeline("p", concurrency=3)
        runs = lab.submit_many("p", 10)
        worker = lab.worker()
        pause.pause(lab.conn, "pipeline:p", "me")
        rows = lab.claim(worker, 10)
        assert len(rows) == 3
        hold(lab, worker, rows)
        lane.admit(lab.conn, ["pipeline:p"])
        assert lab.claim(worker, 10) == [], "the lane of a paused pipeline admits nobody"
        assert {reason(lab, run) for run in runs} == {"paused:pipeline:p"}
        pause.resume(lab.conn, "pipeline:p", "me")
        order = []
        while rows := lab.claim(worker, 10):
            order += [row.id for row in rows]
            lab.end(worker, rows)
        assert order == runs

    def test_lanes_by_value_are_held_and_go_on(self, lab: Lab) -> None:
        lab.pipeline("p", concurrency={"limit": 1, "per": "who"})
        pause.pause(lab.conn, "pipeline:p", "me")
        runs = {lab.submit("p", {"who": who}) for who in "abc"}
        worker = lab.worker()
        assert lab.claim(worker, 10) == []
        pause.resume(lab.conn, "pipeline:p", "me")
        assert {row.id for row in lab.claim(worker, 10)} == runs

    def test_what_has_begun_goes_on(self, lab: Lab) -> None:
        """A try that comes again, and a worker's claim that was lost with its slot."""
        lab.pipeline("p")
        worker = lab.worker()
        row = lab.claim_run(worker, lab.submit("p"))
        pause.pause(lab.conn, "pipeline:p", "me")
        lab.again(worker, row)
        lab.sql("update suimon.runs set status = 'queued', reason = null, wake_at = null")
        (again,) = lab.claim(worker)
        assert (again.id, again.paused) == (row.id, None)

    def test_what_was_claimed_and_never_began_waits(self, lab: Lab) -> None:
        lab.pipeline("p")
        worker = lab.worker()
        row = lab.claim_run(worker, lab.submit("p"))
        pause.pause(lab.conn, "pipeline:p", "me")
        claim.release(lab.conn, worker, [(row.id, row.claim_no)])
        (again,) = lab.claim(worker)
        assert again.paused == "pipeline:p"

    def test_children_of_a_task_go_on_and_those_of_a_paused_pipeline_wait(self, lab: Lab) -> None:
        lab.pipeline("parents", SPAWN_GRAPH)
        lab.pipeline("kids")
        worker = lab.worker()
        tasks = lab.parent(worker, "parents")
        pipelines = lab.parent(worker, "parents", to="kids")
        for parent in (tasks, pipelines):
            lab.chunk(parent, 0, 2)
        pause.pause(lab.conn, "pipeline:parents", "me")
        pause.pause(lab.conn, "pipeline:kids", "me")
        paused = {row.id: row.paused for row in lab.claim(worker, 10)}
        assert paused == {
            tasks.child_id(0): None,
            tasks.child_id(1): None,
            pipelines.child_id(0): "pipeline:kids",
            pipelines.child_id(1): "pipeline:kids",
        }

    def test_an_operators_retry_waits_too(self, lab: Lab) -> None:
        from suimon.run import retry

        lab.pipeline("p")
        run = fail(lab, "p")
        pause.pause(lab.conn, "pipeline:p", "me")
        retry.apply(lab.conn, retry.plan(lab.conn, [run]), actor="me")
        assert reason(lab, run) == "paused:pipeline:p"

    def test_a_worker_that_is_late_leaves_the_run_in_the_queue(self, lab: Lab) -> None:
        """Resumed between its claim and its batch: nobody would ever let the run in again."""
        lab.pipeline("p")
        lab.pipeline("q", concurrency=1)
        runs = {lab.submit("p"), lab.submit("q")}
        pause.pause(lab.conn, "pipeline:p", "me")
        pause.pause(lab.conn, "pipeline:q", "me")
        worker = lab.worker()
        rows = lab.claim(worker, 10)
        pause.resume(lab.conn, "pipeline:p", "me")
        pause.resume(lab.conn, "pipeline:q", "me")
        hold(lab, worker, rows)
        assert {row.id for row in lab.claim(worker, 10)} == runs

    def test_a_cancel_of_a_held_run_ends_it(self, lab: Lab) -> None:
        from suimon.run import cancel

        lab.pipeline("p")
        pause.pause(lab.conn, "pipeline:p", "me")
        run, worker = lab.submit("p"), lab.worker()
        hold(lab, worker, lab.claim(worker))
        cancel.request(lab.conn, [run])
        assert lab.one("select status::text from suimon.runs where id = %s", run) == "cancelled"

    def test_a_kill_in_the_middle_of_a_resume_is_gone_on_with_by_the_sweep(
        self, lab: Lab, db_url: str
    ) -> None:
        """5,000 held runs, kill -9 after the first batch; then each is claimed once."""
        lab.pipeline("p", maxQueued="unlimited")
        runs = set(lab.submit_many("p", 5000))
        pause.pause(lab.conn, "pipeline:p", "me")
        worker = lab.worker()
        hold(lab, worker, [*lab.claim(worker, 4000), *lab.claim(worker, 4000)])
        process = subprocess.Popen([sys.executable, "-c", RESUME_SLOWLY, db_url])
        held = "select count(*) from suimon.runs where not admitted"
        wait_until(lambda: lab.one(held) < 5000, 30, "the first batch is let in")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert 0 < lab.one(held) < 5000
        assert pause.sweep(lab.conn) > 0
        assert lab.one(held) == 0
        with transaction(lab.conn):
            rows = [*lab.claim(worker, 4000), *lab.claim(worker, 4000)]
        assert {row.id for row in rows} == runs
        assert {row.paused for row in rows} == {None}


RESUME_SLOWLY = """
import sys, threading
from suimon.db.connect import connect
from suimon.run import pause
act, done = pause._let_in_some, []
def once(*given):
    if done:
        threading.Event().wait()  # until it is killed
    done.append(1)
    return act(*given)
pause._let_in_some = once
with connect(sys.argv[1], name="resume") as conn:
    pause.resume(conn, "pipeline:p", "me")
"""


class TestByHand:
    def test_it_is_recorded_and_listed(self, lab: Lab) -> None:
        lab.pipeline("p", triggers=EVERY_MINUTE)
        pause.pause(lab.conn, "pipeline:p", "me", "maintenance")
        pause.pause(lab.conn, "pipeline:p", "me", "nights", triggers_only=True)
        pause.pause(lab.conn, "trigger:cron:* * * * *@UTC", "me")
        lab.sql("insert into suimon.destinations (name, declared) values ('crm', '{}')")
        pause.pause(lab.conn, "destination:crm", "me")
        shown = [(one["kind"], one["name"], one["why"]) for one in pause.listed(lab.conn)]
        assert shown == [
            ("pipeline", "p", "maintenance"),
            ("triggers of pipeline", "p", "nights"),
            ("trigger", "p/cron:* * * * *@UTC", ""),
            ("destination", "crm", ""),
        ]
        assert [(r["actor"], r["action"]) for r in audit.listed(lab.conn)] == [("me", "pause")] * 4
        assert pause.resume(lab.conn, "pipeline:p", "me")["resumed"] == ["pipeline:p", "triggers:p"]
        pause.resume(lab.conn, "trigger:p/cron:* * * * *@UTC", "me")
        pause.resume(lab.conn, "destination:crm", "me")
        assert pause.listed(lab.conn) == []

    def test_a_second_pause_keeps_the_first_ones_word(self, lab: Lab) -> None:
        lab.pipeline("p")
        pause.pause(lab.conn, "pipeline:p", "first", "since then")
        again = pause.pause(lab.conn, "pipeline:p", "second", "me too")
        assert (again["changed"], again["by"], again["why"]) == (False, "first", "since then")

    def test_resuming_what_is_not_paused_says_so(self, lab: Lab) -> None:
        lab.pipeline("p")
        assert pause.resume(lab.conn, "pipeline:p", "me")["resumed"] == []
        assert audit.listed(lab.conn) == []

    def test_a_triggers_pause_leaves_its_runs_alone(self, lab: Lab) -> None:
        lab.pipeline("p", triggers=EVERY_MINUTE)
        pause.pause(lab.conn, "pipeline:p", "me", triggers_only=True)
        run = lab.submit("p")
        assert reason(lab, run) == "no_worker:default"
        trigger = lab.one("select id from suimon.triggers")
        assert lab.one("select suimon.pause_of(%s)", trigger) == "triggers:p"

    @pytest.mark.parametrize(
        ("what", "error"),
        [
            ("pipeline:nope", UnknownPipeline),
            ("trigger:nope", NotThere),
            ("pool:nope", NotThere),
            ("pool:", InputRefused),
            ("lane:p", InputRefused),
            ("p", InputRefused),
            ("destination:nope", NotThere),
            ("destination:a\nb", InputRefused),
        ],
    )
    def test_what_nobody_knows_is_refused(
        self, lab: Lab, what: str, error: type[Exception]
    ) -> None:
        lab.pipeline("p")
        for act in (pause.pause, pause.resume):
            with pytest.raises(error):
                act(lab.conn, what, "me")
        assert pause.listed(lab.conn) == []

    def test_a_trigger_name_of_two_pipelines_needs_more(self, lab: Lab) -> None:
        for name in ("p", "q"):
            lab.pipeline(name, triggers=EVERY_MINUTE)
        with pytest.raises(Conflict, match="several pipelines"):
            pause.pause(lab.conn, "trigger:cron:* * * * *@UTC", "me")
        pause.pause(lab.conn, "trigger:q/cron:* * * * *@UTC", "me")

    def test_what_a_deploy_has_removed_is_resumed_by_its_name_all_the_same(self, lab: Lab) -> None:
        lab.pipeline("p", pool="gpu", triggers=EVERY_MINUTE)
        trigger = lab.one("select id from suimon.triggers")
        for what in ("pool:gpu", f"trigger:{trigger}"):
            pause.pause(lab.conn, what, "me")
        lab.pipeline("p", pool="cpu")
        for what in ("pool:gpu", f"trigger:{trigger}"):
            assert pause.resume(lab.conn, what, "me")["resumed"] == [what]
            with pytest.raises(NotThere):
                pause.resume(lab.conn, what, "me")

    def test_who_has_no_name_changes_nothing(self, lab: Lab) -> None:
        lab.pipeline("p")
        with pytest.raises(InputRefused):
            pause.pause(lab.conn, "pipeline:p", " ")
        pause.pause(lab.conn, "pipeline:p", "me")
        with pytest.raises(InputRefused):
            pause.resume(lab.conn, "pipeline:p", "")
        assert len(pause.listed(lab.conn)) == 1


def test_the_claim_asks_for_pauses_without_a_row_of_cost(lab: Lab) -> None:
    """No pause: no look at a claimed row's pipeline; and a claim of n takes n all the same."""
    lab.pipeline("p")
    lab.submit_many("p", 20)
    made = lab.batch(lab.worker(), [])
    made.want = Want("default", 7, [0, 0, 0, 0], unfloored=True)
    assert len(batches.execute(lab.conn, made).claimed) == 7
