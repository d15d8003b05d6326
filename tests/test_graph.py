"""The canonical graph: one meaning, one text, one hash; and every mistake told at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suimon import graph as graphs
from suimon.core import refs
from suimon.errors import DefinitionError

DATA = Path(__file__).parent / "data"
TASK = {"type": "TASK", "config": {"task": "m:f"}}


def definition(**changes: Any) -> dict[str, Any]:
    return {"suimon": 1, "pipeline": "p", "vertices": {"a": TASK}, **changes}


def vertex(name: str = "a", /, **parts: Any) -> dict[str, Any]:
    return definition(vertices={name: parts})


def spawner(**config: Any) -> dict[str, Any]:
    return {"type": "SPAWNER", "inputs": {"items": [1]}, "config": {"task": "m:f", **config}}


def problems(raw: Any) -> list[str]:
    return [mistake.render() for mistake in graphs.check(raw)]


def test_defaults_are_left_out() -> None:
    """Saying what holds anyway changes nothing, so it is not written and not hashed."""
    long = definition(
        pool="default",
        concurrency=1,
        priority=2,
        maxQueued=1000,
        maxInterruptions=3,
        pauseAfter=5,
        triggers=[],
        vertices={
            "a": {
                "type": "TASK",
                "after": [],
                "inputs": {},
                "config": {"task": "m:f", "retries": 0, "backoff": "1s..5m"},
            }
        },
    )
    assert graphs.canonical(graphs.parse(json.dumps(long))) == graphs.canonical(definition())
    assert graphs.graph_hash(graphs.parse(json.dumps(long))) == graphs.graph_hash(definition())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"$ref": ["a", "total"]}, {"$ref": "a.total"}),
        ({"$value": {"b": [1, "x"]}}, {"b": [1, "x"]}),
        ({"$value": [1, None]}, [1, {"$value": None}]),
    ],
)
def test_two_ways_to_write_an_input_are_one(one: Any, other: Any) -> None:
    def text(value: Any) -> bytes:
        raw = definition(vertices={"a": TASK, "b": {**TASK, "inputs": {"x": value}}})
        return graphs.canonical(graphs.parse(json.dumps(raw)))

    assert text(one) == text(other)


constants = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab$", max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "$ref", "$value"]), inner, max_size=2)
    ),
)


@given(constants)
def test_a_quoted_constant_comes_back_as_it_was(constant: Any) -> None:
    """Whatever a constant looks like, quoting it and resolving it gives it back."""
    raw = definition(vertices={"a": {**TASK, "inputs": {"x": {"$value": constant}}}})
    graph = graphs.parse(json.dumps(raw))
    assert graphs.parse(graphs.canonical(graph)) == graph
    inputs = graph["vertices"]["a"]["inputs"]
    assert refs.resolve(inputs, {}, vertex="a") == {"x": constant}


def test_the_seeds_merge_is_a_vertex_as_it_stands() -> None:
    """Read byte for byte from a file, put under an id, deployed."""
    merge = json.loads((DATA / "seed_merge.json").read_bytes())
    raw = definition(vertices={"orders": spawner(), "outcome": merge})
    graph = graphs.parse(json.dumps(raw))
    assert graph["vertices"]["outcome"] == merge


def test_tolerated_states_may_be_written_in_any_case() -> None:
    merge = {"type": "MERGE", "config": {"tolerateChildFailures": ["timed_out", "FAILED"]}}
    raw = definition(vertices={"s": spawner(), "m": merge})
    graph = graphs.parse(json.dumps(raw))
    assert graph["vertices"]["m"]["config"]["tolerateChildFailures"] == ["FAILED", "TIMED_OUT"]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ([], "a definition is a JSON object, not list"),
        ({}, "the pipeline has no name"),
        (definition(suimon=2), "the format number is 2"),
        (definition(suimon=True), "the format number is True"),
        (definition(pipeline="A b"), "must be lower-case"),
        (definition(concurency=3), 'unknown key "concurency" (did you mean "concurrency"?)'),
        (definition(concurrency=0), 'or "unlimited", not 0'),
        (definition(priority=True), "from 0 to 3, not True"),
        (definition(pool=None), "null is not allowed here"),
        (definition(destinations=[]), 'must be an object: {"crm": {"rate": "20/s"}}'),
        (definition(destinations={"A": {}}), "'A' is no name of a destination"),
        (definition(destinations={"a": {"rates": 1}}), 'did you mean "rate"?'),
        (definition(destinations={"a": {"rate": "20"}}), 'a rate is written like "20/s"'),
        (definition(destinations={"a": {"burst": 2}}), "a burst without a rate"),
        (definition(destinations={"a": {"rate": "900/s", "burst": 2}}), "give it at least 18"),
        (definition(destinations={"a": {"auth": "P@ssword"}}), "must name a secret"),
        (definition(destinations={"a": {"baseUrl": "ftp://a"}}), "an address like"),
        (definition(destinations={"a": {"baseUrl": "http://u:p@a"}}), "a user or a password"),
        (definition(vertices={}), "at least one vertex"),
        (definition(vertices=[]), "at least one vertex"),
        (definition(vertices={"A": TASK}), '"A" is no vertex id'),
        (definition(vertices={"run": TASK}), 'the id "run" is reserved'),
        (definition(vertices={"a": 3}), "a vertex is an object, not int"),
        (vertex(type="HTML"), "unknown vertex type 'HTML'; this version has APPROVAL, HTTP"),
        (vertex(type="HTTP", inputs={"path": "/a"}), 'an HTTP needs "destination"'),
        (vertex(type="HTTP", config={"destination": "a"}), 'an HTTP needs the input "path"'),
        (vertex(type="HTTP", config={"destination": "a", "method": "get"}), 'one of "GET"'),
        (vertex(type="HTTP", config={"destination": "a", "expect": [99]}), "statuses from 200"),
        (vertex(type="HTTP", inputs={"path": "/a", "json": 1, "body": "b"}), "one body"),
        (vertex(type="task", config={}), 'did you mean "TASK"'),
        (vertex(type="TASK"), 'a TASK needs "task"'),
        (vertex(type="TASK", config={"task": "no"}), 'must be "module:function"'),
        (vertex(type="TASK", config={"task": "m:f", "secrets": "a"}), "a list of names"),
        (vertex(type="TASK", config={"task": "m:f", "secrets": ["secret:a"]}), 'without "secret:'),
        (vertex(type="TASK", config={"task": "m:f", "secrets": ["a", "a"]}), "a secret twice"),
        (vertex(type="TASK", config={"task": "m:f", "secrets": ["P@ss w"]}), "must name a secret"),
        (vertex(type="TASK", config={"task": "m:f", "secret": ["a"]}), 'did you mean "secrets"?'),
        (vertex(type="TASK", config={"task": "m:f", "retry": 1}), 'did you mean "retries"?'),
        (vertex(type="TASK", config={"task": "m:f", "timeout": "0s"}), "longer than 0"),
        (vertex(type="TASK", config={"task": "m:f", "backoff": "5m..2s"}), "ends before"),
        (vertex(**TASK, after="b"), "must be a list of vertex ids"),
        (vertex(**TASK, after=["b"]), 'there is no vertex "b"'),
        (vertex(**TASK, inputs={"x": {"$ref": "b.c"}}), 'there is no vertex "b"'),
        (vertex(**TASK, inputs={"x": {"$ref": "run.idd"}}), 'did you mean "id"?'),
        (vertex(**TASK, inputs={"x": {"$ref": 3}}), "a reference is text"),
        (vertex(**TASK, inputs={"x": {"$ref": "a..b"}}), "empty or impossible part"),
        (vertex(**TASK, inputs={"x": {"$ref": "a", "y": 1}}), "has no other keys"),
        (vertex(**TASK, inputs={"x": {"$ref": "a"}}), "the vertices need each other: a -> a"),
        (definition(output={"$ref": "b"}), 'output: there is no vertex "b"'),
        (vertex(type="READ"), 'a READ needs the input "path"'),
        (vertex(type="READ", inputs={"path": "a", "pth": 1}), 'has no input "pth"'),
        (vertex(type="READ", inputs={"path": "a"}, config={"format": "xls"}), 'one of "csv"'),
        (vertex(type="READ", inputs={"path": "a"}, config={"encoding": "base64"}), "encoding"),
        (vertex(type="READ", inputs={"path": "a"}, config={"delimiter": "||"}), "one character"),
        (vertex(type="READ", inputs={"path": "a"}, config={"header": ["a", "a"]}), "twice"),
        (vertex(type="SPAWNER", config={"task": "m:f"}), 'needs the input "items"'),
        (vertex(**{**spawner(), "config": {}}), "the SPAWNER has no target"),
        (vertex(**spawner(pipeline="x")), "both a task and a pipeline"),
        (vertex(type="MERGE"), "not clear which SPAWNER"),
        (vertex(type="MERGE", inputs={"x": 1}), "a MERGE takes no inputs"),
    ],
)
def test_a_wrong_definition_says_what_is_wrong(raw: Any, said: str) -> None:
    """The place, the fact and, where there is one, the nearest right word."""
    assert said in "\n".join(problems(raw))


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"m": {"type": "MERGE", "after": ["a"]}}, "a MERGE comes after a SPAWNER"),
        ({"m": {"type": "MERGE", "after": ["s", "t"]}}, "a MERGE merges one SPAWNER"),
        ({"b": {**TASK, "after": ["s"]}}, "does not wait for its children"),
        ({"b": {**TASK, "inputs": {"x": {"$ref": "s"}}}}, "has no value of its own"),
        ({"m": {"type": "MERGE", "config": {"failFast": 1}}}, "must be true or false"),
        (
            {"m": {"type": "MERGE", "after": ["s"], "config": {"failureTolerance": {}}}},
            "a bound without tolerated states",
        ),
        (
            {
                "m": {"type": "MERGE", "after": ["s"]},
                "n": {"type": "MERGE", "after": ["s"]},
            },
            '"s" is merged by "m" already',
        ),
        (
            {
                "m": {"type": "MERGE", "after": ["s"]},
                "b": {**TASK, "inputs": {"x": {"$ref": "m.failed"}}},
            },
            "is a stream of results, not a value",
        ),
        (
            {
                "m": {"type": "MERGE", "after": ["s"]},
                "b": {**TASK, "inputs": {"x": {"$ref": "m.counts.totl"}}},
            },
            'did you mean "total"?',
        ),
        (
            {
                "m": {"type": "MERGE", "after": ["s"]},
                "u": {**spawner(), "inputs": {"items": {"$ref": "m"}}},
            },
            "is not a list",
        ),
    ],
)
def test_vertices_that_do_not_fit_together_are_told(extra: Any, said: str) -> None:
    raw = definition(vertices={"a": TASK, "s": spawner(), "t": spawner(), **extra})
    assert said in "\n".join(problems(raw))


def test_all_mistakes_come_at_once() -> None:
    raw = definition(
        pool="Bad Pool",
        vertices={
            "a": {"type": "TASK", "config": {"task": "m:f", "retries": -1, "timeout": "5"}},
            "b": {"type": "NOTEBOOK"},
            "c": {"type": "TASK", "config": {"task": "m:f", "tiemout": "5s"}},
        },
    )
    with pytest.raises(DefinitionError) as caught:
        graphs.parse(json.dumps(raw), file="p.json")
    found = {(m.vertex, m.field, m.file) for m in caught.value.mistakes}
    assert found == {
        (None, "pool", "p.json"),
        ("a", "config.retries", "p.json"),
        ("a", "config.timeout", "p.json"),
        ("b", "type", "p.json"),
        ("c", "config.tiemout", "p.json"),
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'{"suimon":1,"suimon":1}', 'the key "suimon" stands twice'),
        (b'{"suimon": NaN}', "NaN is no JSON number"),
        (b"{", "not valid JSON"),
        (b"\xff", "not valid UTF-8 at byte 0"),
        (b"[" * 100_000, "nested far too deeply"),
        (b" " * (1024 * 1024 + 1), "the limit is 1,048,576"),
        (b'{"a":' * 80 + b"1" + b"}" * 80, "nested deeper than 64 levels"),
        (b'{"suimon":1,"pipeline":"p","x":1e400}', "inf is no JSON number"),
        (b'{"suimon":1,"pipeline":"p","x":12345678901234567.89}', "put it in quotes, as text"),
        (b'{"suimon":1,"pipeline":"p","x":[1e-400]}', "1e-400 cannot be kept exactly"),
        (b'{"suimon":1,"pipeline":"p\\u0000"}', "NUL"),
        (b'{"suimon":1,"pipeline":"\\ud83d"}', "surrogate"),
    ],
)
def test_text_that_is_no_definition_is_refused_quickly(text: bytes, said: str) -> None:
    """Bounded in size and depth before anything is made of it."""
    with pytest.raises(DefinitionError, match=said):
        graphs.parse(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text("a$.{", max_size=3),
        lambda inner: st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["suimon", "pipeline", "vertices", "a", "type", "inputs", "config", "after",
                 "$ref", "$value", "output", "items", "shared", "triggers", "task"]
            ),
            inner | st.sampled_from(["TASK", "READ", "SPAWNER", "MERGE", "a", "m:f"]),
            max_size=4,
        ),
        max_leaves=25,
    )
)  # fmt: skip
def test_nothing_makes_the_checker_fall_over(raw: Any) -> None:
    """Whatever is thrown at it, the answer is a list of mistakes, or a graph that round-trips."""
    if not graphs.check(raw):
        graph = graphs.normalise(raw)
        assert graphs.parse(graphs.canonical(graph)) == graph


@pytest.mark.parametrize("labels", ["tenant:acme", ["acme"], ["T:x"], ["t:"], [1], ["t:x"] * 11])
def test_labels_that_are_none_are_told(labels: Any) -> None:
    (mistake,) = graphs.check(definition(labels=labels))
    assert mistake.field == "labels"
    assert "labels" in mistake.message
