"""Webhooks while servers and workers are killed: every id has its run, and nothing vanishes."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.engine import Engine
from support.hooks import Sender
from support.servers import EngineServer
from support.wait import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(240), pytest.mark.long]

CODE = """
from suimon import Webhook

@pipeline(concurrency=4, max_queued=50, on=Webhook("orders", preset="generic"))
def order(body, delivery_id, **rest):
    time.sleep(0.01)
    note("orders", delivery_id)
    return body["n"]
"""
COUNT = 2000
DISTINCT = 1400
CLIENTS = 8


def test_each_id_has_one_run_while_servers_and_workers_are_killed(engine: Engine) -> None:
    """2,000 webhooks from 8 clients, 30 % of them twice, a queue of 50, two of each process."""
    engine.module("m", CODE)
    engine.deploy()
    environment = {"SUIMON_HEARTBEAT": "400ms", "SUIMON_SWEEP": "500ms"}
    servers = [EngineServer(engine, environment=environment) for _ in range(2)]
    workers = [engine.command_worker() for _ in range(2)]
    rng = random.Random(5)
    names = [f"d-{n}" for n in range(DISTINCT)]
    names += rng.choices(names, k=COUNT - DISTINCT)
    rng.shuffle(names)
    sender = Sender([one.port for one in servers], "orders", "Idempotency-Key", pause_s=0.1)

    def send(name: str) -> tuple[str, str]:
        answer = sender.deliver(name, b'{"n": %d}' % int(name[2:]))
        return name, answer.json["run_id"]

    def taken(count: int) -> None:
        def enough() -> bool:
            found = sender.statuses()
            return found.get(200, 0) + found.get(202, 0) >= count

        wait_until(enough, 90, f"{count} taken; {sender.statuses()}")

    with ThreadPoolExecutor(CLIENTS) as threads:
        futures = [threads.submit(send, name) for name in names]
        for turn in range(4):
            taken(200 + 400 * turn)
            servers[turn % 2].kill9()
            workers[turn % 2].kill9()
            if turn == 0:  # nobody works: the queue fills up
                workers[1].kill9()
                wait_until(lambda: sender.statuses().get(429, 0) >= 20, 60, "20 answers 429")
                workers[1] = engine.command_worker()
            servers[turn % 2].start()
            workers[turn % 2] = engine.command_worker()
        answers = [future.result(120) for future in futures]

    statuses = sender.statuses()
    assert set(statuses) <= {200, 202, 429, 503}, statuses
    assert statuses[429] >= 20
    assert all(
        1 <= int(one.answer.headers["retry-after"]) <= 300
        for one in sender.tries
        if one.answer is not None and one.answer.status in (429, 503)
    )
    run_of = dict(answers)
    assert all(run_of[name] == run for name, run in answers)  # a repetition names the same run
    stored = engine.sql("select input ->> 'delivery_id', id::text from suimon.runs")
    assert sorted(stored) == sorted(run_of.items())
    assert len(stored) == DISTINCT
    engine.wait_all(list(run_of.values()), 90)
    assert {line[0] for line in engine.noted("orders", DISTINCT)} == set(run_of)
    delivered = engine.sql(
        "select source, count(*) from suimon.deliveries"
        " where state = 'delivered' and not duplicate group by 1 having count(*) > 1"
    )
    assert delivered == []
