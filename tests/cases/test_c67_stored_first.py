"""C67: never say 'accepted' before it is stored."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.engine import Engine
from support.hooks import Sender
from support.servers import EngineServer
from support.wait import wait_until

from suimon.core import clock
from suimon.db.embedded import EmbeddedServer

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(240), pytest.mark.long]

CODE = """
from suimon import Webhook

@pipeline(concurrency=None, max_queued=None, on=Webhook("hook", preset="generic"))
def take(body, **rest):
    return body
"""
COUNT = 1000
A_SECOND = 50


def test_c67_never_say_accepted_before_it_is_stored(
    own_engine: Engine, own_server: EmbeddedServer
) -> None:
    """**Do** send 1,000 numbered deliveries, 50 a second, while the database is restarted, made
    read-only, and a server is killed; repeat what was not answered 2xx. **Must** have a run for
    each 2xx, exactly one for each delivery at the end, and a 503 with Retry-After within 5 s.
    """
    own_engine.module("m", CODE)
    own_engine.deploy()
    servers = [EngineServer(own_engine, "--no-duties") for _ in range(2)]
    sender = Sender([one.port for one in servers], "hook", "Idempotency-Key", pause_s=0.3)
    began = clock.monotonic()
    pace = threading.Event()  # never set: a clock that can be waited for

    def send(n: int) -> str:
        pace.wait(max(0.0, began + n / A_SECOND - clock.monotonic()))
        return str(sender.deliver(f"d-{n}", b'{"n": %d}' % n).json["run_id"])

    def taken(count: int) -> None:
        def enough() -> bool:
            found = sender.statuses()
            return found.get(200, 0) + found.get(202, 0) >= count

        wait_until(enough, 60, f"{count} deliveries taken, {sender.statuses()}")

    def refused(count: int) -> None:
        wait_until(lambda: sender.statuses().get(503, 0) >= count, 60, f"{count} answers 503")

    with ThreadPoolExecutor(24) as threads:
        futures = [threads.submit(send, n) for n in range(COUNT)]
        taken(100)
        assert own_server.pid
        os.kill(own_server.pid, signal.SIGQUIT)
        refused(20)
        own_server.start()
        taken(300)
        own_engine.sql("alter system set default_transaction_read_only = on")
        own_engine.sql("select pg_reload_conf()")
        refused(sender.statuses()[503] + 40)
        own_engine.sql("alter system reset default_transaction_read_only")
        own_engine.sql("select pg_reload_conf()")
        taken(500)
        servers[0].kill9()
        taken(600)
        servers[0].start(ready=False)
        runs = {future.result(120) for future in futures}

    assert len(runs) == COUNT
    stored = own_engine.sql("select id::text, input ->> 'delivery_id' from suimon.runs")
    assert {run for run, _ in stored} == runs
    assert sorted(name for _, name in stored) == sorted(f"d-{n}" for n in range(COUNT))
    assert set(sender.statuses()) <= {200, 202, 503}
    for one in sender.tries:
        if one.answer is not None and one.answer.status == 503:
            assert int(one.answer.headers["retry-after"]) >= 1
            assert one.seconds < 5, one
        if one.answer is not None and one.answer.status in (200, 202):
            assert one.answer.json["run_id"] in runs
