"""The HTTP vertex: what it sends, what becomes of each answer, what it may not reach."""

from __future__ import annotations

from typing import Any

import pytest
from support.counting_server import CountingServer
from support.engine import Engine

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

OPEN = {"SUIMON_ALLOW_ADDRESSES": "127.0.0.1"}

CODE = """
from suimon import Destination

far = Destination("far", base_url="{url}/base", timeout="2s", concurrency=2)
p = Pipeline("p", concurrency=None)
p.http("call", far, path=p.input.path, json=p.input.body, params={{"n": p.input.n}},
       headers={{"X-Kind": "test"}}, retries=2, backoff="50ms..50ms")
g = Pipeline("g", concurrency=None)
g.http("call", far, path=g.input.path, expect=[200, 404], retries=0)
"""


def start(engine: Engine, url: str, environment: dict[str, str] = OPEN) -> None:
    engine.module("m", CODE.format(url=url))
    engine.deploy()
    engine.worker(slots=1, environment=environment)


def given(path: str) -> dict[str, Any]:
    return {"path": path, "body": {"a": [1]}, "n": 7}


def test_it_sends_what_it_is_given_and_gives_back_the_answer(engine: Engine) -> None:
    with CountingServer(answer='{"id": 5}', keep_headers=True) as far:
        start(engine, far.url)
        run = engine.submit("p", given("/orders"))
        output = engine.wait(run).output
        (call,) = far.calls()
    assert (output["status"], output["json"]) == (200, {"id": 5})
    assert output["headers"]["content-type"] == "application/json"
    assert (call.method, call.path, call.body) == ("POST", "/base/orders?n=7", '{"a":[1]}')
    assert call.headers["x-kind"] == "test"
    assert call.headers["idempotency-key"] == f"{run}:call"


def test_passing_failures_are_tried_again_and_refusals_are_not(engine: Engine) -> None:
    statuses = {"/base/a?n=7": [500, 503, 200], "/base/b?n=7": [404], "/base/c?n=7": [500]}
    with CountingServer(statuses=statuses) as far:
        start(engine, far.url)
        assert engine.wait(engine.submit("p", given("/a"))).output["status"] == 200
        refused = engine.wait(engine.submit("p", given("/b")), "failed").error
        failed = engine.wait(engine.submit("p", given("/c")), "failed").error
        paths = [call.path for call in far.calls()]
    assert (refused["type"], refused["status"]) == ("CallRefused", "404")
    assert (failed["type"], failed["status"]) == ("CallFailed", "500")
    assert [paths.count(path) for path in statuses] == [3, 1, 3]


def test_expected_statuses_are_good_and_other_text_is_kept(engine: Engine) -> None:
    statuses = {"/base/none": [404]}
    with CountingServer(statuses=statuses, answer="nobody here", kind="text/plain") as far:
        start(engine, far.url)
        output = engine.wait(engine.submit("g", {"path": "/none"})).output
        assert (output["status"], output["text"]) == (404, "nobody here")
        bad = engine.wait(engine.submit("g", {"path": "http://other.example/"}), "failed").error
        assert "must begin with one /" in bad["message"]


def test_an_answer_that_never_comes_is_cut_off(engine: Engine) -> None:
    with CountingServer(takes=30.0) as far:
        start(engine, far.url)
        error = engine.wait(engine.submit("g", {"path": "/slow"}), "failed").error
    assert error["type"] == "CallFailed"
    assert "no answer in time" in error["message"]


def test_addresses_of_this_machine_are_closed_unless_they_are_opened(engine: Engine) -> None:
    with CountingServer() as far:
        start(engine, far.url, {})
        error = engine.wait(engine.submit("g", {"path": "/"}), "failed").error
        assert "may not be connected to" in error["message"]
        assert far.count() == 0


def test_nobody_there_is_told_after_the_tries(engine: Engine) -> None:
    with CountingServer() as far:
        url = far.url
    start(engine, url)
    error = engine.wait(engine.submit("g", {"path": "/"}), "failed").error
    assert error["type"] == "CallFailed"
