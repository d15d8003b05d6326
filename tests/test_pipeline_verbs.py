"""The verbs beside run, read, spawn and merge: waiting, asking, starting, conditions, triggers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from suimon import graph as graphs
from suimon.destination import Destination
from suimon.errors import DefinitionError
from suimon.pipeline import Limit, Pipeline, pipeline, pipeline_of
from suimon.task import task
from suimon.trigger_types import Cron, Event, Every, File, Webhook

GOLDEN = Path(__file__).parent / "golden"


@task
def judge(a: Any = None, b: Any = None) -> Any: ...


def with_wait() -> Pipeline:
    p = Pipeline("golden-wait", on_failure="hold", deadline="7d", keep={"age": "30d", "count": 9})
    timer = p.wait("timer", timer="10m")
    until = p.wait("until", until=p.input.at, after=timer)
    signal = p.wait("signal", signal="paid", timeout="2d", after=[timer, until])
    p.run("last", judge, signal.amount)
    return p


def with_approval() -> Pipeline:
    p = Pipeline("golden-approval", concurrency=Limit(3, per="customer.id"))
    checked = p.run("checked", judge, p.input.customer)
    ok = p.approve(
        "manager",
        show={"order": checked.order, "for": p.input.customer},
        required=checked.needs_manager,
        title="Refund",
        role="manager",
        quorum=2,
        expires="3d",
        on_reject="continue",
    )
    plain = p.approve("plain")
    p.run("paid", judge, ok.by, ok.at, when=ok.approved, unless=plain.approved)
    return p


def with_start() -> Pipeline:
    p = Pipeline("golden-start")
    billing = p.start("billing", "bill-all", input={"at": p.input.at, "n": [1, None]}, pool="gpu")
    p.start("archive", with_wait(), input=billing, wait=False)
    p.start("bare", "bill-all", when=billing.ok)
    return p


def with_branches() -> Pipeline:
    p = Pipeline("golden-branches")
    a = p.run("a", judge)
    b = p.run("b", judge, when=a.over, unless=a["odd key"])
    p.run("c", judge, after=[a, b], run_if="failed")
    p.wait("d", timer="1s", after=[a], run_if="ended")
    p.run("e", judge, after=a, run_if="succeeded")
    return p


def with_http() -> Pipeline:
    p = Pipeline("golden-http")
    shop = Destination("shop", base_url="http://shop.example")
    a = p.http("a", shop, path="/a", json={"n": p.input.n, "x": None}, expect=[404, 200])
    p.http("b", "shop", path=a.json.next, params={"q": 1}, headers={"X-Kind": "k"}, retries=3)
    p.http("c", shop, path="/c", body=p.input.text, method="PUT", retries=0, backoff="1s..9s",
           deadline="1h", when=a.json.ok)  # fmt: skip
    return p


def with_triggers() -> Pipeline:
    p = Pipeline("golden-triggers")
    p.on(File("inbox/*.csv", settle="5s", order="mtime", mode="poll"))
    p.on(Cron("30 2 * * *", gap="next", fold="first", catch_up="all"), Every("7d"))
    p.on(Every("1h", anchor="2024-01-01T00:00:00Z"), Event("order.paid"))
    p.on(Webhook("in/x", preset="github", secret="secret:hook", key_header="X-Id"))
    p.on(
        File("scans/*/READY", dedupe="content", interval="10s", recursive=True, ignore=["*.bak"],
             empty="take", follow_links=True, done="done/", failed="failed/")
    )  # fmt: skip
    p.run("a", judge, p.meta.created_at)
    return p


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("wait", with_wait),
        ("approval", with_approval),
        ("start", with_start),
        ("branches", with_branches),
        ("triggers", with_triggers),
        ("http", with_http),
    ],
)
def test_the_canonical_bytes_never_change(name: str, build: Callable[[], Pipeline]) -> None:
    """Python and JSON give these bytes; they are what is hashed and stored."""
    golden = (GOLDEN / f"{name}.json").read_bytes().rstrip(b"\n")
    golden = golden.replace(b"MODULE", __name__.encode())
    assert build().to_json().encode() == golden
    assert graphs.canonical(graphs.parse(golden)) == golden


def test_defaults_of_verbs_leave_no_trace() -> None:
    p = Pipeline("p", on_failure=None, deadline=None, keep=None)
    p.approve("ok", required=True, quorum=1, on_reject="fail")
    p.start("go", "q", input={}, wait=True)
    p.run("a", judge, run_if="succeeded", after=[])
    p.on(Cron("* * * * *", tz="UTC"))
    graph = p.graph()
    assert graph["vertices"] == {
        "ok": {"type": "APPROVAL"},
        "go": {"type": "START", "config": {"pipeline": "q"}},
        "a": {"type": "TASK", "config": {"task": f"{__name__}:judge"}},
    }
    assert graph["triggers"] == [{"type": "CRON", "cron": "* * * * *"}]


def test_a_function_may_carry_its_triggers() -> None:
    @pipeline(on=File("in/*.csv"), concurrency=Limit(1, per="folder"), keep={"age": "1d"})
    def single(path: str) -> None: ...

    made = pipeline_of(single)
    assert made is not None
    graph = graphs.normalise(made._raw())
    assert graph["triggers"] == [{"type": "FILE", "path": "in/*.csv"}]
    assert graph["concurrency"] == {"limit": 1, "per": "folder"}


def told(p: Pipeline) -> str:
    with pytest.raises(DefinitionError) as caught:
        p.graph()
    return caught.value.render()


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda p: p.wait("a"), "the WAIT waits for nothing"),
        (lambda p: p.wait("a", timer="1s", signal="x"), "the WAIT has timer and signal"),
        (lambda p: p.wait("a", timer="1s", timeout="1s"), "only a wait for a signal has a timeout"),
        (lambda p: p.wait("a", timer="soon"), "timer is wrong: 'soon' is no duration"),
        (lambda p: p.wait("a", until="tomorrow"), 'must be an instant like "2030'),
        (lambda p: p.wait("a", signal="a b"), "must be letters, digits"),
        (lambda p: p.approve("a", quorum=0), "from 1 to 100, not 0"),
        (lambda p: p.approve("a", on_reject="stop"), 'one of "fail", "continue"'),
        (lambda p: p.approve("a", required="yes"), "must be true or false"),
        (lambda p: p.start("a", judge), "judge cannot be started"),
        (lambda p: p.start("a", "q", input=[1]), "input must be an object"),
        (lambda p: p.run("a", judge, when=True), "when must be a reference to true or false"),
        (lambda p: p.run("a", judge, run_if="failed"), "nothing does"),
        (lambda p: p.run("a", judge, run_if="never", after=[]), 'one of "succeeded", "failed"'),
        (lambda p: p.on("inbox/*.csv"), "'inbox/*.csv' is no trigger"),
        (lambda p: p.run("a", judge, when=p.approve("ok")), 'refer to "ok.approved"'),
        (lambda p: p.run("a", judge, p.approve("ok").aproved), 'did you mean "approved"?'),
        (lambda p: p.run("a", judge, p.wait("w", timer="1s").x), 'the WAIT "w" has no "x"'),
        (lambda p: p.run("a", judge, p.start("s", "q", wait=False).x), 'the START "s" has no "x"'),
        (
            lambda p: p.run("a", judge, p.run("b", judge), after=[p.run("c", judge)], run_if="no"),
            'one of "succeeded"',
        ),
    ],
)
def test_a_mistake_is_told_with_its_line(build: Callable[[Pipeline], Any], said: str) -> None:
    p = Pipeline("p")
    build(p)
    text = told(p)
    assert said in text
    assert "test_pipeline_verbs.py:" in text


def test_an_error_branch_that_needs_what_failed_is_refused() -> None:
    """It would never run: what failed has no value."""
    p = Pipeline("p")
    a = p.run("a", judge)
    p.run("b", judge, a, after=[a], run_if="failed")
    assert 'it runs when "a" failed, and then "a" has no value' in told(p)


@pytest.mark.parametrize(
    ("concurrency", "said"),
    [
        (Limit(0, per="customer"), "limit must be a whole number from 1"),
        (Limit(3, per=""), "per must be the path of a field"),
        (Limit(3, per="a..b"), "per must be the path of a field"),
        ({"limit": 3}, 'lacks "per"'),
        ({"limit": 3, "per": "a", "x": 1}, 'unknown key "x"'),
    ],
)
def test_a_limit_per_field_is_checked(concurrency: Any, said: str) -> None:
    p = Pipeline("p", concurrency=concurrency)
    p.run("a", judge)
    assert said in told(p)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"on_failure": "stop"}, 'must be one of "hold"'),
        ({"deadline": "0s"}, "longer than 0"),
        ({"keep": {}}, "must be an object with age, count"),
        ({"keep": {"age": "month"}}, "age is wrong"),
        ({"keep": {"days": 3}}, 'unknown key "days"'),
    ],
)
def test_options_of_a_pipeline_are_checked(options: Any, said: str) -> None:
    p = Pipeline("p", **options)
    p.run("a", judge)
    assert said in told(p)


@pytest.mark.parametrize(
    ("after", "said"),
    [(0, "from 1 to 100"), (101, "from 1 to 100"), ("no", '"never"'), (2.5, "whole number")],
)
def test_a_pause_after_so_many_failures_is_checked(after: Any, said: str) -> None:
    p = Pipeline("p", pause_after=after)
    p.run("a", judge)
    assert said in told(p)


def test_never_is_none_in_python() -> None:
    p = Pipeline("p", pause_after=None)
    p.run("a", judge)
    assert p.graph()["pauseAfter"] == "never"
