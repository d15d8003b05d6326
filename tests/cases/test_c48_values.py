"""C48, C49: NUL characters, lone surrogates, NaN and Infinity, whatever door they come through."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.engine import Engine
from support.hooks import bare, post
from support.servers import EngineServer

from suimon.core import jsonsafe
from suimon.errors import InvalidJson

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

HANDED = Path(__file__).parents[1] / "data" / "handed"
JSON = [("Content-Type", "application/json")]
CODE = """
from suimon import Webhook

@pipeline(concurrency=None)
def gives(file):
    with open(file, "rb") as text:
        return json.loads(text.read())

@pipeline(concurrency=None, on=Webhook("hook", preset="generic"))
def plain(body, **rest):
    return body
"""


@pytest.fixture
def server(engine: Engine) -> EngineServer:
    engine.module("m", CODE)
    engine.deploy()
    engine.worker(slots=1)
    return EngineServer(engine)


def refused(engine: Engine, server: EngineServer, name: str) -> str:
    """The file as a result, as an input and as a webhook's body; returns the step's message."""
    file = HANDED / name
    run = engine.submit("gives", {"file": str(file)})
    error = engine.wait(run, "failed").error
    assert error["type"] == "InvalidJson"
    with pytest.raises(InvalidJson):
        jsonsafe.loads(file.read_bytes())
    value = json.loads(file.read_bytes())
    with pytest.raises(InvalidJson):
        engine.submit("plain", {"body": value})
    answer = post(server.port, "hook", file.read_bytes(), JSON)
    assert answer.status in (400, 422), answer
    shown = bare(server.port, f"/api/v1/runs/{run}", b"", [], method="GET")
    # a strict reader takes what the API sends
    json.loads(shown.body, parse_constant=lambda name: pytest.fail(f"{name} in an answer"))
    again = engine.submit("plain", {"body": {"ok": 1}})
    assert engine.wait(again).output == {"ok": 1}
    return str(error["message"])


@pytest.mark.parametrize("name", ["json_nul.json", "json_lone_surrogate.json"])
def test_c48_nul_and_lone_surrogates(engine: Engine, server: EngineServer, name: str) -> None:
    """**Must**: the run reaches an end state, the message says where the character is, the input is
    refused, and the worker goes on.
    """
    assert "$." in refused(engine, server, name)


def test_c49_nan_and_infinity(engine: Engine, server: EngineServer) -> None:
    """**Must**: a step failure that names the key, the same everywhere, and no invalid JSON."""
    assert "$.consistency" in refused(engine, server, "json_nan.json")
