"""C18: the same webhook delivery twice at the same moment."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from support.engine import Engine
from support.hooks import Answer, post
from support.servers import EngineServer

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

CODE = """
from suimon import Webhook

@pipeline(concurrency=None, on=Webhook("orders", preset="generic", key_header="X-Delivery"))
def order(body, delivery_id, **rest):
    note("orders", delivery_id, body["n"])
    return body["n"]
"""


def test_c18_the_same_webhook_delivery_twice_at_the_same_moment(engine: Engine) -> None:
    """**Do** send the same body with the same delivery id 50 times in parallel over two servers,
    once more later, and once more after the run has ended. **Must** be one run, all answers 2xx
    naming it; another id with the same body is another run.
    """
    engine.module("m", CODE)
    engine.deploy()
    servers = [EngineServer(engine), EngineServer(engine)]
    body = b'{"n": 7}'

    def send(turn: int, name: str = "d-1") -> Answer:
        return post(servers[turn % 2].port, "orders", body, {"X-Delivery": name})

    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(send, range(50)))
    # ten minutes later: both have become old
    engine.sql("update suimon.deliveries set arrived_at = arrived_at - interval '10 min'")
    engine.sql("update suimon.runs set created_at = created_at - interval '10 min'")
    answers.append(send(0))
    engine.worker()
    run = answers[0].json["run_id"]
    assert engine.wait(run).output == 7
    answers.append(send(1))

    assert {answer.status for answer in answers} == {200, 202}
    assert {answer.json["run_id"] for answer in answers} == {run}
    assert [answer.json["duplicate"] for answer in answers].count(False) == 1
    assert all(answer.json.get("same_input", True) for answer in answers)
    other = send(0, "d-2")
    assert other.status == 202
    assert other.json["run_id"] != run
    engine.wait(other.json["run_id"])
    assert engine.noted("orders", 2) == [["d-1", "7"], ["d-2", "7"]]
    assert engine.one("select count(*) from suimon.runs") == 2
