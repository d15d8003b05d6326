"""C66: a secret in another spelling; who may have one, and what is told when it cannot be had."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from support.engine import Engine
from support.secrets import KEY, OTHER, VALUE, store

pytestmark = pytest.mark.acceptance

MARK = "[secret crm]"

#: What may be seen of the value nowhere; each four characters or more of it.
TRACES = [
    "p@ss", "w%rd", "zwei", "p%40ss", "w%25rd", "p%40SS", "%22zwei",
    VALUE.encode().hex(), VALUE.encode().hex().upper(),
    base64.b64encode(VALUE.encode()).decode()[2:-4],
    base64.b64encode(b"user:" + VALUE.encode()).decode()[10:-4],
]  # fmt: skip

CODE = """
import base64, urllib.parse

GRANTED = dict(secrets=["crm"])

@pipeline(concurrency=None, **GRANTED)
def prints(ctx):
    s = ctx.secret("crm")
    ctx.log("plain", value=s)
    print("plain:", s)
    print("url:", urllib.parse.quote(s), urllib.parse.quote(s, safe=""), urllib.parse.quote_plus(s))
    print("base64:", base64.b64encode(s.encode()).decode(), file=sys.stderr)
    print("auth:", base64.b64encode(("user:" + s).encode()).decode())
    print("json:", json.dumps({"password": s}), json.dumps([s]))
    print("hex:", s.encode().hex(), s.encode().hex().upper())
    print("repr:", repr(s), [s])
    print(s[:7], end="")
    print(s[7:], end="")
    print()
    for line in s.splitlines():
        print("line:", line)
    sys.stdout.buffer.write(s.encode() + chr(10).encode())
    subprocess.run(["printf", "raw %s", s + chr(10)], check=True)
    subprocess.run(["sh", "-c", 'printf %s "$1"; sleep 0.05; printf "%s" "$2"', "x", s[:9], s[9:]])
    print("the end")

@pipeline(concurrency=None, **GRANTED)
def raises(ctx):
    s = ctx.secret("crm")
    padding = "x" * 3990
    raise RuntimeError("failed with " + repr(locals()) + padding + s)

@pipeline(concurrency=None, **GRANTED)
def command(ctx):
    subprocess.run(["false", "--password", ctx.secret("crm")], check=True)

@pipeline(concurrency=None, **GRANTED)
def returns(ctx):
    s = ctx.secret("crm")
    return {"value": s, s: 1, "deep": [{"url": urllib.parse.quote(s)}], "length": len(s)}

@pipeline(concurrency=None, **GRANTED)
async def awaits(ctx):
    print("async", ctx.secret("crm"))
    await asyncio.sleep(0)
    raise ValueError(ctx.secret("crm"))

@pipeline(concurrency=None, **GRANTED)
def checkpoints(ctx):
    return ctx.checkpoint("token", lambda: "Bearer " + ctx.secret("crm"))

@pipeline(concurrency=None, **GRANTED)
def curious(ctx):
    return ctx.secret("crn")

@task(**GRANTED)
def items(ctx):
    for n in range(3):
        yield {"name": "file of " + ctx.secret("crm") + str(n), "n": n}

@task
def take(item):
    return item

p = Pipeline("names", concurrency=None)
p.spawn("each", take, p.run("items", items), key="name")
"""


def everything_stored(engine: Engine) -> str:
    """Every row of every table, as text."""
    tables = engine.sql("select relname from pg_stat_user_tables where schemaname = 'suimon'")
    texts = [str(engine.sql(f"select t::text from suimon.{name} t")) for (name,) in tables]
    return "\n".join(texts)


def check_hidden(text: str) -> None:
    for trace in TRACES:
        assert trace not in text, f"{trace} was seen in {around(text, trace)}"


def around(text: str, trace: str) -> str:
    place = text.index(trace)
    return text[max(0, place - 100) : place + 40]


def ended(engine: Engine, pipeline: str, given: Any = None) -> Any:
    return engine.wait(engine.submit(pipeline, given), None)


def test_c66_secret_in_another_spelling(engine: Engine) -> None:
    """**Set up** a secret with a line break and special characters. **Do** print it in every
    spelling, raise it, return it, name items by it, pass it as an argument. **Must** show none of
    them in log, error, result, item name; nothing stored anywhere in the database holds it.
    """
    engine.module("m", CODE)
    engine.deploy()
    store(engine)
    worker = engine.command_worker(slots=2, env={"SUIMON_SECRET_KEY": KEY})
    prints = engine.submit("prints")
    engine.wait(prints)
    log = engine.log_of(prints)
    assert log.count(MARK) >= 18, log
    assert "the end" in log
    raised = ended(engine, "raises")
    assert MARK in raised.error["message"]
    assert MARK in raised.error["traceback"]
    assert MARK in ended(engine, "command").error["message"]
    returned = ended(engine, "returns").output
    assert returned == {
        "value": MARK, MARK: 1, "deep": [{"url": MARK}], "length": len(VALUE)
    }  # fmt: skip
    assert ended(engine, "awaits").error["message"] == MARK
    engine.wait(names := engine.submit("names"))
    keys = engine.sql("select item_key from suimon.runs where parent_id = %s order by 1", names)
    assert keys == [(f"file of {MARK}{n}",) for n in range(3)]
    refused = ended(engine, "checkpoints").error
    assert "may not hold a secret" in refused["message"]
    check_hidden(everything_stored(engine))
    check_hidden(worker.log)


def test_a_task_has_only_what_its_decorator_names(engine: Engine) -> None:
    engine.module("m", CODE)
    engine.deploy()
    store(engine)
    store(engine, "crn", "another value")
    engine.command_worker(slots=1, env={"SUIMON_SECRET_KEY": KEY})
    run = ended(engine, "curious")
    assert (run.status, run.attempt) == ("failed", 1)
    assert 'not granted the secret "crn"' in run.error["message"]
    assert '@task(secrets=["crn"])' in run.error["hint"]


def test_a_missing_secret_fails_with_what_to_do_and_a_retry_finds_it(engine: Engine) -> None:
    engine.module(
        "m",
        """
        @pipeline(concurrency=None, secrets=["crm"], retries=3)
        def uses(ctx):
            return len(ctx.secret("crm"))
        """,
    )
    engine.deploy()
    engine.command_worker(slots=1, env={"SUIMON_SECRET_KEY": KEY})
    run = ended(engine, "uses")
    assert (run.status, run.attempt) == ("failed", 1)
    assert run.error["code"] == "SUI-8001"
    assert "suimon secrets set crm" in run.error["hint"]
    store(engine)
    from suimon.run import retry

    plan = retry.plan(engine.conn, [run.id])
    retry.apply(engine.conn, plan, actor="test")
    assert engine.wait(run.id).output == len(VALUE)


def test_a_worker_without_a_key_says_which_setting_is_missing(engine: Engine) -> None:
    engine.module(
        "m",
        CODE
        + """
@pipeline(concurrency=None)
def plain():
    return 1
""",
    )
    engine.deploy()
    store(engine)
    engine.command_worker(slots=1)
    assert engine.wait(engine.submit("plain")).output == 1
    run = ended(engine, "returns")
    assert run.error["code"] == "SUI-8002"
    assert "SUIMON_SECRET_KEY" in run.error["hint"]


def test_a_wrong_key_ends_the_worker_before_it_claims(engine: Engine) -> None:
    engine.module("m", CODE)
    engine.deploy()
    store(engine)
    run = engine.submit("returns")
    root = str(engine.project.root)
    for env in ({"SUIMON_SECRET_KEY": OTHER}, {"SUIMON_SECRET_KEY": "no key"}):
        worker = engine.command("worker", root, env=env)
        assert worker.wait() == 4
        assert "SUI-8003" in worker.log
        assert "Traceback" not in worker.log
        assert OTHER not in worker.log
    assert engine.run(run).status == "queued"
    assert engine.sql("select count(*) from suimon.workers") == [(0,)]


def test_references_to_environment_and_files_are_resolved_by_the_worker(
    engine: Engine, tmp_path: Path
) -> None:
    """The variable is in no environment of any process of the worker, and not in the slot's."""
    file = tmp_path / "token"
    file.write_text("token from a file\n")
    engine.module(
        "m",
        f"""
        @pipeline(concurrency=None, secrets=["env:HOOK_SECRET", "file:{file}"])
        def uses(ctx):
            assert "HOOK_SECRET" not in os.environ
            return [len(ctx.secret("env:HOOK_SECRET")), len(ctx.secret("file:{file}"))]
        """,
    )
    engine.deploy()
    env = {"HOOK_SECRET": "hook-secret-value", "SUIMON_SECRET_KEY": KEY}
    worker = engine.command_worker(slots=1, env=env)
    assert engine.wait(engine.submit("uses")).output == [17, 17]
    (slot,) = worker.slots()
    for pid in (worker.pid, worker.guardian(), slot):
        for name in ("environ", "cmdline"):
            shown = Path(f"/proc/{pid}/{name}").read_bytes()
            for hidden in (b"hook-secret-value", b"HOOK_SECRET", KEY.encode(), b"SECRET_KEY"):
                assert hidden not in shown, (pid, name)


def test_no_task_is_granted_the_engines_own_variables(engine: Engine) -> None:
    from suimon.errors import DefinitionError

    engine.module(
        "m",
        """
        @pipeline(concurrency=None, secrets=["env:SUIMON_DATABASE_URL"])
        def greedy(ctx):
            return ctx.secret("env:SUIMON_DATABASE_URL")
        """,
    )
    with pytest.raises(DefinitionError, match="no task may have it"):
        engine.deploy()
    worker = engine.command("worker", str(engine.folder), "--env", "SUIMON_SECRET_KEY")
    assert worker.wait() != 0
    assert "to every task" in worker.log
