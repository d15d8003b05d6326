"""Who may ask: the loopback rule, the token, names, foreign pages, bounds; C73 is about pages."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from support.lab import Lab
from support.serving import ServeProcess, serving

from suimon.api import guard
from suimon.worker import processes

RUNS = "/api/v1/runs"
TOKEN = "a-token-of-sixteen-or-more"
BODY = b'{"pipeline": "free"}'


def head(line: str, *headers: str) -> bytes:
    return "\r\n".join([line, "Connection: close", *headers, "", ""]).encode()


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ")[1])


def test_another_address_needs_a_token(api_url: str, tmp_path: Path) -> None:
    """0.0.0.0, :: and a machine's own address: none is bound without it."""
    for host in ("0.0.0.0", "::"):
        refused = ServeProcess(api_url, tmp_path, "--host", host)
        assert refused.process.wait(30) == 2
        assert "SUIMON_API_TOKEN" in refused.log
        assert "listening" not in refused.log
        refused.close()


def test_a_token_that_is_too_short_is_refused_without_being_shown(
    api_url: str, tmp_path: Path
) -> None:
    refused = ServeProcess(api_url, tmp_path, env={"SUIMON_API_TOKEN": "short-one"})
    assert refused.process.wait(30) == 2
    assert "SUIMON_API_TOKEN must be 16" in refused.log
    assert "short-one" not in refused.log
    refused.close()


def test_a_token_is_demanded_wherever_it_is_set(api_url: str, lab: Lab, tmp_path: Path) -> None:
    """On loopback too; on /api and /metrics, and not on the health paths. No process shows it."""
    env = {"SUIMON_API_TOKEN": TOKEN}
    with serving(api_url, tmp_path, "--no-duties", "--host", "0.0.0.0", env=env) as server:
        server.address = ("127.0.0.1", server.address[1])
        server.client.base_url = f"http://127.0.0.1:{server.address[1]}"
        for path in (RUNS, "/api/v1/openapi.json", "/metrics", "/api", "/api/v1/nothing"):
            answer = server.get(path)
            assert answer.status_code == 401, path
            assert answer.headers["www-authenticate"] == 'Bearer realm="suimon"'
        for wrong in ("", "Bearer", "Bearer x", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer é"):
            given = {"authorization": wrong.encode()}
            assert server.get(RUNS, headers=given).status_code == 401, wrong
        right = {"authorization": f"bearer {TOKEN}", "host": "any.example"}
        assert server.get(RUNS, headers=right).status_code == 200
        assert server.post(RUNS, {"pipeline": "free"}, headers=right).status_code == 201
        assert server.get("/healthz").status_code == server.get("/readyz").status_code == 200
        seen = Path(f"/proc/{server.pid}/cmdline").read_bytes()
        for pid in (server.pid, *processes.children(server.pid)):
            seen += Path(f"/proc/{pid}/environ").read_bytes() if os.geteuid() == 0 else b""
        assert TOKEN.encode() not in seen
        assert b"postgresql://" not in seen
        assert TOKEN not in server.log


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "[::1]", "LOCALHOST"])
def test_the_machines_own_names_are_answered(server: ServeProcess, name: str) -> None:
    port = server.address[1]
    for host in (name, f"{name}:{port}"):
        assert status_of(server.raw(head(f"GET {RUNS} HTTP/1.1", f"Host: {host}"))) == 200


@pytest.mark.parametrize(
    "name", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "a@localhost", ""]
)
def test_a_name_that_was_made_to_point_here_is_refused(server: ServeProcess, name: str) -> None:
    for path in (RUNS, "/metrics", "/webhooks/x"):
        assert status_of(server.raw(head(f"GET {path} HTTP/1.1", f"Host: {name}"))) == 403
    two = head(f"GET {RUNS} HTTP/1.1", "Host: localhost", "Host: evil.example")
    assert status_of(server.raw(two)) == 400


FOREIGN = [
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://localhost:1"},
    {"origin": "http://["},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "cross-site", "origin": "https://evil.example"},
]


@pytest.mark.parametrize("headers", FOREIGN)
def test_c73_a_foreign_page_changes_nothing(
    server: ServeProcess, lab: Lab, headers: dict[str, str]
) -> None:
    """**Must** refuse starts, cancels, decisions, edits, webhooks (403), without effect."""
    run = lab.submit("free")
    asked = [
        ("POST", RUNS),
        ("POST", f"{RUNS}/{run}/cancel"),
        ("POST", f"{RUNS}/{run}/signals/go"),
        ("PUT", f"{RUNS}/{run}/priority"),
        ("PATCH", "/api/v1/pipelines/free/limits"),
        ("POST", f"/api/v1/approvals/{run}/ask/approve"),
        ("DELETE", RUNS),
        ("POST", "/webhooks/orders"),
    ]
    for method, path in asked:
        for kind in ("application/json", "text/plain", "application/x-www-form-urlencoded"):
            given = {"content-type": kind, "if-match": "*", **headers}
            answer = server.ask(method, path, content=BODY, headers=given)
            assert answer.status_code == 403, (method, path)
            assert "access-control-allow-origin" not in answer.headers
    assert lab.one("select count(*) from suimon.runs where not cancel_requested") == 1
    assert lab.one("select count(*) from suimon.audit") == 0


def test_c73_a_form_without_these_headers_is_no_request_either(
    server: ServeProcess, lab: Lab
) -> None:
    """An old browser's form POST or text/plain fetch: 415, without effect."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = server.ask("POST", RUNS, content=BODY, headers={"content-type": kind})
        assert answer.status_code == 415
    assert lab.one("select count(*) from suimon.runs") == 0


def test_c73_a_get_changes_nothing(server: ServeProcess, lab: Lab) -> None:
    """Every path of the document, asked with GET by a foreign page."""
    run = lab.submit("free")
    for path in server.get("/api/v1/openapi.json").json()["paths"]:
        where = path.replace("{run_id}", run).replace("{name}", "free").replace("{vertex}", "t")
        server.get(where, headers={"sec-fetch-site": "cross-site"})
    assert lab.statuses() == {"queued": 1}
    assert lab.one("select count(*) from suimon.audit") == 0


def test_our_own_page_may_ask(server: ServeProcess, lab: Lab) -> None:
    ours = {"origin": str(server.base), "sec-fetch-site": "same-origin"}
    assert server.post(RUNS, {"pipeline": "free"}, headers=ours).status_code == 201


# ------------------------------------------------------------------------------- bytes


@pytest.mark.parametrize(
    "path",
    ["/api/v1/runs?status=%00", "/api/v1/runs/%00", "/api/v1/runs?pipeline=%ff", "/api/%C3%28",
     "/api/v1/pipelines/%E0%80%80"],
)  # fmt: skip
def test_a_path_that_is_no_text_is_400(server: ServeProcess, path: str) -> None:
    assert status_of(server.raw(head(f"GET {path} HTTP/1.1", "Host: localhost"))) == 400


@pytest.mark.parametrize(
    "data",
    [b"\x00\r\n\r\n", b"GET / HTTP/1.1\r\n\x00: x\r\n\r\n", b"GET /\xff HTTP/1.1\r\n\r\n",
     b"GET  HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
     b"POST /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
     b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"],
)  # fmt: skip
def test_bytes_that_are_no_request_are_400(server: ServeProcess, data: bytes) -> None:
    assert status_of(server.raw(data)) == 400
    assert server.get("/healthz").status_code == 200


def test_a_head_without_end_is_cut_off(server: ServeProcess) -> None:
    answer = server.raw(b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * 200_000)
    assert answer == b"" or status_of(answer) == 431
    many = b"".join(b"X-%d: y\r\n" % n for n in range(20_000))
    answer = server.raw(b"GET / HTTP/1.1\r\n" + many)
    assert answer == b"" or status_of(answer) == 431


def test_a_body_that_is_said_to_be_too_large_is_413_before_it_is_read(server: ServeProcess) -> None:
    size = guard.BODY_BYTES + 1
    asked = head(
        f"POST {RUNS} HTTP/1.1", "Host: localhost", "Content-Type: application/json",
        f"Content-Length: {size}",
    )  # fmt: skip
    assert status_of(server.raw(asked)) == 413


def test_a_request_id_is_given_back(server: ServeProcess) -> None:
    mine = {"x-request-id": "abc-1"}
    assert server.get(RUNS, headers=mine).headers["x-request-id"] == "abc-1"
    for odd in ("a b", "x" * 200, "ä"):
        answer = server.raw(head(f"GET {RUNS} HTTP/1.1", "Host: localhost", f"X-Request-Id: {odd}"))
        found = re.search(rb"\r\nx-request-id: ([0-9a-f]{32})\r\n", answer)
        assert found, answer


def test_a_method_that_an_address_does_not_know_is_405_and_names_the_others(
    server: ServeProcess,
) -> None:
    answer = server.ask("DELETE", RUNS)
    assert (answer.status_code, answer.json()["code"]) == (405, "SUI-7005")
    assert answer.headers["allow"] == "GET, POST"
    assert server.get("/docs").status_code == server.get("/").status_code == 404
