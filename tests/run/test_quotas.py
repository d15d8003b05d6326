"""Quotas: what is counted, what is refused and how, what is given back, and what people change."""

from __future__ import annotations

from typing import Any

import pytest
from support.lab import Lab
from support.quotas import quota, used
from support.sessions import Sessions

from suimon.duties import sweep
from suimon.errors import Conflict, InputRefused, NotThere, QueueFull, QuotaExceeded
from suimon.run import audit, doors, operate, quotas, retry, submit
from suimon.run.submit import Request

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


def test_of_two_that_race_for_the_last_place_one_has_it(lab: Lab, sessions: Sessions) -> None:
    lab.pipeline("p")
    quota(lab.conn, per_day=1)
    a, b = sessions("a", "b")
    with a.transaction():
        Lab(a.conn).submit("p")
        job = b.start(lambda conn: Lab(conn).submit("p"))
        b.until_blocked()
    with pytest.raises(QuotaExceeded):
        job.done_in()
    assert used(lab.conn) == (1, 0)


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


# ------------------------------------------------------------------- transactions that stay open


def test_an_open_transaction_that_has_started_runs_holds_nobody_for_long(
    lab: Lab, sessions: Sessions
) -> None:
    """Whoever meets the locked quota is told to come again; the sweep passes it over."""
    lab.pipeline("p")
    quota(lab.conn, "pipeline:p", per_day=10)
    (other,) = sessions("other")
    with other.conn.transaction():
        other.conn.execute("select suimon.submit('p', '{}')")
        with pytest.raises(QuotaExceeded, match="still open") as told:
            lab.submit("p")
        assert told.value.quota is None
        assert quotas.sweep(lab.conn) == 0
    assert lab.submit("p")


@pytest.mark.parametrize("why", ["quota", "queue", "key"])
def test_a_refused_large_start_leaves_nothing_in_the_store(lab: Lab, why: str) -> None:
    lab.pipeline("p", maxQueued=1)
    large = {"text": "x" * 100_000}
    if why == "quota":
        quota(lab.conn, "pipeline:p", per_day=0)
    else:
        lab.submit("p", key="k")
    for n in range(3):
        given = {**large, "n": n}
        if why == "key":
            assert lab.submit("p", given, key="k")
        else:
            with pytest.raises(QueueFull):
                lab.submit("p", given)
    assert lab.one("select count(*) from suimon.contents") == 0
    assert lab.one("select suimon.store_bytes()") == 0
