"""Pipelines and tasks together: targets, limits, waiting for oneself, signatures."""

from __future__ import annotations

from typing import Any

import pytest

from suimon.graph_set import Parameter, TaskInfo, check_tasks, check_together


def pipeline(name: str, *targets: str, limit: Any = None, **config: Any) -> dict[str, Any]:
    vertices = {
        f"s{index}": {
            "type": "SPAWNER",
            "inputs": {"items": [1]},
            "config": {"pipeline": target, **config},
        }
        for index, target in enumerate(targets)
    }
    head = {} if limit is None else {"concurrency": limit}
    return {"suimon": 1, "pipeline": name, **head, "vertices": vertices}


def told(*graphs: dict[str, Any]) -> str:
    return "\n".join(mistake.render() for mistake in check_together(graphs))


def test_targets_without_a_circle_are_fine() -> None:
    assert told(pipeline("a", "b", "c"), pipeline("b", "c"), pipeline("c")) == ""


def test_an_unknown_target_gets_a_suggestion() -> None:
    said = told(pipeline("a", "orderz"), pipeline("orders"))
    assert 'there is no pipeline "orderz"' in said
    assert 'did you mean "orders"?' in said


def test_a_target_that_is_broken_itself_is_not_called_unknown() -> None:
    assert check_together([pipeline("a", "b")], broken={"b"}) == []


def test_two_limits_are_refused() -> None:
    """The target's own limit always holds; the default of one is a limit, too."""
    said = told(pipeline("a", "b", concurrency=5), pipeline("b"))
    assert '"b" has its own limit of 1' in said
    assert told(pipeline("a", "b", concurrency=5), pipeline("b", limit="unlimited")) == ""
    assert told(pipeline("a", "b"), pipeline("b", limit=7)) == ""


@pytest.mark.parametrize("limit", [None, 3])
def test_a_pipeline_that_would_wait_for_its_own_place_is_refused_with_the_chain(
    limit: Any,
) -> None:
    graphs = [
        pipeline("a", "b", limit=limit),
        pipeline("b", "c", limit="unlimited"),
        pipeline("c", "a", limit="unlimited"),
    ]
    mistakes = check_together(graphs)
    assert [m.pipeline for m in mistakes] == ["a"]
    assert "a -> b -> c -> a" in mistakes[0].message
    assert "a -> a" in told(pipeline("a", "a", limit=limit))


def test_recursion_without_limits_is_allowed() -> None:
    assert told(pipeline("a", "a", limit="unlimited")) == ""


def start(name: str, target: str, given: Any = None, **config: Any) -> dict[str, Any]:
    inputs = {} if given is None else {"input": given}
    vertex = {"type": "START", "inputs": inputs, "config": {"pipeline": target, **config}}
    return {"suimon": 1, "pipeline": name, "vertices": {"go": vertex}}


def test_a_start_waits_for_its_child_while_it_holds_its_own_place() -> None:
    """Unless it does not wait: then the child simply comes after it."""
    said = told(start("a", "b"), start("b", "a"))
    assert "go.config.pipeline" in said
    assert "a -> b -> a" in said
    assert told(start("a", "a", wait=False)) == ""
    assert 'there is no pipeline "c"' in told(start("a", "c"))


def test_lanes_per_value_are_judged_when_there_is_a_value() -> None:
    per = {"limit": 3, "per": "customer"}
    assert told({**start("a", "a", {"customer": 1}), "concurrency": per}) == ""
    assert "own limit of 3" in told(pipeline("a", "b", concurrency=5), pipeline("b", limit=per))


def test_a_start_gives_what_the_other_pipeline_reads() -> None:
    vertex = {"type": "TASK", "inputs": {"x": {"$ref": "input.month"}}, "config": {"task": "m:f"}}
    target = {"suimon": 1, "pipeline": "b", "vertices": {"a": vertex}}
    assert told(start("a", "b", {"month": 1, "more": 2}), target) == ""
    assert told(start("a", "b", {"$ref": "input"}), target) == ""
    said = told(start("a", "b", {"mont": 1}), target)
    assert 'go.inputs.input.month: "b" reads "month" of its input, which is not given' in said
    assert 'did you mean "mont"?' in said
    assert 'reads "month"' in told(start("a", "b"), target)


def info(*params: str, generator: bool = False, rest: bool = False) -> TaskInfo:
    made = tuple(Parameter(p.rstrip("?"), required=not p.endswith("?")) for p in params)
    return TaskInfo(generator=generator, is_async=False, params=made, rest=rest)


TASKS = {
    "m:two": info("a", "b?"),
    "m:any": info("a", rest=True),
    "m:pages": info(generator=True),
    "m:none": info(),
}


def task_mistakes(**vertices: Any) -> str:
    graph = {"suimon": 1, "pipeline": "p", "vertices": vertices}
    return "\n".join(mistake.render() for mistake in check_tasks(graph, TASKS))


def call(task: str, **inputs: Any) -> dict[str, Any]:
    return {"type": "TASK", "inputs": inputs, "config": {"task": task}}


def spawn(task: str, items: Any = (), **shared: Any) -> dict[str, Any]:
    inputs = {"items": items or [1], "shared": shared}
    return {"type": "SPAWNER", "inputs": inputs, "config": {"task": task}}


def test_calls_that_fit_are_fine() -> None:
    assert task_mistakes(x=call("m:two", a=1), y=call("m:any", a=1, z=2)) == ""
    assert task_mistakes(x={**call("m:two"), "inputs": {"$ref": "input"}}) == ""
    assert task_mistakes(x=spawn("m:two"), y=spawn("m:two", b=1), z=spawn("m:any", q=1)) == ""
    assert task_mistakes(g=call("m:pages"), s=spawn("m:two", {"$ref": "g"})) == ""


@pytest.mark.parametrize(
    ("vertex", "said"),
    [
        (call("m:tow", a=1), 'did you mean "m:two"?'),
        (call("m:two"), '"m:two" needs "a"'),
        (call("m:two", a=1, c=1), 'has no parameter "c"'),
        (call("m:pages"), "it yields items and has no result"),
        (spawn("m:pages"), "cannot be a target"),
        (spawn("m:none"), "no parameter left for the item"),
        (spawn("m:two", a=1, b=1), "no parameter left for the item"),
        (spawn("m:two", b=1, c=2), 'has no parameter "c"'),
    ],
)
def test_calls_that_do_not_fit_are_told(vertex: Any, said: str) -> None:
    assert said in task_mistakes(x=vertex)


def test_a_generator_is_only_a_source() -> None:
    used_twice = task_mistakes(
        g=call("m:pages"), s=spawn("m:two", {"$ref": "g"}), x=call("m:two", a={"$ref": "g"})
    )
    assert "and nowhere else" in used_twice
    waited_for = task_mistakes(
        g=call("m:pages"), s=spawn("m:two", {"$ref": "g"}), x={**call("m:two", a=1), "after": ["g"]}
    )
    assert "has no end of its own" in waited_for


def test_a_condition_on_a_generator_belongs_to_its_spawner() -> None:
    pages = {**call("m:pages"), "when": {"$ref": "input.go"}}
    said = task_mistakes(pages=pages, each=spawn("m:two", {"$ref": "pages"}))
    assert "put its condition on the SPAWNER" in said
