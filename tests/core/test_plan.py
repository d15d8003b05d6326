"""The planner: one run's next action, from nothing but the graph and the recorded steps."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suimon.core import shape
from suimon.core.plan import (
    Execute,
    Fail,
    Finish,
    ListSource,
    Merge,
    Plan,
    ReadSource,
    Record,
    Spawn,
    StepRecord,
    TaskSource,
    specials,
)

RUN = {"id": "r1", "pipeline": "p", "created_at": "2024-01-01T00:00:00Z"}


def graph(output: Any = None, /, **vertices: Any) -> dict[str, Any]:
    made = {"suimon": 1, "pipeline": "p", "vertices": vertices}
    return made if output is None else {**made, "output": output}


def ref(path: str) -> dict[str, str]:
    return {"$ref": path}


def call(name: str = "m:f", after: Any = (), **inputs: Any) -> dict[str, Any]:
    return {"type": "TASK", "after": list(after), "inputs": inputs, "config": {"task": name}}


def spawn(items: Any, shared: Any = None, **config: Any) -> dict[str, Any]:
    inputs = {"items": items, **({"shared": shared} if shared else {})}
    return {"type": "SPAWNER", "inputs": inputs, "config": {"task": "m:child", **config}}


def read(path: Any, **config: Any) -> dict[str, Any]:
    return {"type": "READ", "inputs": {"path": path}, "config": config}


def merge(*after: str, **config: Any) -> dict[str, Any]:
    return {"type": "MERGE", "after": list(after), "config": config}


def done(output: Any = None) -> StepRecord:
    return StepRecord("succeeded", output)


ORDERS = graph(
    rows=read(ref("input.path"), encoding="auto"),
    orders=spawn(ref("rows"), {"tenant": "acme"}, itemKey="id"),
    outcome=merge("orders", failFast=True),
    report=call("m:report", outcome=ref("outcome")),
)


def test_a_deferred_spawner_is_tried_again_and_keeps_nothing_else_waiting() -> None:
    """It is the next action when the run is claimed; once looked at, all others come first."""
    both = graph(kids=spawn([1]), outcome=merge("kids"), other=call())
    steps = {"kids": StepRecord("deferred")}
    plan = Plan(both)

    def ask(**more: Any) -> Any:
        return plan.next(steps, run_input=None, run=RUN, **more)

    assert isinstance(ask(), Spawn)
    assert isinstance(ask(waiting=("kids",)), Execute)
    steps["other"] = done()
    again = ask(waiting=("kids",))
    assert isinstance(again, Spawn)
    assert again.vertex == "kids"


def test_a_file_fans_out_merges_and_is_reported() -> None:
    """The demo's shape, step by step; the READ has no step of its own."""
    plan = Plan(ORDERS)
    assert plan.steps() == ["orders", "outcome", "report"]
    steps: dict[str, StepRecord] = {}

    action = plan.next(steps, run_input={"path": "a.csv"}, run=RUN)
    assert isinstance(action, Spawn)
    assert action.vertex == "orders"
    assert action.source == ReadSource("a.csv", None, {"encoding": "auto"})
    assert action.shared == {"tenant": "acme"}

    steps["orders"] = done()
    action = plan.next(steps, run_input={"path": "a.csv"}, run=RUN)
    assert action == Merge("outcome", "orders", {"failFast": True})

    counts = {"counts": {"total": 2}}
    steps["outcome"] = done(counts)
    action = plan.next(steps, run_input={"path": "a.csv"}, run=RUN)
    assert isinstance(action, Execute)
    assert (action.task, action.inputs) == ("m:report", {"outcome": counts})
    assert action.specials == [[["outcome"], "merge"]]

    steps["report"] = done({"ok": 1})
    assert plan.next(steps, run_input={}, run=RUN) == Finish({"ok": 1})


def test_a_step_that_is_open_is_asked_for_again() -> None:
    """Begun, deferred or waiting: whoever claims the run next goes on with it."""
    action = Plan(ORDERS).next({"orders": StepRecord("open")}, run_input={"path": "a.csv"}, run=RUN)
    assert isinstance(action, Spawn)


@pytest.mark.parametrize("status", ["failed", "timed_out", "cancelled"])
def test_a_step_that_ended_badly_ends_the_run_the_same_way(status: Any) -> None:
    error = {"type": "Boom", "message": "no"}
    action = Plan(ORDERS).next({"orders": StepRecord(status, None, error)}, run_input={}, run=RUN)
    assert action == Fail(error, "orders", status)


def test_a_generator_is_streamed_in_the_spawners_slot() -> None:
    shaped = graph(
        pages=call("m:pages", shop=ref("input.shop")),
        each=spawn(ref("pages")),
    )
    plan = Plan(shaped, {"m:pages"})
    assert plan.steps() == ["each", "each.merge"]
    action = plan.next({}, run_input={"shop": "x"}, run=RUN)
    assert isinstance(action, Spawn)
    assert action.source == TaskSource("m:pages", {"shop": "x"}, {"task": "m:pages"}, [])
    # the same graph with a function that returns a list has a step for it
    assert Plan(shaped).steps() == ["pages", "each", "each.merge"]


def test_what_a_folded_vertex_needs_comes_before_the_spawner() -> None:
    shaped = graph(
        zone=call("m:zone"),
        pages=call("m:pages", zone=ref("zone")),
        each=spawn(ref("pages")),
    )
    assert Plan(shaped, {"m:pages"}).steps() == ["zone", "each", "each.merge"]


def test_a_read_used_as_a_value_is_a_step_with_a_handle() -> None:
    shaped = graph(rows=read("a.csv", format="csv"), sum=call(rows=ref("rows")))
    plan = Plan(shaped)
    handle = {"path": "a.csv", "format": "csv", "options": {}, "trusted": True}
    assert plan.next({}, run_input=None, run=RUN) == Record("rows", handle)
    action = plan.next({"rows": done(handle)}, run_input=None, run=RUN)
    assert isinstance(action, Execute)
    assert action.specials == [[["rows"], "read"]]


def test_a_read_of_the_file_that_started_the_run_is_of_that_version() -> None:
    """Only of that path, and only when a FILE trigger started it; such a path is not trusted."""
    shaped = graph(
        rows=read(ref("input.path")), each=spawn(ref("rows")), out=merge("each"),
    )  # fmt: skip
    version = "file:" + "0a" * 32

    def source(given: dict[str, Any]) -> ReadSource:
        action = Plan(shaped).next({}, run_input=given, run=RUN)
        assert isinstance(action, Spawn)
        assert isinstance(action.source, ReadSource)
        return action.source

    started = source({"path": "/in/a.csv", "event_id": version})
    assert (started.version, started.trusted) == (version, False)
    assert source({"path": "/in/a.csv", "event_id": "e1"}).version is None
    assert source({"path": "/in/a.csv"}).version is None
    fixed = Plan(graph(rows=read("b.csv"), each=spawn(ref("rows")), out=merge("each")))
    given = {"path": "/in/a.csv", "event_id": version}
    action = fixed.next({}, run_input=given, run=RUN)
    assert isinstance(action, Spawn)
    assert action.source == ReadSource("b.csv", None, {}, trusted=True)


def test_a_read_used_both_ways_is_a_step_and_a_source() -> None:
    shaped = graph(
        rows=read("a.csv"), each=spawn(ref("rows")), out=merge("each"), sum=call(rows=ref("rows"))
    )
    plan = Plan(shaped)
    assert plan.steps()[0] == "rows"
    action = plan.next({"rows": done({})}, run_input=None, run=RUN)
    assert isinstance(action, Spawn)
    assert isinstance(action.source, ReadSource)


def test_a_spawner_without_a_merge_is_merged_strictly_at_the_end() -> None:
    shaped = graph(each=spawn(ref("input.items")), last=call())
    plan = Plan(shaped)
    assert plan.steps() == ["each", "last", "each.merge"]
    steps = {"each": done(), "last": done(1)}
    assert plan.next(steps, run_input={"items": []}, run=RUN) == Merge("each.merge", "each", {})
    steps["each.merge"] = done({"counts": {}})
    assert plan.next(steps, run_input={"items": []}, run=RUN) == Finish(
        {"each": {"counts": {}}, "last": 1}
    )


def test_a_merge_without_after_takes_the_only_spawner_left() -> None:
    """The MERGE object of the second seed is a vertex as it stands."""
    seed = {"type": "MERGE", "config": {"failFast": True}}
    assert shape.merges(graph(a=spawn([1]), outcome=seed)) == {"outcome": "a"}
    two = graph(a=spawn([1]), b=spawn([1]), m=merge("a"), outcome=seed)
    assert shape.merges(two) == {"m": "a", "outcome": "b"}


def test_fan_outs_that_do_not_need_each_other_run_together() -> None:
    """Both spawners are read before the first merge parks the run."""
    shaped = graph(a=spawn([1]), a_done=merge("a"), b=spawn([1]), b_done=merge("b"))
    assert Plan(shaped).steps() == ["a", "b", "a_done", "b_done"]


@pytest.mark.parametrize(
    ("given_input", "source"),
    [({"items": []}, ListSource([])), ({"items": [1]}, ListSource([1]))],
)
def test_c50_empty_and_single_lists_are_lists(given_input: Any, source: ListSource) -> None:
    action = Plan(graph(each=spawn(ref("input.items")))).next({}, run_input=given_input, run=RUN)
    assert isinstance(action, Spawn)
    assert action.source == source


@pytest.mark.parametrize("given_input", [{"items": None}, {}, {"items": {"a": 1}}, None])
def test_c50_null_or_missing_items_fail_the_spawner_clearly(given_input: Any) -> None:
    action = Plan(graph(each=spawn(ref("input.items")))).next({}, run_input=given_input, run=RUN)
    assert isinstance(action, Fail)
    assert action.vertex == "each"
    assert "items" in action.error["message"]


def test_a_reference_that_leads_nowhere_says_what_exists() -> None:
    shaped = graph(a=call(), b=call(x=ref("a.totl")))
    action = Plan(shaped).next({"a": done({"total": 1})}, run_input=None, run=RUN)
    assert isinstance(action, Fail)
    assert action.vertex == "b"
    assert 'vertex "b", inputs.x' in action.error["message"]
    assert action.error["hint"] == 'did you mean "total"?'


def test_the_output_may_be_built_of_references() -> None:
    shaped = graph({"n": ref("a.n"), "run": ref("run.id"), "k": 1}, a=call())
    action = Plan(shaped).next({"a": done({"n": 7})}, run_input=None, run=RUN)
    assert action == Finish({"n": 7, "run": "r1", "k": 1})


def test_specials_name_places_inside_values_and_in_shared() -> None:
    shaped = graph(
        each=spawn([1]),
        out=merge("each"),
        last=call(deep={"list": [1, ref("out")]}, n=ref("out.counts")),
        more=spawn([2], {"earlier": ref("out")}),
    )
    assert specials(shaped, "last") == [[["deep", "list", 1], "merge"]]
    assert specials(shaped, "more") == [[["earlier"], "merge"]]


def test_a_remerge_forgets_the_merge_and_all_that_follows() -> None:
    shaped = graph(
        first=call(),
        each=spawn(ref("first")),
        out=merge("each"),
        report=call(o=ref("out")),
        mail=call(after=["report"]),
        other=call(),
    )
    assert shape.affected_by_remerge(shaped, "each") == {"out", "report", "mail"}
    assert shape.affected_by_remerge(graph(each=spawn([1])), "each") == {"each.merge"}


def test_only_one_task_and_nothing_else_is_single() -> None:
    assert shape.is_single(graph(a=call()))
    assert not shape.is_single(graph(a=call(), b=call()))
    assert not shape.is_single(graph(a=spawn([1])))


@given(st.data())
def test_every_run_ends_and_nothing_runs_before_what_it_needs(data: st.DataObject) -> None:
    """Any graph without cycles is walked to its end, each step once, in dependency order."""
    names = [f"v{index:02}" for index in range(data.draw(st.integers(1, 12)))]
    order = data.draw(st.permutations(names))
    vertices = {
        name: call(**{other: ref(other) for other in data.draw(st.sets(st.sampled_from(names)))
                      if order.index(other) < order.index(name)})
        for name in names
    }  # fmt: skip
    plan = Plan(graph(**vertices))
    steps: dict[str, StepRecord] = {}
    for _ in names:
        action = plan.next(steps, run_input=None, run=RUN)
        assert isinstance(action, Execute)
        assert set(vertices[action.vertex]["inputs"]) <= set(steps)
        steps[action.vertex] = done(action.vertex)
    assert isinstance(plan.next(steps, run_input=None, run=RUN), Finish)


def test_cycles_are_named_as_chains() -> None:
    shaped = graph(
        a=call(x=ref("c")), b=call(x=ref("a")), c=call(x=ref("b")), hangs=call(x=ref("a"))
    )
    assert shape.cycles(shaped) == [["a", "c", "b", "a"]]
    assert shape.cycles(ORDERS) == []
