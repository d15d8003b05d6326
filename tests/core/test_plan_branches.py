"""Conditions, branches for failures and waiting steps: what a run does next, and what it skips."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suimon.core import shape
from suimon.core.plan import (
    NOT_REQUIRED,
    Approve,
    Execute,
    Fail,
    Finish,
    Merge,
    NextAction,
    Plan,
    Record,
    Skip,
    Spawn,
    Start,
    StepRecord,
    Wait,
)

RUN = {"id": "r1", "pipeline": "p", "created_at": "2024-01-01T00:00:00Z"}


def graph(output: Any = None, /, **vertices: Any) -> dict[str, Any]:
    made = {"suimon": 1, "pipeline": "p", "vertices": vertices}
    return made if output is None else {**made, "output": output}


def ref(path: str) -> dict[str, str]:
    return {"$ref": path}


def call(name: str = "m:f", /, *, after: Any = (), **parts: Any) -> dict[str, Any]:
    inputs = {key: parts.pop(key) for key in list(parts) if key not in ("when", "unless", "runIf")}
    made = {"type": "TASK", "after": list(after), "inputs": inputs, "config": {"task": name}}
    return {**made, **parts}


def vertex(kind: str, /, *, inputs: Any = None, **parts: Any) -> dict[str, Any]:
    special = ("when", "unless", "runIf", "after")
    outside = {key: parts.pop(key) for key in special if key in parts}
    return {"type": kind, "inputs": inputs or {}, "config": parts, **outside}


def done(output: Any = None) -> StepRecord:
    return StepRecord("succeeded", output)


SKIPPED = StepRecord("skipped")
OPEN = StepRecord("open")


def failed(message: str = "no") -> StepRecord:
    return StepRecord("failed", None, {"type": "Boom", "message": message})


def after(shaped: Any, value: Any = None, /, **steps: StepRecord) -> NextAction:
    """The next action once these steps are recorded."""
    return Plan(shaped).next(steps, run_input=value, run=RUN)


def started(action: NextAction) -> str:
    assert isinstance(action, Execute)
    return action.vertex


# --------------------------------------------------------------------------- conditions

NIGHTLY = graph(
    judged=call("m:judge"),
    alarm=call("m:notify", late=ref("judged.late"), when=ref("judged.over")),
    calm=call("m:notify", late=ref("judged.late"), unless=ref("judged.over")),
    log=call("m:log", what=ref("alarm.id")),
    mail=call("m:mail", after=["alarm", "calm"]),
)


@pytest.mark.parametrize(
    ("over", "runs", "skipped"), [(True, "alarm", ("calm",)), (False, "calm", ("alarm", "log"))]
)
def test_a_false_condition_skips_a_vertex_and_all_that_refers_to_it(
    over: bool, runs: str, skipped: tuple[str, ...]
) -> None:
    """Told in one action, before anything else starts; `after` alone does not skip."""
    judged = done({"over": over, "late": 3})
    assert after(NIGHTLY, judged=judged) == Skip(skipped)
    steps = {"judged": judged, **dict.fromkeys(skipped, SKIPPED)}
    assert started(after(NIGHTLY, **steps)) == runs
    steps |= {name: done({"id": 1}) for name in ("alarm", "calm", "log") if name not in steps}
    assert started(after(NIGHTLY, **steps)) == "mail"


@pytest.mark.parametrize("value", [None, 1, "true", {}, []])
def test_a_condition_that_is_no_bool_fails_its_step(value: Any) -> None:
    action = after(NIGHTLY, judged=done({"over": value, "late": 3}))
    assert isinstance(action, Fail)
    assert action.vertex == "alarm"
    assert "is neither true nor false" in action.error["message"]


def test_both_conditions_must_agree() -> None:
    shaped = graph(a=call(when=ref("input.yes"), unless=ref("input.no")), b=call())
    assert started(after(shaped, {"yes": True, "no": False})) == "a"
    assert after(shaped, {"yes": True, "no": True}) == Skip(("a",))
    assert after(shaped, {"yes": False, "no": False}) == Skip(("a",))


def test_a_skipped_spawner_skips_its_merge_written_or_not() -> None:
    each = {**vertex("SPAWNER", inputs={"items": [1]}, task="m:f"), "when": ref("input.go")}
    written = graph(
        {"n": ref("outcome.counts.total"), "x": 1},
        each=each,
        outcome=vertex("MERGE", after=["each"]),
    )
    assert after(written, {"go": False}) == Skip(("each", "outcome"))
    skipped = {"each": SKIPPED, "outcome": SKIPPED}
    assert after(written, {"go": False}, **skipped) == Finish({"n": None, "x": 1})
    bare = graph(each=each)
    assert after(bare, {"go": False}) == Skip(("each", "each.merge"))
    assert after(bare, {"go": False}, **{"each": SKIPPED, "each.merge": SKIPPED}) == Finish(None)


def test_a_conditional_read_is_a_step_of_its_own() -> None:
    shaped = graph(
        rows={**vertex("READ", inputs={"path": "a.csv"}), "when": ref("input.go")},
        each=vertex("SPAWNER", inputs={"items": ref("rows")}, task="m:f"),
    )
    assert after(shaped, {"go": False}) == Skip(("rows", "each", "each.merge"))
    assert isinstance(after(shaped, {"go": True}), Record)


def test_what_a_run_gives_back_is_null_where_a_vertex_was_skipped() -> None:
    """One or several last vertices, named or not: the shape of the output does not change."""
    one = graph(ref("b.deep.value"), a=call(), b=call(when=ref("a")))
    assert after(one, a=StepRecord("succeeded", output=False), b=SKIPPED) == Finish(None)
    two = graph(a=call(), b=call(when=ref("a")), c=call(unless=ref("a")))
    assert after(two, a=StepRecord("succeeded", output=True), b=done(1), c=SKIPPED) == Finish(
        {"b": 1, "c": None}
    )


def test_only_an_unconditional_task_of_the_pipelines_pool_is_single() -> None:
    """Such a run writes no step row; a skipped step, or one elsewhere, needs one."""
    assert shape.is_single(graph(a=call()))
    assert not shape.is_single(graph(a=call(when=ref("input.go"))))
    assert not shape.is_single(graph(a=vertex("TASK", task="m:f", pool="gpu")))
    assert shape.is_single({**graph(a=vertex("TASK", task="m:f", pool="gpu")), "pool": "gpu"})
    assert not shape.is_single(graph(a=vertex("WAIT", timer="1s")))


# --------------------------------------------------------------------------- failures

REFUND = graph(
    ref("paid"),
    checked=call("m:check"),
    paid=call("m:pay", order=ref("checked.order")),
    alarm=call("m:alarm", after=["paid"], runIf="failed"),
    tidy=call("m:tidy", after=["paid"], runIf="ended"),
    thanks=call("m:thanks", after=["tidy"]),
)


def test_branches_run_after_a_failure_and_the_run_still_fails() -> None:
    steps = {"checked": done({"order": 1}), "paid": failed("broke")}
    assert started(after(REFUND, **steps)) == "alarm"
    steps["alarm"] = done()
    assert started(after(REFUND, **steps)) == "tidy"
    steps["tidy"] = done()
    action = after(REFUND, **steps)
    assert action == Fail({"type": "Boom", "message": "broke"}, "paid", "failed")


def test_without_a_failure_the_error_branch_is_skipped_and_the_other_runs() -> None:
    steps = {"checked": done({"order": 1}), "paid": done({"ok": 1})}
    assert after(REFUND, **steps) == Skip(("alarm",))
    steps["alarm"] = SKIPPED
    assert started(after(REFUND, **steps)) == "tidy"
    steps |= {"tidy": done(), "thanks": done()}
    assert after(REFUND, **steps) == Finish({"ok": 1})


def test_a_step_out_of_reach_because_one_before_it_failed_counts_as_failed() -> None:
    """The alarm on the last step hears of every failure on the way to it."""
    assert started(after(REFUND, checked=failed())) == "alarm"


def test_an_error_branch_does_not_hear_of_failures_beside_it() -> None:
    shaped = graph(
        a=call(), b=call(after=["a"]), other=call(), alarm=call(after=["b"], runIf="failed")
    )
    action = after(shaped, a=done(), other=failed("beside"))
    assert isinstance(action, Fail)
    assert action.vertex == "other"


def test_a_step_that_cannot_even_begin_runs_its_error_branch() -> None:
    """Its inputs lead nowhere: nothing is recorded for it, and the answer stays the same."""
    steps = {"checked": done({"ordr": 1})}
    assert started(after(REFUND, **steps)) == "alarm"
    assert started(after(REFUND, **steps, alarm=failed("alarm broke"))) == "tidy"
    action = after(REFUND, **steps, alarm=failed("alarm broke"), tidy=done())
    assert isinstance(action, Fail)
    assert action.vertex == "paid"
    assert "leads nowhere" in action.error["message"]


def test_a_branch_that_fails_does_not_hide_the_first_cause() -> None:
    steps = {"checked": done({"order": 1}), "paid": failed("broke"), "alarm": failed("no mail")}
    steps["tidy"] = failed("no broom")
    action = after(REFUND, **steps)
    assert isinstance(action, Fail)
    assert action.error["message"] == "broke"


def test_a_branch_for_every_end_that_fails_in_a_good_run_fails_it() -> None:
    steps = {"checked": done({"order": 1}), "paid": done(), "alarm": SKIPPED}
    action = after(REFUND, **steps, tidy=failed("no broom"))
    assert isinstance(action, Fail)
    assert action.error["message"] == "no broom"


def test_nothing_new_starts_after_a_failure() -> None:
    shaped = graph(a=call(), b=call(), c=call(after=["b"], runIf="ended"))
    assert started(after(shaped, a=failed())) == "c"  # b will not come any more
    assert isinstance(after(shaped, a=failed(), c=done()), Fail)


@pytest.mark.parametrize("status", ["failed", "timed_out", "cancelled"])
def test_every_bad_end_is_a_failure_to_a_branch(status: Any) -> None:
    steps = {"checked": done({"order": 1}), "paid": StepRecord(status)}
    assert started(after(REFUND, **steps)) == "alarm"
    action = after(REFUND, **steps, alarm=done(), tidy=done())
    assert isinstance(action, Fail)
    assert action.status == status


def test_children_of_an_error_branch_are_merged_before_the_run_fails() -> None:
    shaped = graph(
        a=call(),
        tell=vertex("SPAWNER", inputs={"items": [1]}, task="m:f", after=["a"], runIf="failed"),
        told=vertex("MERGE", after=["tell"]),
        more=vertex("SPAWNER", inputs={"items": [1]}, task="m:f", after=["a"], runIf="failed"),
    )
    steps = {"a": failed()}
    for name, kind in [("more", Spawn), ("tell", Spawn), ("told", Merge), ("more.merge", Merge)]:
        action = after(shaped, **steps)
        assert isinstance(action, kind)
        assert action.vertex == name
        steps[name] = done({"counts": {}})
    assert isinstance(after(shaped, **steps), Fail)
    good = {"a": done()}
    assert after(shaped, **good) == Skip(("more", "tell", "told", "more.merge"))


# --------------------------------------------------------------------------- waiting


def test_a_wait_says_what_it_waits_for() -> None:
    timer = graph(a=vertex("WAIT", timer="10m"))
    assert after(timer) == Wait("a", timer_s=600.0)
    signal = graph(a=vertex("WAIT", signal="paid", timeout="2d"))
    assert after(signal) == Wait("a", signal="paid", timeout_s=172_800.0)
    until = graph(a=vertex("WAIT", inputs={"until": ref("input.at")}))
    assert after(until, {"at": "2030-01-31T06:00:00+01:00"}) == Wait(
        "a", until="2030-01-31T05:00:00+00:00"
    )


@pytest.mark.parametrize("at", ["2030-01-31T06:00:00", "2030-01-31", "soon", 7, None, {}])
def test_an_instant_without_a_zone_is_refused(at: Any) -> None:
    action = after(graph(a=vertex("WAIT", inputs={"until": ref("input.at")})), {"at": at})
    assert isinstance(action, Fail)
    assert "is no instant" in action.error["message"]


def test_an_approval_shows_values_and_may_not_be_required() -> None:
    inputs = {"show": ref("input"), "required": ref("input.big")}
    shaped = graph(ok=vertex("APPROVAL", inputs=inputs, role="manager"))
    config = {"role": "manager"}
    assert after(shaped, {"big": True}) == Approve(
        "ok", {"big": True}, required=True, config=config
    )
    assert after(shaped, {"big": False}) == Approve(
        "ok", {"big": False}, required=False, config=config
    )
    assert NOT_REQUIRED["approved"] is True
    assert set(NOT_REQUIRED) == {"approved", "decision", "by", "at", "comment"}
    assert after(graph(ok=vertex("APPROVAL"))) == Approve("ok", None, required=True, config={})
    assert isinstance(after(shaped, {"big": "yes"}), Fail)


def test_a_start_hands_on_its_input() -> None:
    shaped = graph(b=vertex("START", inputs={"input": {"x": ref("input.x")}}, pipeline="q"))
    assert after(shaped, {"x": 1}) == Start("b", "q", {"x": 1}, wait=True, config={"pipeline": "q"})
    assert after(shaped, {"x": 1}, b=done({"total": 3})) == Finish({"total": 3})
    alone = graph(b=vertex("START", pipeline="q", wait=False))
    assert after(alone) == Start("b", "q", {}, wait=False, config={"pipeline": "q", "wait": False})


SIDE_BY_SIDE = graph(
    a=vertex("WAIT", timer="1m"),
    b=vertex("WAIT", timer="1m"),
    c=call(),
    d=call(after=["c"]),
    e=call(after=["a", "b"]),
)


def waits_for(action: NextAction) -> str:
    assert isinstance(action, Wait)
    return action.vertex


def test_what_parks_a_run_comes_last_and_what_may_be_over_first() -> None:
    assert started(after(SIDE_BY_SIDE)) == "c"
    assert started(after(SIDE_BY_SIDE, c=done())) == "d"
    steps = {"c": done(), "d": done()}
    assert waits_for(after(SIDE_BY_SIDE, **steps)) == "a"
    assert waits_for(after(SIDE_BY_SIDE, **steps, b=OPEN)) == "b"
    assert started(after(SIDE_BY_SIDE, **steps, a=done({}), b=done({}))) == "e"


def test_whoever_can_wait_for_several_things_is_told_of_all_of_them() -> None:
    """Two timers run beside each other: the second begins before the run waits for the first."""
    plan = Plan(SIDE_BY_SIDE)
    steps = {"c": done(), "d": done(), "a": OPEN}

    def then(*waiting: str) -> str:
        return waits_for(plan.next(steps, run_input=None, run=RUN, waiting=waiting))

    assert then() == "a"
    assert then("a") == "b"
    assert then("a", "b") in ("a", "b")  # nothing else can be done: park


# --------------------------------------------------------------------------- any graph


@given(st.data())
def test_every_run_ends_and_no_step_is_asked_for_twice(data: st.DataObject) -> None:
    """Any acyclic graph with conditions and branches, any outcome of its steps."""
    names = [f"v{index}" for index in range(data.draw(st.integers(1, 8)))]
    vertices: dict[str, Any] = {}
    for index, name in enumerate(names):
        earlier = names[:index]
        some = (
            st.lists(st.sampled_from(earlier), unique=True, max_size=2) if earlier else st.just([])
        )
        made = call(after=data.draw(some), **{f"x_{one}": ref(one) for one in data.draw(some)})
        if made["after"] and data.draw(st.booleans()):
            made["runIf"] = data.draw(st.sampled_from(["failed", "ended"]))
        if earlier and data.draw(st.integers(0, 3)) == 0:
            made["when"] = ref(data.draw(st.sampled_from(earlier)))
        vertices[name] = made
    plan = Plan(graph(**vertices))
    steps: dict[str, StepRecord] = {}
    any_failed = False
    for _ in range(2 * len(names) + 1):
        action = plan.next(steps, run_input=None, run=RUN)
        if isinstance(action, Skip):
            assert action.vertices
            assert not set(action.vertices) & set(steps)
            steps |= dict.fromkeys(action.vertices, SKIPPED)
        elif isinstance(action, Execute):
            assert action.vertex not in steps
            if any_failed:
                assert "runIf" in vertices[action.vertex]
            good = data.draw(st.booleans())
            any_failed |= not good
            steps[action.vertex] = done(data.draw(st.booleans())) if good else failed()
        else:
            assert isinstance(action, Fail if any_failed else Finish)
            assert any_failed or set(steps) == set(names)
            return
    pytest.fail("the run did not end")
