"""Turns inside tasks: blocks, several calls of one try, secrets, and what a long wait means."""

from __future__ import annotations

import base64

import pytest
from support.counting_server import CountingServer, most_at_once
from support.engine import Engine

from suimon.db.connect import transaction
from suimon.run import destinations
from suimon.store import secret
from suimon.store.secret_key import KeyRing

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

OPEN = {"SUIMON_ALLOW_ADDRESSES": "127.0.0.1"}
KEY = base64.b64encode(bytes(range(32))).decode()
TOKEN = "far-token-91c7e2"


def test_blocks_of_plain_and_async_tasks_keep_their_place(engine: Engine) -> None:
    engine.module(
        "m",
        """
        from suimon import Destination
        far = Destination("far", concurrency=2, timeout="2s")

        @task
        def plain(n, ctx):
            with ctx.limit(far):
                note("in", n, time.monotonic())
                time.sleep(0.1)
                with ctx.limit("far"):  # its place counts already
                    pass
                note("out", n, time.monotonic())

        @task
        async def in_loop(n, ctx):
            async with ctx.limit("far"):
                note("in", n, time.monotonic())
                await asyncio.sleep(0.1)
                note("out", n, time.monotonic())

        p = Pipeline("p", concurrency=None)
        p.merge("a", p.spawn("x", plain, p.input.items))
        p.merge("b", p.spawn("y", in_loop, p.input.items))
        """,
    )
    engine.deploy()
    engine.worker(slots=4, async_per_slot=4)
    engine.wait(engine.submit("p", {"items": list(range(12))}))
    edges = [(float(at), 1) for _, at in engine.project.lines("in")]
    edges += [(float(at), -1) for _, at in engine.project.lines("out")]
    assert len(edges) == 48
    now = most = 0
    for _, step in sorted(edges):
        now += step
        most = max(most, now)
    assert most == 2


def test_calls_of_one_try_use_its_place_one_after_the_other(engine: Engine) -> None:
    """Ten calls at once under one place are ten calls in a row, each with a key of its own."""
    with CountingServer(takes=0.03, keep_headers=True) as far:
        engine.module(
            "m",
            f"""
            from suimon import Destination
            far = Destination("far", concurrency=1, rate="200/s", base_url="{far.url}")

            @task(destination=far)
            async def many(n, ctx):
                client = ctx.http("far")
                await asyncio.gather(*(client.post("/" + str(i)) for i in range(10)))

            p = Pipeline("p", concurrency=None)
            p.run("many", many, p.input.n)
            """,
        )
        engine.deploy()
        engine.worker(slots=1, async_per_slot=4, environment=OPEN)
        engine.wait(engine.submit("p", {"n": 1}))
        calls = far.calls()
    assert len(calls) == 10
    assert most_at_once(calls)[0] == 1
    assert len({call.headers["idempotency-key"] for call in calls}) == 10


def test_a_secret_goes_to_its_own_address_only_and_comes_before_the_call(engine: Engine) -> None:
    with CountingServer(keep_headers=True) as far, CountingServer(keep_headers=True) as other:
        engine.module(
            "m",
            f"""
            from suimon import Destination
            far = Destination("far", base_url="{far.url}", auth="secret:far_token")

            @task
            def call(n, ctx):
                note("begun", n)
                ctx.http("far").get("/theirs")
                ctx.http("far").get("{other.url}/elsewhere")
                sent = ctx.http("far").get("/theirs").request.headers
                ctx.log("header of " + sent["authorization"])

            p = Pipeline("p", concurrency=None)
            p.run("call", call, p.input.n)
            """,
        )
        engine.deploy()
        environment = {**OPEN, "SUIMON_SECRET_KEY": KEY}
        with transaction(engine.conn):
            secret.put(engine.conn, KeyRing.of(environment), "far_token", TOKEN, by="test")
        engine.worker(slots=1, environment=environment)
        runs = [engine.submit("p", {"n": n}) for n in range(3)]
        for run in runs:
            engine.wait(run)
        seen = [call.headers.get("authorization") for call in far.calls()]
        assert seen == [f"Bearer {TOKEN}"] * 6
        assert [call.headers.get("authorization") for call in other.calls()] == [None] * 3
        assert TOKEN not in engine.log_of(runs[0])
        assert "header of Bearer [secret" in engine.log_of(runs[0])


def test_a_long_wait_takes_the_task_out_and_costs_no_try(engine: Engine) -> None:
    with CountingServer() as far:
        engine.module(
            "m",
            f"""
            from suimon import Destination
            far = Destination("far", rate="1/s", burst=1, base_url="{far.url}")

            @task
            def call(n, ctx):
                ctx.checkpoint("first", lambda: note("once", n))
                return ctx.http("far").get("/" + str(n)).status_code

            @task
            def unknown(n, ctx):
                return ctx.http("fra").get("/")

            p = Pipeline("p", concurrency=None)
            p.merge("all", p.spawn("x", call, p.input.items))
            q = Pipeline("q", concurrency=None)
            q.run("x", unknown, q.input.n)
            """,
        )
        engine.deploy()
        engine.worker(slots=2, environment=OPEN)
        run = engine.submit("p", {"items": list(range(6))})
        engine.until(
            lambda: engine.one("select count(*) from suimon.runs where reason = 'limit:far'") >= 2,
            "runs that wait for their turn",
        )
        engine.wait(run, patience=60)
        assert len(engine.project.lines("once")) == 6
        assert far.count() == 6
        assert engine.one("select max(attempt) from suimon.runs") == 1
        error = engine.wait(engine.submit("q", {"n": 1}), "failed").error
        assert error["message"] == 'there is no destination "fra"'
        shown = destinations.show(engine.conn, "far")
        assert (shown["parked"], shown["at_once"]) == (0, 0)
