"""What operators do to single runs: a new run, a lane let go, another priority; with its record."""

from __future__ import annotations

from typing import Any

import pytest
from support.contents import read_payload
from support.lab import SPAWN_GRAPH, TASK_GRAPH, Lab

from suimon.errors import Conflict, InputRefused, InvalidJson, RunNotFound
from suimon.run import audit, operate, read, submit

NOBODY = "00000000-0000-7000-8000-000000000000"


def records(lab: Lab, **where: Any) -> list[tuple[str, str, str, Any]]:
    return [
        (r["actor"], r["action"], r["target"], r["detail"]) for r in audit.listed(lab.conn, **where)
    ]


def ended(lab: Lab, pipeline: str, status: str = "failed", given: Any = None) -> str:
    worker = lab.worker()
    run = lab.submit(pipeline, given)
    lab.end(worker, lab.claim_run(worker, run), status)
    return run


# ------------------------------------------------------------------------------- rerun


def test_a_rerun_is_a_new_run_of_the_same_input(lab: Lab) -> None:
    """The old one stays as it is; the record links both."""
    lab.pipeline("p")
    old = ended(lab, "p", given={"n": 7})
    new = operate.rerun(lab.conn, old, actor="ada", why="fixed the source")
    assert new != old
    assert lab.status(old) == "failed"
    found = lab.sql(
        "select status::text, input, root_id::text, parent_id from suimon.runs where id = %s", new
    )
    assert found == [("queued", {"n": 7}, new, None)]
    detail = {
        "why": "fixed the source",
        "of": old,
        "new": new,
        "was": "failed",
        "same_graph": False,
    }
    assert records(lab, target=new) == [("ada", "rerun", new, detail)]
    assert records(lab, target=old) == [("ada", "rerun", old, detail)]


def test_a_rerun_of_an_input_with_large_and_small_floats(lab: Lab) -> None:
    """jsonb writes 1e22 out as an integer of 23 digits; it was a float and is one."""
    lab.pipeline("p")
    given = {"a": [1e22, 1.7976931348623157e308, 5e-324, 0.1]}
    operate.rerun(lab.conn, ended(lab, "p", given=given), actor="ada")
    assert lab.one("select (count(*), count(distinct input))::text from suimon.runs") == "(2,1)"


def test_a_rerun_of_a_large_input(lab: Lab) -> None:
    """It comes from the payloads and goes there."""
    lab.pipeline("p")
    old = ended(lab, "p", given={"text": "x" * 20_000})
    new = operate.rerun(lab.conn, old, actor="ada")
    assert read_payload(lab.conn, new, "input") == read_payload(lab.conn, old, "input")
    assert lab.one("select refs from suimon.contents") == 2


def test_a_rerun_takes_no_key(lab: Lab) -> None:
    """The key stays the old run's."""
    lab.pipeline("p")
    old = lab.submit("p", key="k")
    new = operate.rerun(lab.conn, old, actor="ada")
    assert lab.one("select idempotency_key from suimon.runs where id = %s", new) is None
    assert submit.submit(lab.conn, "p", [submit.Request(b"{}", "k")])[0].id == old


def test_a_rerun_gets_todays_graph_or_the_old_one(lab: Lab) -> None:
    """With the same graph its deadline is that graph's too."""
    lab.pipeline("p", deadline="1h")
    old = ended(lab, "p")
    graph = lab.one("select graph_id from suimon.runs where id = %s", old)
    lab.pipeline("p", {"t": TASK_GRAPH["t"], "u": TASK_GRAPH["t"]})
    today, same = (
        operate.rerun(lab.conn, old, actor="ada", same_graph=same) for same in (False, True)
    )
    found = dict(
        lab.sql("select id::text, (graph_id, deadline_at is not null)::text from suimon.runs")
    )
    assert found[today] == f"({graph + 1},f)"
    assert found[same] == f"({graph},t)"


def test_what_is_not_rerun(lab: Lab) -> None:
    """A child (its parent is named), and what does not exist."""
    lab.pipeline("trees", SPAWN_GRAPH)
    parent = lab.fan_out(lab.worker(), "trees", 1)
    with pytest.raises(Conflict, match="is a child of run") as caught:
        operate.rerun(lab.conn, parent.child_id(0), actor="ada")
    assert caught.value.run_id == parent.id
    with pytest.raises(RunNotFound):
        operate.rerun(lab.conn, NOBODY, actor="ada")


def test_cancel_of_a_failed_run_opens_its_lane_too(lab: Lab) -> None:
    lab.pipeline("p", concurrency=1, onFailure="hold")
    run = ended(lab, "p")
    behind = lab.submit("p")
    asked = operate.cancel(lab.conn, [run], actor="ada")
    assert (asked.asked, asked.over) == (1, 0)
    assert lab.one("select admitted from suimon.runs where id = %s", behind)


def test_cancel_is_recorded(lab: Lab) -> None:
    lab.pipeline("p")
    runs = [lab.submit("p") for _ in range(2)]
    operate.cancel(lab.conn, runs, actor="ada", why="not today")
    assert sorted((a, b, c) for a, b, c, _ in records(lab)) == [
        ("ada", "cancel", r) for r in sorted(runs)
    ]
    assert (
        lab.one("select error ->> 'message' from suimon.runs where id = %s", runs[0]) == "not today"
    )


# ------------------------------------------------------------------------------- priority


def test_priority_of_a_queued_run(lab: Lab) -> None:
    """It is claimed next; its rank is the head of that priority."""
    lab.pipeline("p")
    runs = lab.submit_many("p", 5)
    moved = operate.set_priority(lab.conn, runs[3], 0, actor="ada")
    assert (moved.runs, moved.queued) == (1, 1)
    assert [row.id for row in lab.claim(lab.worker())] == [runs[3]]
    assert records(lab)[0][:3] == ("ada", "priority", runs[3])
    with pytest.raises(InputRefused):
        operate.set_priority(lab.conn, runs[0], 4, actor="ada")


def test_priority_of_a_tree_keeps_its_order_and_stays_a_flow(lab: Lab) -> None:
    """All unfinished children move, in their order; a single run that comes later goes second, not
    behind all of them.
    """
    lab.pipeline("trees", SPAWN_GRAPH)
    lab.pipeline("urgent", priority=0)
    worker = lab.worker()
    parent = lab.fan_out(worker, "trees", 2500)
    lab.end(worker, lab.claim(worker))
    moved = operate.set_priority(lab.conn, parent.id, 0, actor="ada")
    assert (moved.runs, moved.queued) == (2500, 2499)
    ranks = [r for (r,) in lab.sql(
        "select rank from suimon.runs where fanout_id = %s and status = 'queued' order by position",
        parent.fanout.id)]  # fmt: skip
    assert ranks == sorted(set(ranks))
    lab.sql("update suimon.pools set head = %s where name = 'default' and priority = 0", ranks[0])
    single = lab.submit("urgent")
    rows = [row.id for row in lab.claim(worker, 3)]
    assert single in rows
    assert lab.one("select last_rank from suimon.flows where root_id = %s", parent.id) >= ranks[-1]


def test_priority_of_what_is_not_admitted(lab: Lab) -> None:
    """It keeps its place in its lane, and gets its rank when it is let in."""
    lab.pipeline("p", concurrency=1)
    first, second = (lab.submit("p") for _ in range(2))
    moved = operate.set_priority(lab.conn, second, 1, actor="ada")
    assert (moved.runs, moved.queued) == (1, 0)
    worker = lab.worker()
    lab.end(worker, lab.claim_run(worker, first), want=0)
    found = lab.sql("select admitted, priority from suimon.runs where id = %s", second)
    assert found == [(True, 1)]


def test_priority_of_what_is_over(lab: Lab) -> None:
    lab.pipeline("p")
    run = ended(lab, "p", "succeeded")
    with pytest.raises(Conflict, match="is over"):
        operate.set_priority(lab.conn, run, 0, actor="ada")


# ------------------------------------------------------------------------------- the record


@pytest.mark.parametrize("name", ["", "  ", "x" * 201, "a\nb", "a\x00b"])
def test_a_name_that_cannot_be_kept(lab: Lab, name: str) -> None:
    """Refused before anything is done."""
    lab.pipeline("p")
    run = lab.submit("p")
    with pytest.raises(InputRefused):
        operate.cancel(lab.conn, [run], actor=name)
    with pytest.raises(InputRefused):
        operate.rerun(lab.conn, run, actor=name)
    assert lab.statuses() == {"queued": 1}


def test_the_record_by_page(lab: Lab) -> None:
    lab.pipeline("p")
    for n in range(5):
        audit.note(lab.conn, "tried", [str(n)], actor="ada" if n % 2 else "bob")
    first = audit.listed(lab.conn, limit=2)
    assert [one["target"] for one in first] == ["4", "3"]
    assert [one["target"] for one in audit.listed(lab.conn, before=first[-1]["id"])] == [
        "2",
        "1",
        "0",
    ]
    assert [one["target"] for one in audit.listed(lab.conn, actor="ada")] == ["3", "1"]
    assert audit.listed(lab.conn, action="other") == []


def test_an_input_that_nothing_can_read_is_shown_as_text_and_not_started_again(lab: Lab) -> None:
    lab.pipeline("p")
    run = lab.one("select suimon.submit('p', '{\"n\": 1e400}')::text")
    shown = read.run(lab.conn, run).input
    assert isinstance(shown, str)
    assert shown.startswith('{"n": 1000')
    with pytest.raises(InvalidJson):
        operate.rerun(lab.conn, run, actor="me")
