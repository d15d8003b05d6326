"""Building in Python: the same graph as JSON, references that never lie, all mistakes at once.

`tests/golden/` holds the canonical bytes, one file per vertex type. They never change within graph
format 1: a run is pinned to their hash.
"""

from __future__ import annotations

import copy
import datetime as dt
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from suimon import graph as graphs
from suimon.errors import DefinitionError
from suimon.pipeline import Pipeline, pipeline, pipeline_of
from suimon.task import describe, options_of, task

GOLDEN = Path(__file__).parent / "golden"


@task(retries=5, backoff="2s..5m", timeout="30s", deadline="1h", pool="gpu", max_interruptions=1)
async def post_order(order: dict[str, Any], tenant: str, ctx: Any) -> None: ...


@task
def write_report(outcome: Any, ctx: Any, title: str = "report") -> dict[str, Any]:
    return {"title": title}


@task()
def plain(a: Any, b: Any = 2) -> Any:
    return a, b


def with_task() -> Pipeline:
    p = Pipeline("golden-task", pool="default", concurrency=None, priority=0, max_queued=5)
    first = p.run("first", plain, p.input.odd["the key.x"], {"$ref": "me"}, pool="cpu")
    second = p.run(
        "second", post_order, {"deep": [first.total, None, 1.5]}, tenant="é", after=[first]
    )
    p.returns({"n": second, "by": p.meta.id})
    return p


def with_read() -> Pipeline:
    p = Pipeline("golden-read")
    rows = p.read("rows", p.input.path, encoding="auto", delimiter=";", header=["a", "b"], skip=1)
    p.run("report", write_report, rows)
    return p


def with_spawner() -> Pipeline:
    p = Pipeline("golden-spawner", max_interruptions=5)
    p.spawn(
        "orders", post_order, p.input.orders, key="id", concurrency=200, max_items=9, tenant="acme"
    )
    p.spawn("bills", "bill-customer", [1, 2], concurrency=3)
    return p


def with_labels() -> Pipeline:
    p = Pipeline("golden-labels", labels=["tenant:acme", "area:eu/west", "tenant:acme"])
    p.run("first", plain, 1)
    return p


def with_merge() -> Pipeline:
    p = Pipeline("golden-merge")
    orders = p.spawn("orders", plain, p.input.orders)
    p.merge(
        "outcome",
        orders,
        tolerate=["failed", "TIMED_OUT"],
        max_failure_ratio=0.05,
        max_failures=10,
        fail_fast=True,
        stragglers="finish",
        grace="1m",
    )
    return p


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("task", with_task),
        ("read", with_read),
        ("spawner", with_spawner),
        ("labels", with_labels),
        ("merge", with_merge),
    ],
)
def test_the_canonical_bytes_never_change(name: str, build: Callable[[], Pipeline]) -> None:
    """Python and JSON give these bytes; they are what is hashed and stored."""
    golden = (GOLDEN / f"{name}.json").read_bytes().rstrip(b"\n")
    golden = golden.replace(b"MODULE", __name__.encode())
    assert build().to_json().encode() == golden
    assert graphs.canonical(graphs.parse(golden)) == golden
    assert build().hash == graphs.graph_hash(graphs.parse(golden))


# --------------------------------------------------------------------------- tasks


def test_a_decorated_function_stays_a_plain_function() -> None:
    assert write_report({}, None) == {"title": "report"}
    assert inspect.isfunction(plain)
    assert plain(1) == (1, 2)
    assert inspect.iscoroutinefunction(post_order)


def test_ctx_is_nobodys_input_wherever_it_stands() -> None:
    @task
    def first(ctx: Any, a: Any) -> None: ...

    assert [p.name for p in describe(first).params] == ["a"]
    assert [p.name for p in describe(write_report).params] == ["outcome", "title"]
    assert describe(post_order).is_async


def test_options_are_kept_as_the_graph_writes_them() -> None:
    options = options_of(post_order)
    assert options is not None
    assert options.config["maxInterruptions"] == 1
    bare = options_of(plain)
    assert bare is not None
    assert bare.config == {}


def test_task_goes_on_functions_only() -> None:
    with pytest.raises(TypeError, match="@task goes on a function"):
        task(42)  # type: ignore[call-overload]


# --------------------------------------------------------------------------- references


@pytest.mark.parametrize(
    "use",
    [
        bool,
        list,
        len,
        str,
        int,
        float,
        lambda r: f"{r}",
        lambda r: r == 3,
        lambda r: r != 3,
        lambda r: r < 3,
        lambda r: 3 in r,
        lambda r: r(),
        lambda r: r[-1],
        lambda r: r[1.5],
        lambda r: r + 1,
        lambda r: setattr(r, "x", 1),
    ],
)
def test_a_reference_refuses_to_be_a_value(use: Callable[[Any], Any]) -> None:
    """A silent answer would be built into the graph for good."""
    with pytest.raises(TypeError):
        use(Pipeline("p").input.orders)


def test_a_reference_can_be_shown_and_copied() -> None:
    reference = Pipeline("p").input.a["b c"][0]
    assert repr(reference) == "<reference input.a.b c.0>"
    assert repr(copy.copy(reference)) == repr(reference)


# --------------------------------------------------------------------------- building


def test_values_of_python_become_json_constants() -> None:
    p = Pipeline("p")
    p.run("a", plain, dt.date(2024, 2, 29), (1, None))
    inputs = p.graph()["vertices"]["a"]["inputs"]
    assert inputs == {"a": "2024-02-29", "b": [1, {"$value": None}]}


def told(p: Pipeline) -> str:
    with pytest.raises(DefinitionError) as caught:
        p.graph()
    return caught.value.render()


def not_a_task(a: Any) -> None: ...


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda p: p.run("a", not_a_task, 1), "put @task on the function"),
        (lambda p: p.run("a", plain), 'the task needs "a"'),
        (lambda p: p.run("a", plain, 1, 2, 3), "3 inputs by position"),
        (lambda p: p.run("a", plain, 1, a=2), "by position and by name"),
        (lambda p: p.run("a", plain, 1, bb=2), 'did you mean "b"?'),
        (lambda p: p.run("a", plain, object()), "no JSON form"),
        (lambda p: p.run("a", plain, float("nan")), "no JSON number"),
        (lambda p: p.run("a", plain, Pipeline("q").input.x), "another pipeline"),
        (lambda p: p.run("a", plain, 1, after=["b"]), "is no vertex"),
        (lambda p: [p.run("a", plain, 1), p.run("a", plain, 2)], 'two vertices "a"'),
        (lambda p: p.spawn("a", not_a_task, [1]), "cannot be spawned"),
        (lambda p: p.spawn("a", plain, [1], concurrency=0), "from 1"),
        (lambda p: p.merge("m", p.input), "is no vertex"),
        (lambda p: p.read("a", "x.csv", format="xls"), 'one of "csv"'),
        (lambda p: [p.run("a", plain, 1), p.returns(1), p.returns(2)], "called twice"),
        (lambda _: None, "at least one vertex"),
    ],
)
def test_a_mistake_is_told_with_its_vertex(build: Callable[[Pipeline], Any], said: str) -> None:
    p = Pipeline("p")
    build(p)
    assert said in told(p)


def test_mistakes_carry_the_line_they_stand_on() -> None:
    p = Pipeline("p")
    p.run("a", plain)
    here = inspect.currentframe()
    assert here is not None
    line = here.f_lineno - 3
    p.run("b", plain, 1, pool="Bad Pool")
    mistakes = p.mistakes()
    assert [(m.file, m.line) for m in mistakes] == [(__file__, line), (__file__, line + 4)]


def test_a_task_must_stand_where_a_worker_finds_it() -> None:
    @task
    def inner(a: Any) -> None: ...

    p = Pipeline("p")
    p.run("a", inner, 1)
    assert "not at the top level of its module" in told(p)


@pipeline(concurrency=None, retries=2)
def import_order(path: str, ctx: Any, **rest: Any) -> str:
    return path


def test_a_pipeline_of_one_function_takes_the_whole_input() -> None:
    made = pipeline_of(import_order)
    assert made is not None
    assert made.graph() == {
        "suimon": 1,
        "pipeline": "import_order",
        "concurrency": "unlimited",
        "vertices": {
            "import_order": {
                "type": "TASK",
                "inputs": {"$ref": "input"},
                "config": {"task": f"{__name__}:import_order", "retries": 2},
            }
        },
    }
    assert import_order("a", None) == "a"


def test_such_a_function_is_spawned_as_its_pipeline() -> None:
    p = Pipeline("p")
    p.spawn("each", import_order, [{"path": "a"}])
    assert p.graph()["vertices"]["each"]["config"] == {"pipeline": "import_order"}
