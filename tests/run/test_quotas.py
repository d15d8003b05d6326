"""Quotas: what is counted, what is refused and how, what is given back, and what people change."""

from __future__ import annotations

from typing import Any

import pytest
from support.lab import Lab
from support.sessions import Sessions

from suimon.db.connect import Connection
from suimon.duties import prune, sweep
from suimon.errors import Conflict, InputRefused, NotThere, QueueFull, QuotaExceeded
from suimon.run import audit, cancel, doors, merge, operate, quotas, rescue, retry, step, submit
from suimon.run.submit import Request
from suimon.worker import batch as batches


def quota(conn: Connection, name: str = "all", **limits: int | None) -> dict[str, Any]:
    return quotas.change(conn, name, limits, actor="mia", why="a test")


def used(conn: Connection, name: str = "all") -> tuple[int, int]:
    """(used this day, of it reserved), after what is over has been given back."""
    found = quotas.show(conn, name)
    return found["day_used"], found["reserved"]


def counter(lab: Lab, name: str = "all") -> int:
    """The number itself: nothing is given back by looking."""
    return int(lab.one("select day_used from suimon.quotas where name = %s", name))


# ------------------------------------------------------------------------------- single runs


def test_a_run_counts_once_when_it_is_created_whatever_becomes_of_it(lab: Lab) -> None:
    lab.pipeline("p")
    quota(lab.conn, per_day=10)
    worker = lab.worker()
    lab.submit("p", key="a")
    assert lab.submit("p", key="a")  # the same run
    (row,) = lab.claim(worker)
    lab.again(worker, row)
    lab.sql("update suimon.runs set wake_at = clock_timestamp()")
    sweep.timers(lab.conn)
    (row,) = lab.claim(worker)
    lab.end(worker, row, "failed")
    plan = retry.plan(lab.conn, [row.id], failed_children=False)
    retry.apply(lab.conn, plan, actor="mia", why="")
    assert used(lab.conn) == (1, 0)


def test_the_refusal_names_the_quota_with_its_numbers_and_its_renewal(lab: Lab) -> None:
    lab.pipeline("p")
    quota(lab.conn, per_day=2, per_month=50)
    lab.submit_many("p", 2)
    with pytest.raises(QuotaExceeded) as caught:
        lab.submit("p")
    told = caught.value.to_json()
    assert isinstance(caught.value, QueueFull)
    assert told["code"] == "SUI-3008"
    assert {key: told[key] for key in ("quota", "period", "limit", "used", "left", "asked")} == {
        "quota": "all", "period": "day", "limit": 2, "used": 2, "left": 0, "asked": 1,
    }  # fmt: skip
    (tomorrow,) = lab.sql(
        "select ((clock_timestamp() at time zone 'UTC')::date + 1)::timestamp at time zone 'UTC'"
    )[0]
    assert told["renews_at"] == quotas.show(lab.conn, "all")["day_renews_at"]
    assert f"{tomorrow:%Y-%m-%d}" in told["message"]
    assert 1 <= caught.value.retry_after_s <= 300
    assert lab.statuses() == {"queued": 2}


def test_a_key_that_has_its_run_answers_with_it_when_the_quota_is_used_up(lab: Lab) -> None:
    lab.pipeline("p")
    quota(lab.conn, per_day=3)
    first = lab.submit("p", key="a")
    lab.submit_many("p", 2)
    assert lab.submit("p", key="a") == first
    requests = [Request(b"{}", "a"), Request(b"{}", "b")]
    with pytest.raises(QuotaExceeded):
        submit.submit(lab.conn, "p", requests)
    quota(lab.conn, per_day=4)
    answers = submit.submit(lab.conn, "p", requests)
    assert [one.duplicate for one in answers] == [True, False]
    assert used(lab.conn) == (4, 0)


def test_what_is_not_born_for_another_reason_is_not_counted(lab: Lab) -> None:
    lab.pipeline("small", maxQueued=1)
    quota(lab.conn, per_day=100)
    lab.submit("small")
    with pytest.raises(QueueFull) as caught:
        lab.submit("small")
    assert not isinstance(caught.value, QuotaExceeded)
    assert used(lab.conn) == (1, 0)


def test_ten_thousand_at_once_against_five_thousand_store_nothing(lab: Lab) -> None:
    lab.pipeline("p")
    quota(lab.conn, per_day=5_000)
    with pytest.raises(QuotaExceeded) as caught:
        doors.start_many(lab.conn, "p", [{}] * 10_000)
    assert (caught.value.asked, caught.value.left) == (10_000, 5_000)
    assert lab.statuses() == {}
    assert used(lab.conn) == (0, 0)
    quota(lab.conn, per_day=12_000)
    keys = [f"k{i}" for i in range(10_000)]
    assert len(doors.start_many(lab.conn, "p", [{}] * 10_000, keys=keys)) == 10_000
    more = doors.start_many(lab.conn, "p", [{}] * 12_000, keys=[f"k{i}" for i in range(12_000)])
    assert sum(one.duplicate for one in more) == 10_000
    assert used(lab.conn) == (12_000, 0)


def test_a_callers_rollback_gives_back_what_it_took(lab: Lab) -> None:
    lab.pipeline("p")
    quota(lab.conn, per_day=5)
    with lab.conn.transaction(force_rollback=True):
        lab.sql("select suimon.submit('p')")
    assert used(lab.conn) == (0, 0)


# ------------------------------------------------------------------------------- labels


def test_a_label_counts_the_runs_that_have_it_and_all_below_them(lab: Lab) -> None:
    lab.pipeline("p", {"kids": {"type": "SPAWNER", "inputs": {"items": [1]},
                                "config": {"task": "m:f"}}}, labels=["team:a"])  # fmt: skip
    quota(lab.conn, "label:tenant:acme", per_day=3)
    quota(lab.conn, "label:team:a", per_day=100)
    lab.submit("p", labels=["tenant:other"])
    run = lab.submit("p", labels=["tenant:acme"])
    assert lab.one("select labels from suimon.runs where id = %s", run) == [
        "team:a", "tenant:acme",
    ]  # fmt: skip
    worker = lab.worker()
    parent = lab.parent(worker, "p", row=lab.claim_run(worker, run))
    lab.chunk(parent, 0, 2, total=2)
    assert lab.one("select count(*) from suimon.runs where parent_id is not null and labels is null"
                   ) == 2  # fmt: skip
    assert used(lab.conn, "label:tenant:acme") == (3, 0)
    assert used(lab.conn, "label:team:a") == (4, 0)
    with pytest.raises(QuotaExceeded, match="label:tenant:acme"):
        lab.submit("p", labels=["tenant:acme"])
    lab.submit("p", labels=["tenant:other"])
    new = operate.rerun(lab.conn, _raised(lab, run), actor="mia")
    assert lab.one("select labels from suimon.runs where id = %s", new) == [
        "team:a", "tenant:acme",
    ]  # fmt: skip


def _raised(lab: Lab, run: str) -> str:
    quota(lab.conn, "label:tenant:acme", per_day=10)
    return run


@pytest.mark.parametrize(
    "labels", [["acme"], ["tenant:"], ["tenant:a b"], ["Tenant:a"], ["t:" + "x" * 99],
               [f"t:{i}" for i in range(11)]],
)  # fmt: skip
def test_labels_that_cannot_be_used_are_refused_at_each_door(lab: Lab, labels: list[str]) -> None:
    lab.pipeline("p")
    with pytest.raises(InputRefused):
        doors.start(lab.conn, "p", {}, labels=labels)
    with pytest.raises(Exception, match="the labels cannot be used") as caught:
        lab.sql("select suimon.submit('p', '{}', null, %s)", labels)
    assert caught.value.sqlstate == "SUI33"  # type: ignore[attr-defined]
    assert lab.statuses() == {}


def test_a_run_has_ten_labels_at_most_together_with_its_pipelines(lab: Lab) -> None:
    lab.pipeline("p", labels=[f"a:{i}" for i in range(6)])
    doors.start(lab.conn, "p", {}, labels=["a:0", *(f"b:{i}" for i in range(4))])
    with pytest.raises(InputRefused):
        doors.start(lab.conn, "p", {}, labels=[f"b:{i}" for i in range(5)])


def test_sql_says_which_quota_has_nothing_left_and_when_it_renews(lab: Lab) -> None:
    lab.pipeline("p")
    quota(lab.conn, "pipeline:p", per_month=1)
    lab.sql("select suimon.submit('p', '{}', 'a', array['tenant:acme'])")
    with pytest.raises(Exception, match='quota "pipeline:p" has nothing left') as caught:
        lab.sql("select suimon.submit('p')")
    told: Any = caught.value
    assert told.sqlstate == "SUI38"
    assert "1 of 1 runs a month" in told.diag.message_detail
    assert "suimon quotas set pipeline:p" in told.diag.message_hint
    assert lab.one("select suimon.submit('p', '{}', 'a')") is not None


# ------------------------------------------------------------------------------- fan-outs


def test_ten_thousand_children_against_five_thousand_are_none_at_all(lab: Lab) -> None:
    lab.pipeline("p")
    worker = lab.worker()
    parent = lab.parent(worker, "p")
    quota(lab.conn, per_day=5_000)
    with pytest.raises(QuotaExceeded) as caught:
        lab.chunk(parent, 0, 1000, total=10_000)
    # (its parent counted when the quota was made)
    assert (caught.value.asked, caught.value.left, caught.value.limit) == (10_000, 4_999, 5_000)
    assert lab.one("select count(*) from suimon.runs where parent_id is not null") == 0
    assert lab.sql("select * from suimon.quota_holds") == []
    assert used(lab.conn) == (1, 0)


def test_of_two_fan_outs_of_three_thousand_racing_for_five_one_is_admitted(
    lab: Lab, sessions: Sessions
) -> None:
    lab.pipeline("p")
    worker = lab.worker()
    first, second = lab.parent(worker, "p"), lab.parent(worker, "p")
    quota(lab.conn, per_day=5_002)
    a, b = sessions("a", "b")
    with a.transaction():
        Lab(a.conn).chunk(first, 0, 1000, total=3_000)
        job = b.start(lambda conn: Lab(conn).chunk(second, 0, 1000, total=3_000))
        b.until_blocked()  # it counts when the first has committed
    with pytest.raises(QuotaExceeded) as caught:
        job.done_in()
    assert (caught.value.asked, caught.value.left) == (3_000, 2_000)
    assert used(lab.conn) == (3_002, 2_000)
    for place in (1_000, 2_000):
        lab.chunk(first, place, 1_000)
    assert used(lab.conn) == (3_002, 0)
    assert lab.one("select count(*) from suimon.runs where fanout_id = %s", second.fanout.id) == 0


def test_the_chunks_of_a_reserved_fan_out_wait_for_nobody(lab: Lab, sessions: Sessions) -> None:
    """Only its first chunk meets the others that are counted."""
    lab.pipeline("p")
    worker = lab.worker()
    parent = lab.parent(worker, "p")
    quota(lab.conn, per_day=100)
    lab.chunk(parent, 0, 10, total=20)
    (other,) = sessions("other")
    with other.transaction():
        other.conn.execute("select suimon.submit('p')")  # holds the quota's row
        assert lab.chunk(parent, 10, 10) == (10, False)
    assert used(lab.conn) == (22, 0)


def test_a_list_without_a_length_is_counted_chunk_by_chunk_and_keeps_what_exists(lab: Lab) -> None:
    lab.pipeline("p")
    worker = lab.worker()
    parent = lab.parent(worker, "p")
    quota(lab.conn, per_day=26)
    lab.chunk(parent, 0, 10)
    lab.chunk(parent, 10, 10)
    with pytest.raises(QuotaExceeded) as caught:
        lab.chunk(parent, 20, 10)
    assert (caught.value.position, caught.value.asked, caught.value.left) == (20, 10, 5)
    assert "up to position 20" in (caught.value.detail or "")
    assert lab.one("select count(*) from suimon.runs where parent_id is not null") == 20
    # read again, what exists costs nothing
    lab.chunk(parent, 0, 10)
    lab.chunk(parent, 10, 10)
    lab.chunk(parent, 20, 5)
    assert used(lab.conn) == (26, 0)


def test_a_list_that_has_become_longer_counts_the_rest_as_it_comes(lab: Lab) -> None:
    lab.pipeline("p")
    worker = lab.worker()
    parent = lab.parent(worker, "p")
    quota(lab.conn, per_day=100)
    lab.chunk(parent, 0, 10, total=20)
    lab.chunk(parent, 10, 10)
    lab.chunk(parent, 20, 7)
    assert used(lab.conn) == (28, 0)
    lab.seal(parent, 27)
    assert used(lab.conn) == (28, 0)


def test_a_quota_that_is_made_while_a_fan_out_is_read_counts_its_later_chunks(lab: Lab) -> None:
    lab.pipeline("p")
    worker = lab.worker()
    parent = lab.parent(worker, "p")
    lab.chunk(parent, 0, 10, total=30)
    quota(lab.conn, per_day=25)
    assert used(lab.conn) == (11, 0)
    lab.chunk(parent, 10, 10)
    with pytest.raises(QuotaExceeded):
        lab.chunk(parent, 20, 10)
    assert used(lab.conn) == (21, 0)


# --------------------------------------------------------------- what was held is given back


@pytest.fixture
def holder(lab: Lab) -> tuple[int, Any]:
    """A worker and its spawner: 4 of 10 children are made, 6 are reserved; 1 + 10 are counted."""
    lab.pipeline("p")
    worker = lab.worker()
    parent = lab.parent(worker, "p")
    quota(lab.conn, per_day=20)
    lab.chunk(parent, 0, 4, total=10)
    assert used(lab.conn) == (11, 6)
    return worker, parent


def freed(lab: Lab) -> None:
    """The reservation is gone: the counter is what was created."""
    assert counter(lab) == lab.one("select count(*) from suimon.runs")
    assert lab.sql("select * from suimon.quota_holds") == []


def test_the_seal_of_a_shorter_list_gives_back_the_rest(lab: Lab, holder: tuple[int, Any]) -> None:
    lab.seal(holder[1], 4)
    freed(lab)


def test_a_fan_out_that_was_left_early_gives_back_the_rest(
    lab: Lab, holder: tuple[int, Any]
) -> None:
    merge.seal_short(lab.conn, holder[1].holder, holder[1].fanout)
    quotas.sweep(lab.conn)
    freed(lab)


def test_a_spawner_whose_step_failed_gives_back_the_rest_and_reserves_anew_when_retried(
    lab: Lab, holder: tuple[int, Any]
) -> None:
    worker, parent = holder
    fail_step(lab, worker, parent)
    quotas.sweep(lab.conn)
    freed(lab)
    lab.end(worker, parent.row, "failed")
    plan = retry.plan(lab.conn, [parent.id], failed_children=False)
    retry.apply(lab.conn, plan, actor="mia", why="")
    again = lab.parent(worker, "p", row=lab.claim_run(worker, parent.id))
    assert again.fanout.id == parent.fanout.id
    lab.chunk(again, 0, 4, total=10)
    assert used(lab.conn) == (11, 6)


def fail_step(lab: Lab, worker: int, parent: Any) -> None:
    row = parent.row
    made = lab.batch(worker, [])
    made.steps = [step.Step(row.id, row.claim_no, "kids", "failed", 1, "", '{"message": "no"}')]
    batches.execute(lab.conn, made)


def test_a_cancel_gives_back_the_rest(lab: Lab, holder: tuple[int, Any]) -> None:
    cancel.request(lab.conn, [holder[1].id])
    merge.stop_parent(lab.conn, holder[1].holder)
    quotas.sweep(lab.conn)
    freed(lab)


@pytest.mark.parametrize("status", ["failed", "timed_out", "cancelled"])
def test_a_parent_that_ends_gives_back_the_rest(
    lab: Lab, holder: tuple[int, Any], status: str
) -> None:
    lab.end(holder[0], holder[1].row, status)
    assert lab.status(holder[1].id) == status
    quotas.sweep(lab.conn)
    freed(lab)


def test_a_rescued_spawner_keeps_what_it_has_reserved(lab: Lab, holder: tuple[int, Any]) -> None:
    worker, parent = holder
    lab.kill(worker)
    rescue.rescue(lab.conn)
    assert lab.status(parent.id) == "queued"
    assert used(lab.conn) == (11, 6)
    other = lab.worker()
    again = lab.parent(other, "p", row=lab.claim_run(other, parent.id))
    lab.chunk(again, 0, 10, total=10)
    lab.seal(again, 10)
    assert used(lab.conn) == (11, 0)
    freed(lab)


def test_a_poisoned_spawner_gives_back_the_rest(lab: Lab, holder: tuple[int, Any]) -> None:
    worker, parent = holder
    lab.sql("update suimon.runs set max_interruptions = 0 where id = %s", parent.id)
    lab.kill(worker)
    rescue.rescue(lab.conn)
    assert lab.status(parent.id) == "failed"
    quotas.sweep(lab.conn)
    freed(lab)


def test_a_crash_between_reservation_and_start_leaves_nothing(lab: Lab, sessions: Sessions) -> None:
    """The reservation and the first children are one transaction."""
    lab.pipeline("p")
    worker = lab.worker()
    parent = lab.parent(worker, "p")
    quota(lab.conn, per_day=20)
    (dying,) = sessions("dying")
    dying.hold(after=quotas.SQL.chunk)
    job = dying.start(lambda conn: Lab(conn).chunk(parent, 0, 4, total=10))
    dying.until_held()
    lab.sql("select pg_terminate_backend(%s)", dying.pid)
    dying.release()
    with pytest.raises(Exception, match=r"terminat|connection|closed"):
        job.done_in()
    assert used(lab.conn) == (1, 0)
    lab.chunk(parent, 0, 4, total=10)
    assert used(lab.conn) == (11, 6)


def test_who_is_about_to_be_refused_takes_what_nobody_holds_any_more(
    lab: Lab, holder: tuple[int, Any]
) -> None:
    lab.submit_many("p", 9)
    with pytest.raises(QuotaExceeded):
        lab.submit("p")
    lab.end(holder[0], holder[1].row, "failed")
    lab.submit_many("p", 6)  # nobody has swept
    assert counter(lab) == 20
    with pytest.raises(QuotaExceeded):
        lab.submit("p")


def test_pruned_fan_outs_give_back_the_rest_before_they_go(lab: Lab) -> None:
    lab.pipeline("p", keep={"count": 1})
    worker = lab.worker()
    parent = lab.parent(worker, "p")
    quota(lab.conn, per_day=20)
    lab.chunk(parent, 0, 4, total=10)
    cancel.request(lab.conn, [parent.id])
    assert not merge.stop_parent(lab.conn, parent.holder)  # its children are stopped already
    lab.end(worker, parent.row, "cancelled")
    lab.end(worker, lab.claim_run(worker, lab.submit("p")))
    assert prune.prune(lab.conn).roots == 1
    assert used(lab.conn) == (6, 0)


# ------------------------------------------------------------------------------- by hand


def test_a_new_quota_counts_what_the_database_holds_of_this_day_and_month(lab: Lab) -> None:
    lab.pipeline("p")
    lab.pipeline("q")
    lab.submit("p", labels=["tenant:acme"])
    lab.submit_many("q", 3)
    lab.fan_out(lab.worker(), "p", 2)
    assert quota(lab.conn, per_day=100)["day_used"] == 7
    assert quota(lab.conn, "pipeline:q", per_month=100)["month_used"] == 3
    assert quota(lab.conn, "label:tenant:acme", per_day=100)["day_used"] == 1
    lab.sql("update suimon.runs set created_at = created_at - interval '40 days' "
            "where pipeline = 'q'")  # fmt: skip
    quotas.remove(lab.conn, "all", actor="mia")
    assert quota(lab.conn, per_day=100)["month_used"] == 4


def test_an_edit_is_recorded_keeps_the_count_and_refuses_an_old_version(lab: Lab) -> None:
    lab.pipeline("p")
    assert quota(lab.conn, per_day=2)["version"] == 1
    lab.submit_many("p", 2)
    found = quotas.change(lab.conn, "all", {"per_month": 9}, actor="mia", expected=1)
    assert (found["per_day"], found["per_month"], found["day_used"]) == (2, 9, 2)
    assert (found["day_left"], found["month_left"], found["version"]) == (0, 7, 2)
    with pytest.raises(Conflict):
        quotas.change(lab.conn, "all", {"per_day": 5}, actor="mia", expected=1)
    with pytest.raises(Conflict):
        quotas.remove(lab.conn, "all", actor="mia", expected=1)
    with pytest.raises(InputRefused):
        quotas.change(lab.conn, "all", {"per_day": None, "per_month": None}, actor="mia")
    quotas.remove(lab.conn, "all", actor="mia", expected=2)
    with pytest.raises(NotThere):
        quotas.show(lab.conn, "all")
    details = [one["detail"]["to"] for one in audit.listed(lab.conn, action="quota")]
    assert details == [None, {"per_day": 2, "per_month": 9}, {"per_day": 2, "per_month": None}]
    assert lab.submit("p")


@pytest.mark.parametrize("name", ["", "every", "pipeline:", "pipeline:A b", "label:x", "label:"])
def test_a_name_that_can_count_nothing_is_refused(lab: Lab, name: str) -> None:
    with pytest.raises(InputRefused, match="cannot be the name of a quota"):
        quotas.change(lab.conn, name, {"per_day": 1}, actor="mia")
