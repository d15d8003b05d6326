"""The test kit: plain contexts, and an engine whose time moves and whose faults are chosen."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from suimon.errors import SecretNotGranted
from suimon.testing import Child, ChildError, Context, Engine, MergeResult, engine
from suimon.testing import suimon_engine as suimon_engine  # noqa: PLC0414  (a fixture)

CODE = """
from __future__ import annotations
import os
from suimon import Later, MergeResult, Pipeline, task

def note(word):
    with open(os.environ["NOTES"], "a") as file:
        file.write(f"{word}\\n")

@task(retries=2, backoff="1h", deadline="1d")
def post(item, ctx):
    note(f"post {item['id']}")
    ctx.log("posted", item=item["id"])
    return item["id"]

@task
def count(outcome: MergeResult) -> dict:
    note("count")
    return dict(outcome.counts)

@task
def last(a=None, b=None):
    return [a, b]

p = Pipeline("orders")
kids = p.spawn("kids", post, p.input.items, key="id")
outcome = p.merge("outcome", kids, tolerate=["FAILED"])
p.run("report", count, outcome)

w = Pipeline("waits")
slept = w.wait("slept", timer="2h")
word = w.wait("word", signal="word", after=[slept])
boss = w.approve("boss", expires="3d", on_reject="continue", after=[word])
w.run("last", last, word, boss.approved)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kit")
    (folder / "code").mkdir()
    (folder / "code" / "m.py").write_text(CODE)
    return folder


@pytest.fixture(scope="module")
def shared(project: Path) -> Iterator[Engine]:
    with engine(project / "code", env={"NOTES": str(project / "notes")}) as made:
        yield made


def items(*ids: int) -> dict[str, object]:
    return {"items": [{"id": str(i)} for i in ids]}


def notes(project: Path) -> list[str]:
    file = project / "notes"
    found = file.read_text().splitlines() if file.exists() else []
    file.write_text("")
    return found


def test_a_context_keeps_what_it_is_told() -> None:
    ctx = Context(item_key="17", attempt=2)
    ctx.log("one", order=17)
    ctx.log.warning("two")
    ctx.progress(1, 2)
    with ctx.artifact("a.txt") as file:
        file.write("text")
    assert ctx.checkpoint("part", lambda: 1) == ctx.checkpoint("part", lambda: 2) == 1
    assert ctx.log_lines == ['one {"order": 17}', "WARNING two"]
    assert (ctx.progress_calls, ctx.checkpoints) == ([(1, 2)], {"part": 1})
    assert ctx.artifact_bytes("a.txt") == b"text"
    assert (ctx.item_key, ctx.attempt, ctx.cancelled) == ("17", 2, False)
    ctx.cancelled = True
    assert ctx.cancelled


def test_an_async_context_has_awaited_checkpoints() -> None:
    async def call() -> object:
        return await Context(is_async=True).checkpoint("part", lambda: 1)

    assert asyncio.run(call()) == 1


def test_a_merge_result_of_a_list() -> None:
    bad = Child(1, "b", "failed", None, ChildError("ValueError", "no"), "r1")
    outcome = MergeResult.of([bad, Child(0, "a", "succeeded", 5, None, "r0")])
    assert dict(outcome.counts)["failed"] == 1
    assert [child.value for child in outcome.succeeded] == [5]


def test_importing_it_needs_neither_pytest_nor_a_driver() -> None:
    code = (
        "import suimon.testing, sys; print([m for m in ('pytest', 'psycopg') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_chosen_items_fail(shared: Engine, project: Path) -> None:
    """One by key for good, one by position once: its back-off of an hour is over at once."""
    shared.fail(task="m:post", key="2", fatal=True, error="no such order")
    shared.fail(task="m:post", position=0, error="away")
    run = shared.submit("orders", items(1, 2, 3))
    shared.advance("2h")
    done = shared.wait(run)
    assert (done.status, done.output) == ("succeeded", done.steps["report"]["output"])
    assert done.output["failed"] == 1
    assert [child.state for child in done.children] == ["succeeded", "failed", "succeeded"]
    error = done.children[1].error
    assert error is not None
    assert (error.type, error.message) == ("Fatal", "no such order")
    first = shared.look(done.children[0].run_id)
    assert (first.attempt, first.log) == (2, 'posted {"item": "1"}\n')
    assert [(one["how"], one["error"]["type"]) for one in first.attempts] == [
        ("failed", "InjectedFault")
    ]
    assert sorted(notes(project)) == ["count", "post 1", "post 3"]
    assert shared.retry(run, failed_children=True) == 1
    assert shared.wait(run).output["succeeded"] == 3


def test_a_deadline_passes(shared: Engine) -> None:
    shared.fail(task="m:post", times=None, error="always")
    run = shared.submit("orders", items(1))
    shared.advance("2d")
    done = shared.wait(run)  # the merge tolerates failures, not this
    assert (done.status, [child.state for child in done.children]) == ("failed", ["timed_out"])
    shared.clear_faults()


def test_time_a_signal_and_a_person(shared: Engine) -> None:
    run = shared.submit("waits")
    shared.settle()
    assert shared.look(run).reason == "timer"
    shared.advance("119m")
    shared.settle()
    assert shared.look(run).reason == "timer"
    shared.advance("1m")
    shared.settle()
    assert shared.look(run).reason == "signal:word"
    assert shared.signal(run, "word", {"n": 1})
    assert shared.approve(run, "boss", by="ann") == "approved"
    assert shared.wait(run).output == [{"n": 1}, True]


def test_an_approval_expires_and_a_run_is_cancelled(shared: Engine) -> None:
    run, other = shared.submit("waits"), shared.submit("waits")
    assert shared.signal(run, "word")
    shared.wait(run, "waiting")
    shared.advance("2h")
    shared.settle()
    shared.advance("3d")
    assert shared.wait(run).output == [None, False]
    assert shared.cancel(other)
    assert shared.wait(other).status == "cancelled"


@pytest.mark.slow
@pytest.mark.parametrize("at", ["after_claim", "after_chunk", "before_finish", "after_task"])
def test_crash_points_lose_nothing(shared: Engine, project: Path, at: str) -> None:
    """The worker (or slot) is really killed there, another goes on, each effect is there once or
    more, and each child once.
    """
    notes(project)
    before = shared.crashes
    shared.crash(at)
    done = shared.run("orders", items(1, 2, 3))
    assert (done.status, done.output["succeeded"]) == ("succeeded", 3)
    assert len(done.children) == 3
    assert shared.crashes == before + 1
    posted = [line for line in notes(project) if line.startswith("post")]
    assert sorted(set(posted)) == ["post 1", "post 2", "post 3"]


def test_an_unknown_crash_point_is_told(shared: Engine) -> None:
    with pytest.raises(ValueError, match='no crash point "lunch"'):
        shared.crash("lunch")
    with pytest.raises(ValueError, match="of many runs"):
        shared.crash("after_claim", key="1")


@pytest.mark.slow
def test_the_fixture_gives_an_engine(
    suimon_engine: Callable[..., Engine], project: Path
) -> None:  # fmt: skip
    made = suimon_engine(project / "code", env={"NOTES": str(project / "notes")})
    assert made.run("orders", items(1), timeout=30).succeeded


def test_a_plain_call_gets_the_secrets_that_the_test_gives() -> None:
    ctx = Context(secrets={"crm_token": "t0ken"})
    assert ctx.secret("crm_token") == "t0ken"
    with pytest.raises(SecretNotGranted, match='not granted the secret "crm_tokn"') as caught:
        ctx.secret("crm_tokn")
    assert caught.value.hint is not None
    assert 'did you mean "crm_token"' in caught.value.hint


def test_an_engine_has_the_secrets_that_the_test_gives(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(
        "from suimon import pipeline\n"
        "@pipeline(secrets=['crm_token', 'env:HOOK'])\n"
        "def uses(ctx):\n"
        "    print(ctx.secret('crm_token'))\n"
        "    return len(ctx.secret('env:HOOK'))\n"
    )
    with engine(tmp_path, slots=1, secrets={"crm_token": "t0ken", "env:HOOK": "hook it"}) as made:
        done = made.run("uses")
    assert (done.output, done.log) == (7, "[secret crm_token]\n")
