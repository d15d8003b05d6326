"""C08: a pooler in transaction mode between the engine and the database."""

from __future__ import annotations

import pytest
from support.engine import Engine
from support.pooler import pooler

from suimon import Client
from suimon.run import operate

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

CODE = """
from suimon import Event, Every, Pipeline, task

@pipeline(concurrency=None, max_queued=None)
def short(n=0):
    return n

@task
def double(n, ctx):
    return n * 2

@task
def sum_up(outcome, ctx):
    return sum(one.value for one in outcome.succeeded)

many = Pipeline("many")
kids = many.spawn("kids", double, many.input.numbers)
outcome = many.merge("outcome", kids)
many.run("total", sum_up, outcome)

asked = Pipeline("asked")
yes = asked.approve("yes")
asked.run("after", double, 4, after=[yes])

@pipeline(on=Every("1s"), concurrency=1)
def tick(scheduled_at, folded):
    return folded

@pipeline(on=Event("order.*"), concurrency=1)
def told(payload):
    return payload["n"]
"""


@pytest.mark.parametrize("listens", [False, True], ids=["polling", "with SUIMON_LISTEN_URL"])
def test_c08_everything_works_behind_a_pooler_in_transaction_mode(
    engine: Engine, listens: bool
) -> None:
    """Without a direct address for LISTEN it polls, and says so; nothing sleeps or clashes."""
    engine.module("m", CODE)
    engine.deploy()
    with pooler(engine.url) as pooled, Client(pooled) as client:
        workers = [
            engine.worker(url=pooled, listen_url=engine.url if listens else pooled, heartbeat_s=2.0)
            for _ in range(2)
        ]
        runs = [one.id for one in client.submit_many("short", [{"n": n} for n in range(500)])]
        fan_out = client.submit("many", {"numbers": list(range(50))}).id
        asked = client.submit("asked").id
        told = [client.emit("order.paid", {"n": n}) for n in range(20)]
        engine.wait_all(runs)
        assert engine.wait(fan_out).output == 2 * sum(range(50))
        waiting = "select count(*) from suimon.approvals where decision is null"
        engine.until(lambda: engine.one(waiting) == 1, "an approval waits")
        operate.decide(engine.conn, asked, "yes", approve=True, actor="ada")
        assert engine.wait(asked).output == 8
        done = "select count(*) from suimon.runs where pipeline = %s and status = 'succeeded'"
        engine.until(lambda: engine.one(done, "told") == len(told), "all events became runs")
        engine.until(lambda: engine.one(done, "tick") >= 5, "five instants have run")
        log = "\n".join(one.log for one in workers)
        assert "prepared statement" not in log
        assert ("LISTEN needs SUIMON_LISTEN_URL" in log) is not listens
        idle = "select count(*) from pg_stat_activity where state = 'idle in transaction'"
        engine.until(lambda: engine.one(idle) == 0, "no transaction is left open")
        for one in workers:
            one.term()
        assert [one.wait() for one in workers] == [0, 0]
