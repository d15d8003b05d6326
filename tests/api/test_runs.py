"""Runs over HTTP: started once a key, refused when one is in the way, paged, awaited, changed."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2 as httpx
import pytest
from support.lab import Lab
from support.serving import ServeProcess
from support.wait import wait_until

RUNS = "/api/v1/runs"


def start(server: ServeProcess, pipeline: str = "free", **more: Any) -> httpx.Response:
    headers = {"Idempotency-Key": more.pop("key")} if "key" in more else {}
    return server.post(RUNS, {"pipeline": pipeline, **more}, headers=headers)


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The answer is a problem with this status and code."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    about = answer.json()
    assert about["status"] == status
    assert about["code"] == code
    assert about["type"] == f"/docs/errors#{code}"
    assert about["request_id"] == answer.headers["x-request-id"]
    return dict(about)


def test_a_start_is_201_and_names_its_run(server: ServeProcess, lab: Lab) -> None:
    made = start(server, input={"n": 1})
    assert made.status_code == 201
    assert made.headers["location"] == f"{RUNS}/{made.json()['id']}"
    assert made.json()["duplicate"] is False
    assert server.get(made.headers["location"]).json()["input"] == {"n": 1}


def test_the_same_key_again_is_200_with_the_same_run(server: ServeProcess, lab: Lab) -> None:
    first = start(server, input={"n": 1}, key="k")
    again, other = start(server, input={"n": 1}, key="k"), start(server, input={"n": 2}, key="k")
    assert [first.status_code, again.status_code, other.status_code] == [201, 200, 200]
    assert {first.json()["id"]} == {again.json()["id"], other.json()["id"]}
    assert (again.json()["duplicate"], again.json()["same_input"]) == (True, True)
    assert (other.json()["duplicate"], other.json()["same_input"]) == (True, False)


def test_fifty_starts_with_one_key_at_once_make_one_run(server: ServeProcess, lab: Lab) -> None:
    with ThreadPoolExecutor(50) as threads:
        found = list(threads.map(lambda _: start(server, "one", key="race"), range(50)))
    assert sorted(one.status_code for one in found) == [200] * 49 + [201]
    assert len({one.json()["id"] for one in found}) == 1
    assert lab.one("select count(*) from suimon.runs") == 1


def test_a_persons_start_meets_the_run_in_the_way(server: ServeProcess, lab: Lab) -> None:
    first = start(server, "one").json()["id"]
    about = problem(start(server, "one"), 409, "SUI-3004")
    assert about["run_id"] == first
    assert '"queue": true' in about["hint"]
    assert start(server, "one", queue=True).status_code == 201


def test_a_full_pipeline_is_429_with_retry_after(server: ServeProcess, lab: Lab) -> None:
    assert start(server, "full").status_code == 201
    refused = start(server, "full")
    problem(refused, 429, "SUI-3005")
    assert 1 <= int(refused.headers["retry-after"]) <= 300
    assert lab.one("select count(*) from suimon.runs") == 1


def test_an_unknown_name_is_404_and_says_what_was_meant(server: ServeProcess, lab: Lab) -> None:
    about = problem(start(server, "fre"), 404, "SUI-3001")
    assert "free" in about["hint"]
    problem(server.get(f"{RUNS}/{'0' * 32}"), 404, "SUI-3002")
    problem(server.get(f"{RUNS}/what"), 404, "SUI-3002")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b'{"pipeline": "free", "input": NaN}', 400, "SUI-4001"),
        (b'{"pipeline": "free", "input": {"a": "\\u0000"}}', 400, "SUI-4001"),
        (b'{"pipeline": "free", "input": {"a": "\\ud800"}}', 400, "SUI-4001"),
        (b'{"pipeline": "free", "input": 123456789012345678901234567890}', 400, "SUI-4001"),
        (b'{"pipeline": "free", "input": {"a": 12345678901234567.89}}', 400, "SUI-4001"),
        (b'{"pipeline": "free", "input": [1e-400]}', 400, "SUI-4001"),
        (b'{"pipeline": "free", "input": ' + b"[" * 5000 + b"]" * 5000 + b"}", 400, "SUI-4001"),
        (b'{"pipeline": "free", "input": ' + b"[" * 300 + b"]" * 300 + b"}", 400, "SUI-4001"),
        (b'{"pipeline": "free", "inputs": {}}', 422, "SUI-7007"),
        (b'{"pipeline": 5}', 422, "SUI-7007"),
        (b'{"pipeline": "free", "queue": "yes"}', 422, "SUI-7007"),
        (b"[]", 422, "SUI-7007"),
        (b"\xff\xfe", 400, "SUI-4001"),
        (b"", 422, "SUI-7007"),
        (b"{", 400, "SUI-4001"),
    ],
)
def test_a_body_that_cannot_be_used_is_refused(
    server: ServeProcess, lab: Lab, body: bytes, status: int, code: str
) -> None:
    answer = server.ask(
        "POST", RUNS, content=body, headers={"content-type": "application/json"}
    )  # fmt: skip
    problem(answer, status, code)
    assert lab.one("select count(*) from suimon.runs") == 0


def test_each_mistake_has_its_pointer(server: ServeProcess, lab: Lab) -> None:
    about = problem(server.post(RUNS, {"queue": 1, "x/y": 2}), 422, "SUI-7007")
    assert {one["pointer"] for one in about["errors"]} == {"/pipeline", "/queue", "/x~1y"}


def test_a_body_that_is_not_said_to_be_json_is_415(server: ServeProcess, lab: Lab) -> None:
    text = json.dumps({"pipeline": "free"})
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/json; charset=x"):
        answer = server.ask("POST", RUNS, content=text, headers={"content-type": kind})
        problem(answer, 415, "SUI-7006")


def test_a_body_above_the_limit_is_413_and_one_below_is_a_run(
    server: ServeProcess, lab: Lab
) -> None:
    fits = start(server, input="x" * (16 * 1024 * 1024 - 2))
    assert fits.status_code == 201, fits.text[:300]
    problem(start(server, input="x" * (16 * 1024 * 1024)), 413, "SUI-4002")
    problem(start(server, input="x" * (17 * 1024 * 1024)), 413, "SUI-4002")


def test_a_key_that_is_no_text_is_refused(server: ServeProcess, lab: Lab) -> None:
    body = json.dumps({"pipeline": "free"}).encode()
    for key, status in ((b"\xff\xfe", b"400"), (b"k" * 1025, b"422"), ("ключ".encode(), b"201")):
        head = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += b"Connection: close\r\nContent-Length: %d\r\nIdempotency-Key: %s\r\n\r\n"
        answer = server.raw(head % (RUNS.encode(), len(body), key) + body)
        assert answer.split(b" ")[1] == status, answer


# ------------------------------------------------------------------------------- pages


def test_pages_hold_every_run_once_while_others_come(server: ServeProcess, lab: Lab) -> None:
    ids = sorted(lab.submit("free") for _ in range(25))  # ids of one millisecond have no order
    seen, cursor = [], None
    while True:
        asked = {"limit": 10, "pipeline": "free"} | ({"cursor": cursor} if cursor else {})
        page = server.get(RUNS, params=asked).json()
        seen += [one["id"] for one in page["items"]]
        lab.submit("free")
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == ids[::-1]


def test_a_cursor_of_another_list_is_refused(server: ServeProcess, lab: Lab) -> None:
    for _ in range(3):
        lab.submit("free")
    cursor = server.get(RUNS, params={"limit": 2}).json()["next_cursor"]
    assert server.get(RUNS, params={"limit": 1, "cursor": cursor}).status_code == 200
    for asked in (
        {"cursor": cursor, "pipeline": "free"},
        {"cursor": cursor, "status": "failed"},
        {"cursor": cursor[:-2]},
        {"cursor": "x"},
        {"cursor": "é"},
        {"cursor": ""},
    ):
        problem(server.get(RUNS, params=asked), 400, "SUI-7003")
    problem(server.get("/api/v1/audit", params={"cursor": cursor}), 400, "SUI-7003")


def test_an_unknown_parameter_is_refused(server: ServeProcess, lab: Lab) -> None:
    about = problem(server.get(RUNS, params={"state": "failed"}), 422, "SUI-7007")
    assert about["errors"][0]["pointer"] == "/query/state"


# ------------------------------------------------------------------------------- waiting


def test_a_long_poll_answers_when_the_run_ends(server: ServeProcess, lab: Lab) -> None:
    run = lab.submit("free")
    answers: list[httpx.Response] = []
    asked = {"wait": "30"}
    poll = threading.Thread(
        target=lambda: answers.append(server.get(f"{RUNS}/{run}", params=asked))
    )
    poll.start()
    worker = lab.worker()
    lab.end(worker, lab.claim_run(worker, run))
    poll.join(25)
    assert answers[0].json()["status"] == "succeeded"


def test_a_long_poll_gives_up_and_shows_what_is(server: ServeProcess, lab: Lab) -> None:
    run = lab.submit("free")
    assert server.get(f"{RUNS}/{run}", params={"wait": "0.3"}).json()["status"] == "queued"


def test_more_clients_wait_than_there_are_threads(server: ServeProcess, lab: Lab) -> None:
    """60 wait at 10 connections, and a start is still answered; then all of them are."""
    run = lab.submit("free")
    url = f"{server.base}{RUNS}/{run}"
    with ThreadPoolExecutor(60) as threads:
        waiting = [
            threads.submit(httpx.get, url, params={"wait": "30"}, timeout=40) for _ in range(60)
        ]
        assert start(server).status_code == 201
        worker = lab.worker()
        lab.end(worker, lab.claim_run(worker, run))
        assert {one.result().json()["status"] for one in waiting} == {"succeeded"}


def test_log_text_is_followed_to_the_end_of_the_run(server: ServeProcess, lab: Lab) -> None:
    run = lab.submit("free")
    worker = lab.worker()
    row = lab.claim_run(worker, run)
    note = (
        "insert into suimon.logs (run_id, claim_no, stream, body)"
        " values (%s, %s, 'log', %s) returning seq"
    )
    first = lab.one(note, run, row.claim_no, "first\n")
    lines = []
    url, asked = f"{RUNS}/{run}/logs", {"follow": "true", "seconds": "30"}
    with server.client.stream("GET", url, params=asked) as stream:
        assert stream.headers["content-type"] == "application/x-ndjson"
        for line in stream.iter_lines():
            lines.append(json.loads(line))
            if len(lines) == 1:
                last = lab.one(note, run, row.claim_no, "second\n")
                lab.end(worker, row)
    assert [one.get("text") for one in lines] == ["first\n", "second\n", None]
    assert lines[-1] == {"end": True, "over": True, "next_after": f"{row.claim_no}:{last}"}
    rest = server.get(url, params={"after": f"{row.claim_no}:{first}"}).json()
    assert [one["text"] for one in rest["items"]] == ["second\n"]
    assert rest["over"] is True
    events = server.get(url, params=asked, headers={"accept": "text/event-stream"})
    assert events.text.startswith("event: piece\ndata: {")
    assert "event: end\n" in events.text


# ------------------------------------------------------------------------------- edits


def test_a_priority_is_edited_with_the_etag_of_what_was_read(
    server: ServeProcess, lab: Lab
) -> None:
    where = f"{RUNS}/{lab.submit('free')}/priority"
    seen = server.get(where)
    assert seen.json()["priority"] == 2
    problem(server.ask("PUT", where, json={"priority": 0}), 428, "SUI-7009")
    mark = {"If-Match": seen.headers["etag"]}
    done = server.ask("PUT", where, json={"priority": 0}, headers=mark)
    assert (done.status_code, done.json()["priority"]) == (200, 0)
    late = problem(server.ask("PUT", where, json={"priority": 3}, headers=mark), 412, "SUI-7008")
    assert late["current"] == done.headers["etag"]
    anyhow = server.ask("PUT", where, json={"priority": 3}, headers={"If-Match": "*"})
    assert anyhow.status_code == 200


def test_limits_are_edited_by_one_of_two(server: ServeProcess, lab: Lab) -> None:
    where = "/api/v1/pipelines/one/limits"
    mark = {"If-Match": server.get(where).headers["etag"]}
    body = {"concurrency": 3, "by": "somebody", "why": "month's end"}
    with ThreadPoolExecutor(8) as threads:
        found = list(
            threads.map(lambda n: server.ask(
                "PATCH", where, json={**body, "max_queued": n + 1}, headers=mark), range(8))
        )  # fmt: skip
    assert sorted(one.status_code for one in found) == [200] + [412] * 7
    now = server.get(where).json()
    assert now["concurrency"] == 3
    limit = lab.one("select lane_limit from suimon.lanes where name = 'pipeline:one'")
    assert limit == 3
    lab.pipeline("one", concurrency=1, priority=1)  # a deploy does not take the edit back
    assert server.get(where).json() == now
    records = server.get("/api/v1/audit", params={"action": "limits"}).json()["items"]
    assert [one["actor"] for one in records] == ["somebody"]


# ------------------------------------------------------------------------------- acts


def test_a_run_is_cancelled_retried_and_run_anew(server: ServeProcess, lab: Lab) -> None:
    run = start(server).json()["id"]
    asked = server.post(f"{RUNS}/{run}/cancel", {"by": "op", "why": "no need"})
    assert asked.status_code == 202
    wait_until(lambda: lab.status(run) == "cancelled", 10, "cancelled")
    problem(server.post(f"{RUNS}/{run}/cancel"), 409, "SUI-3004")
    assert server.post(f"{RUNS}/{run}/retry", {"dry_run": True}).json()["dry_run"] is True
    assert lab.status(run) == "cancelled"
    assert server.post(f"{RUNS}/{run}/retry").json()["retried"] == 1
    assert lab.status(run) == "queued"
    again = server.post(f"{RUNS}/{run}/rerun", {"why": "compare"})
    assert (again.status_code, again.json()["rerun_of"]) == (201, run)
    who = [one["actor"] for one in server.get("/api/v1/audit").json()["items"]]
    assert set(who) == {"op", "api"}


def test_many_are_cancelled_by_a_filter_in_bounded_steps(server: ServeProcess, lab: Lab) -> None:
    for _ in range(7):
        lab.submit("free")
    asked = {"filter": "pipeline=free,since=1h", "limit": 5}
    dry = server.post("/api/v1/bulk/cancel", {**asked, "dry_run": True})
    assert dry.status_code == 200, "nothing was accepted to be done"
    preview = dry.json()
    assert (preview["runs"], preview["more"]) == (5, True)
    first = server.post("/api/v1/bulk/cancel", asked).json()
    rest = server.post("/api/v1/bulk/cancel", asked).json()
    assert (first["done"], rest["done"], rest["more"]) == (5, 2, False)
    about = problem(server.post("/api/v1/bulk/retry", {"filter": ""}), 422, "SUI-3003")
    assert about["path"] == "filter"


def test_graphs_are_deployed_as_json_all_or_none(server: ServeProcess, lab: Lab) -> None:
    graph = {"suimon": 1, "pipeline": "sent", "vertices": {
        "t": {"type": "TASK", "config": {"task": "m:f"}}}}  # fmt: skip
    broken = {**graph, "pipeline": "broken", "vertices": {"t": {"type": "TASKS"}}}
    about = problem(
        server.post("/api/v1/deployments", {"pipelines": [graph, broken]}), 422, "SUI-2001"
    )
    assert about["mistakes"][0]["vertex"] == "t"
    problem(server.get("/api/v1/pipelines/sent"), 404, "SUI-3001")
    checked = server.post("/api/v1/deployments", {"pipelines": [graph], "dry_run": True})
    assert checked.json()["pipelines"][0]["what"] == "checked"
    made = server.post("/api/v1/deployments", {"pipelines": [graph]})
    assert made.json()["pipelines"][0]["what"] == "new"
    shown = server.get("/api/v1/pipelines/sent/graph")
    assert shown.json() == graph


@pytest.mark.parametrize(
    ("target", "hint"),
    [("free", "it is deployed; send its graph along"), ("fee", "send the one you mean along")],
)
def test_a_deployment_that_names_a_pipeline_says_what_is_deployed(
    server: ServeProcess, target: str, hint: str
) -> None:
    """Known are not only those of the body."""
    graph = {"suimon": 1, "pipeline": "sent", "vertices": {
        "t": {"type": "START", "config": {"pipeline": target}}}}  # fmt: skip
    answer = server.post("/api/v1/deployments", {"pipelines": [graph]})
    (mistake,) = problem(answer, 422, "SUI-2001")["mistakes"]
    assert mistake["message"] == f'there is no pipeline "{target}"'
    assert hint in mistake["hint"]
    assert "free" in mistake["hint"] or target == "free"
