"""C68: webhooks with odd content types."""

from __future__ import annotations

import gzip

import pytest
from support.engine import Engine
from support.hooks import bare, post, raw
from support.servers import EngineServer

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

CODE = """
from suimon import Webhook

@pipeline(concurrency=None, on=Webhook("hook", preset="generic"))
def plain(body, **rest):
    return body
"""
ORDER = '{"order": "東京", "n": 1}'
DATA = {"order": "東京", "n": 1}
FORM = "application/x-www-form-urlencoded"
MULTIPART = (
    b'--x\r\nContent-Disposition: form-data; name="f"; filename="a.csv"\r\n\r\na,b\r\n--x--\r\n'
)


@pytest.fixture
def server(engine: Engine) -> EngineServer:
    engine.module("m", CODE)
    engine.deploy()
    return EngineServer(engine)


def test_c68_webhook_with_an_unexpected_content_type(engine: Engine, server: EngineServer) -> None:
    """**Do** send JSON under several names, forms, files, XML, nothing, gzip, Shift-JIS, broken
    JSON. **Must** accept each with its exact data or refuse it with 400, 413 or 415 and a reason;
    never a run with silently empty data, never a 500.
    """
    utf8 = ORDER.encode()
    sent: list[tuple[str | None, bytes, object]] = [
        ("application/json; charset=utf-8", utf8, DATA),
        ("application/vnd.x+json", utf8, DATA),
        ("text/plain", utf8, ORDER),
        (FORM, b"order=%E6%9D%B1%E4%BA%AC&n=1", {"order": "東京", "n": "1"}),
        ("multipart/form-data; boundary=x", MULTIPART, 415),
        ("application/xml", b"<order n='1'/>", "<order n='1'/>"),
        (None, utf8, DATA),
        (None, b"<order/>", 415),
        (None, b"", None),
        ("application/json", b"", 400),
        ("application/json; charset=Shift_JIS", ORDER.encode("shift_jis"), DATA),
        ("application/json", b"[1, 2]", [1, 2]),
        ("application/json", b"7", 7),
        ("application/json", b'{"order": ', 400),
        ("application/json", b'{"n": NaN}', 400),
        ("application/json", b'{"n": "\\u0000"}', 400),
        ("application/json", b'{"n": "\\ud800"}', 400),
        ("application/json", b'{"n": "' + b"x" * 2_000_000 + b'"}', 413),
    ]
    wanted = []
    for content_type, body, value in sent:
        headers = [] if content_type is None else [("Content-Type", content_type)]
        answer = bare(server.port, "/webhooks/hook", body, headers)
        if isinstance(value, int) and value >= 400:
            assert answer.status == value, (content_type, body[:50], answer)
            assert answer.json["detail"], answer
        else:
            assert answer.status == 202, (content_type, body[:50], answer)
            wanted.append((answer.json["run_id"], value))
    packed = post(server.port, "hook", gzip.compress(utf8), {"Content-Encoding": "gzip"})
    wanted.append((packed.json["run_id"], DATA))
    stored = dict(engine.sql("select id::text, input -> 'body' from suimon.runs"))
    assert stored == dict(wanted)
    engine.worker()
    engine.wait_all([run for run, _ in wanted])
    assert [engine.run(run).output for run, _ in wanted] == [value for _, value in wanted]


def test_c68_a_body_with_a_wrong_content_length(engine: Engine, server: EngineServer) -> None:
    """Too small a number cuts the body: broken JSON, and the rest is no request. Too large a one
    is never completed: no run, and the server goes on.
    """
    head = b"POST /webhooks/hook HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    short = raw(server.port, head + b"Content-Length: 5\r\n\r\n" + ORDER.encode())
    assert short.startswith(b"HTTP/1.1 400 ")
    long = raw(server.port, head + b"Content-Length: 500\r\n\r\n" + ORDER.encode(), finish=True)
    assert b" 202 " not in long
    for wrong in (b"-1", b"x", b"5, 6", b"99999999999999999999"):
        answer = raw(server.port, head + b"Content-Length: " + wrong + b"\r\n\r\n{}", finish=True)
        assert b" 202 " not in answer
        assert b" 500 " not in answer
    assert engine.one("select count(*) from suimon.runs") == 0
    assert post(server.port, "hook", b"{}").status == 202
