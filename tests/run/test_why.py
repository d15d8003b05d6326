"""Each reason of the closed list, on a real run: one sentence says what is so, who holds it, since
when, and what ends it; lists and counts go by the same words.
"""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from support import storage
from support.lab import SPAWN_GRAPH, Lab

from suimon.core import reasons
from suimon.errors import InputRefused
from suimon.run import by_reason, cancel, health, pause, pools, quotas, read, wait, why
from suimon.run.spawn import Holder
from suimon.worker import batch as batches

_TIME = re.compile(r"since (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d), until ")
CRM = {"rate": "1/h", "concurrency": 2}


def told(lab: Lab, run: str, reason: str) -> dict[str, Any]:
    """The answer for a run that waits, whole: one sentence with the three things in it."""
    answer = why.why(lab.conn, run)
    assert answer["reason"] == reason
    text = answer["text"]
    assert _TIME.search(text), text
    assert f"held by {answer['held_by']} since" in text
    assert text.endswith(answer["ends"])
    assert "\n" not in text
    since = datetime.fromisoformat(answer["since"])
    (now, created) = lab.sql(
        "select clock_timestamp(), created_at from suimon.runs where id = %s", run
    )[0]
    assert created <= since <= now
    assert answer["held_by"]
    assert "{" not in text
    word = reason.partition(":")[0]
    assert reason in [one["reason"] for one in by_reason.groups(lab.conn)]
    for asked in (reason, word):
        assert run in [one["id"] for one in by_reason.runs(lab.conn, asked)]
    return answer


def _later(lab: Lab, worker: int, row: Any, reason: str) -> None:
    made = lab.batch(worker, [])
    made.later = [(row.id, row.claim_no, 3600.0, reason)]
    batches.execute(lab.conn, made)


def _holder(lab: Lab, row: Any, worker: int) -> Holder:
    return Holder(row.id, row.claim_no, worker)


def test_retry_says_when_its_next_try_comes(lab: Lab) -> None:
    lab.pipeline("p")
    worker = lab.worker()
    row = lab.claim_run(worker, lab.submit("p"))
    lab.again(worker, row, delay_s=3600)
    answer = told(lab, row.id, "retry")
    assert "its last try failed" in answer["text"]
    assert answer["ends"].startswith("its next try comes at 20")


def test_children_says_how_many_are_out(lab: Lab) -> None:
    lab.pipeline("p", SPAWN_GRAPH)
    parent = lab.fan_out(lab.worker(), "p", 24)
    answer = told(lab, parent.id, "children")
    assert '"kids": 0 of 24 ended' in answer["held_by"]


def test_children_says_what_those_that_wait_wait_for(lab: Lab) -> None:
    """Bounded: the last 1,000 positions are looked at."""
    lab.pipeline("p", SPAWN_GRAPH)
    worker = lab.worker()
    parent = lab.fan_out(worker, "p", 24)
    row = lab.claim(worker, 1)[0]
    lab.again(worker, row, delay_s=3600)
    answer = told(lab, parent.id, "children")
    assert "of those made last wait 23 for no_slot:default, 1 for retry" in answer["held_by"]
    assert answer["waiting"][1] == {"vertex": "kids", "reason": "retry", "runs": 1}


def test_a_timer_says_its_time(lab: Lab) -> None:
    lab.pipeline("p")
    worker = lab.worker()
    row = lab.claim_run(worker, lab.submit("p"))
    _later(lab, worker, row, "timer")
    assert told(lab, row.id, "timer")["ends"].startswith("its time comes at 20")


@pytest.mark.parametrize("kind", ["signal", "approval"])
def test_a_signal_and_an_approval_say_whose_word_is_missing(lab: Lab, kind: str) -> None:
    lab.pipeline("p")
    worker = lab.worker()
    row = lab.claim_run(worker, lab.submit("p"))
    on = wait.On(signal="paid") if kind == "signal" else wait.On(approval="paid")
    assert wait.park(lab.conn, _holder(lab, row, worker), [on], grace_s=1.0)[0]
    answer = told(lab, row.id, f"{kind}:paid")
    ends = "suimon signal RUN paid" if kind == "signal" else "suimon approvals list"
    assert ends in answer["ends"]


def test_cancelling_says_what_is_still_below_it(lab: Lab) -> None:
    lab.pipeline("p", SPAWN_GRAPH)
    worker = lab.worker()
    parent = lab.fan_out(worker, "p", 3)
    lab.claim(worker, 1)
    cancel.request(lab.conn, [parent.id])
    cancel.sweep(lab.conn)
    answer = told(lab, parent.id, "cancelling")
    assert "it was asked to stop" in answer["text"]


@pytest.mark.parametrize("word", ["limit", "held"])
def test_a_destination_says_its_limits_and_who_holds_it(lab: Lab, word: str) -> None:
    lab.pipeline("p")
    lab.sql(
        "insert into suimon.destinations (name, rate, per_second, burst, concurrency, declared)"
        " values ('crm', '1/s', 1, 2, 2, '{}')"
    )
    if word == "held":
        lab.sql(
            "update suimon.destinations set held_until = 'infinity', held_by = 'mia',"
            " held_why = 'they migrate'"
        )
    worker = lab.worker()
    row = lab.claim_run(worker, lab.submit("p"))
    _later(lab, worker, row, f"{word}:crm")
    answer = told(lab, row.id, f"{word}:crm")
    wanted = "by mia (they migrate)" if word == "held" else "0 of 2 calls at once"
    assert wanted in answer["held_by"]
    assert "suimon limits show crm" in answer["ends"]


def test_no_code_names_the_workers_that_lack_it(lab: Lab) -> None:
    lab.pipeline("p")
    worker = lab.worker(name="old")
    row = lab.claim_run(worker, lab.submit("p"))
    back = lab.batch(worker, [])
    back.held_back = [(row.id, row.claim_no, "no_code:m:f")]
    batches.execute(lab.conn, back)
    answer = told(lab, row.id, "no_code:m:f")
    assert "(old)" in answer["held_by"]
    assert "the function m:f" in answer["text"]


@pytest.mark.parametrize("what", ["pipeline:p", "pool:default"])
def test_a_pause_says_who_paused_it_and_since_when(lab: Lab, what: str) -> None:
    lab.pipeline("p")
    run = lab.submit("p")
    made = pause.pause(lab.conn, what, "mia", "the cards are being changed")
    answer = told(lab, run, f"paused:{what}")
    assert (answer["held_by"], answer["since"]) == ("mia", made["at"])
    assert f"suimon resume {what.replace(':', ' ')}" in answer["ends"]


def test_a_lane_says_who_is_in_it(lab: Lab) -> None:
    lab.pipeline("p", concurrency=1)
    lab.worker()
    first, _, third = (lab.submit("p") for _ in range(3))
    answer = told(lab, third, "lane")
    assert answer["text"].startswith('1 run waits before it in lane "pipeline:p"')
    assert answer["held_by"] == f"{first} (queued)"


def test_a_lane_behind_a_failure_says_which_run_and_since_it_failed(lab: Lab) -> None:
    lab.pipeline("p", concurrency=1, onFailure="hold")
    worker = lab.worker()
    failed, behind = lab.submit("p"), lab.submit("p")
    lab.end(worker, lab.claim(worker)[0], "failed")
    answer = told(lab, behind, f"lane_held:{failed}")
    assert answer["since"] == read.as_json(read.run(lab.conn, failed).finished_at)
    assert f"suimon runs retry {failed}" in answer["ends"]


def test_no_worker_says_since_when_there_is_none(lab: Lab) -> None:
    lab.pipeline("p")
    run = lab.submit("p")
    answer = told(lab, run, "no_worker:default")
    assert answer["held_by"] == "nobody"
    lab.sql("update suimon.workers set left_at = clock_timestamp()")
    lab.kill(lab.worker())
    assert "its last worker was heard at" in told(lab, run, "no_worker:default")["held_by"]


def test_no_slot_says_whose_slots_are_busy_or_that_the_cap_is_full(lab: Lab) -> None:
    lab.pipeline("p")
    worker = lab.worker(name="w7")
    lab.submit_many("p", 2)
    run = lab.submit("p")
    assert "w7 (2 slots)" in told(lab, run, "no_slot:default")["held_by"]
    lab.claim(worker, 2)
    pools.set_cap(lab.conn, "default", 2, actor="ann")
    answer = told(lab, run, "no_slot:default")
    assert answer["held_by"] == "the cap of default, 2 of 2 runs at once"
    assert "suimon pools set-cap default" in answer["ends"]
    assert (answer["cap"], answer["held"]) == (2, 2)


def test_a_quota_a_full_store_and_one_that_does_not_answer(lab: Lab) -> None:
    lab.pipeline("p", SPAWN_GRAPH, concurrency="unlimited")
    worker = lab.worker()
    parent = lab.parent(worker, "p")
    storage.marks(lab, high_bytes=10 * storage.MB)
    storage.fill(lab, 9_200_000)
    storage.park(lab, parent, storage.refused(lab, parent, 0, 1, ahead=2 * storage.MB))
    answer = told(lab, parent.id, "storage")
    assert answer["text"].startswith("storage pressure: 92 % of 10 MB, next try ")
    assert (answer["held_by"], answer["half_stored"]) == (
        'the marks of the store (the fan-out "kids")', False,
    )  # fmt: skip

    row = lab.claim_run(worker, lab.submit("p", {"items": []}))
    _later(lab, worker, row, "unreadable")
    assert told(lab, row.id, "unreadable")["held_by"] == "that store"

    quotas.change(lab.conn, "all", {"per_day": 3}, actor="mia")
    row = lab.claim_run(worker, lab.submit("p", {"items": []}))
    on = wait.On(quota="all", in_s=3600.0)
    assert wait.park(lab.conn, _holder(lab, row, worker), [on], grace_s=1.0)[0]
    answer = told(lab, row.id, "quota:all")
    assert "3 of 3 runs a day are used or reserved, it renews at " in answer["held_by"]
    assert "suimon quotas set all" in answer["ends"]


def test_every_reason_of_the_list_has_its_test_here() -> None:
    """`pruning` is of runs that have ended: nobody asks why those do not run."""
    text = Path(__file__).read_text(encoding="utf-8")
    asked = re.findall(r'told\(lab, .*?, f?"(\w+|\{word\}|\{kind\})', text)
    named = {*asked, "limit", "held", "signal", "approval", "pruning"}
    missing = [word for word in reasons.REASONS if word not in named]
    assert missing == []


def test_a_run_that_was_put_back_waits_since_then(lab: Lab) -> None:
    """Not since it was created: it has run in between."""
    lab.pipeline("p")
    worker = lab.worker()
    row = lab.claim_run(worker, lab.submit("p"))
    lab.sql("update suimon.runs set created_at = created_at - interval '1 day'")
    lab.end(worker, [], want=0)
    made = lab.batch(worker, [])
    made.released = [(row.id, row.claim_no)]
    batches.execute(lab.conn, made)
    since = datetime.fromisoformat(told(lab, row.id, "no_slot:default")["since"])
    assert lab.one("select clock_timestamp() - %s < interval '1 hour'", since)


def test_counts_by_reason_name_no_run(lab: Lab) -> None:
    """What the metrics are made of: a word and a name that people gave."""
    lab.pipeline("p", concurrency=1, onFailure="hold")
    worker = lab.worker()
    lab.submit_many("p", 3)
    lab.end(worker, lab.claim(worker)[0], "failed")
    found = health.overall(lab.conn)["held_by_reason"]
    assert found == [{"word": "lane_held", "name": "", "runs": 2}]


def test_a_page_goes_on_below_the_last_of_the_page_before(lab: Lab) -> None:
    """Newest first, children too, of one pipeline if asked."""
    lab.pipeline("p", SPAWN_GRAPH)
    lab.pipeline("q")
    lab.fan_out(lab.worker("other"), "p", 5)
    lab.submit("q")
    first = by_reason.runs(lab.conn, "no_worker", limit=3)
    rest = by_reason.runs(lab.conn, "no_worker", before=first[-1]["id"])
    ids = [one["id"] for one in (*first, *rest)]
    assert (len(ids), sorted(ids, reverse=True)) == (6, ids)
    assert len(by_reason.runs(lab.conn, "no_worker", pipeline="q")) == 1
    with pytest.raises(InputRefused, match="no reason"):
        by_reason.runs(lab.conn, "limt:crm")
