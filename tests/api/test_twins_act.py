"""The twins of the doors' commands do what those do: pauses, events, secrets, dead letters."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest
from support.lab import Lab
from support.serving import ServeProcess, serving
from support.storage import fill

from suimon.run import destinations, quotas

API = "/api/v1"
EVERY = {"type": "EVERY", "every": "1h", "anchor": "2026-01-01T00:00:00Z"}


def items(server: ServeProcess, path: str, **params: Any) -> list[dict[str, Any]]:
    answer = server.get(f"{API}/{path}", params=params)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["items"])


def test_a_pause_is_made_shown_and_lifted(server: ServeProcess, lab: Lab) -> None:
    asked = {"kind": "pipeline", "name": "free", "by": "op", "why": "the ledger moves"}
    assert server.post(f"{API}/pauses", asked).json()["changed"] is True
    shown = items(server, "pauses")
    assert [(one["name"], one["by"], one["why"]) for one in shown] == [
        ("free", "op", "the ledger moves")
    ]
    assert server.post(f"{API}/pauses/resume", asked).json()["resumed"] == ["pipeline:free"]
    assert items(server, "pauses") == []
    wrong = server.post(f"{API}/pauses", {"kind": "pool", "name": "nothing"})
    assert (wrong.status_code, wrong.json()["code"]) == (404, "SUI-3006")


def test_an_event_reaches_those_that_listen(server: ServeProcess, lab: Lab) -> None:
    lab.pipeline("listens", triggers=[{"type": "EVENT", "event": "order.*"}])
    asked = {"type": "order.paid", "payload": {"n": 1}, "key": "n-1"}
    first = server.post(f"{API}/events", asked)
    assert first.status_code == 202
    assert [one["pipeline"] for one in first.json()["listeners"]] == ["listens"]
    assert server.post(f"{API}/events", asked).json()["event_id"] == first.json()["event_id"]
    (waiting,) = items(server, "deliveries", state="waiting")
    shown = server.get(f"{API}/deliveries/{waiting['id']}").json()
    assert shown["input"]["payload"] == {"n": 1}


def test_schedules_are_listed_and_started_by_hand(server: ServeProcess, lab: Lab) -> None:
    lab.pipeline("hourly", concurrency=1, triggers=[EVERY])
    (trigger,) = items(server, "triggers", pipeline="hourly")
    assert server.get(f"{API}/triggers/{trigger['id']}").json()["deliveries"] == []
    (planned,) = items(server, "schedules", pipeline="hourly", count=3)
    assert len(planned["next"]) == 3
    made = server.post(f"{API}/triggers/{trigger['id']}/run")
    assert made.status_code == 201
    busy = server.post(f"{API}/triggers/{trigger['id']}/run")
    assert (busy.status_code, busy.json()["run_id"]) == (409, made.json()["id"])
    assert server.post(f"{API}/triggers/99/run").status_code == 404


def test_dead_letters_are_grouped_discarded_restored_and_requeued(
    server: ServeProcess, lab: Lab
) -> None:
    lab.pipeline("listens", triggers=[{"type": "EVENT", "event": "order.*"}])
    for n in range(3):
        server.post(f"{API}/events", {"type": "order.paid", "payload": {"n": n}})
    lab.sql(
        "update suimon.deliveries"
        " set state = 'dead', ended_at = now(), code = 'SUI-3003', why = 'no'"
    )
    (group,) = items(server, "dead-letters/groups")
    assert (group["count"], group["code"]) == (3, "SUI-3003")
    ids = [one["id"] for one in items(server, "deliveries", state="dead")]
    gone = server.post(f"{API}/dead-letters/discard", {"ids": ids[:1]})
    assert gone.json()["discarded"] == ids[:1]
    assert server.post(f"{API}/dead-letters/restore", {"ids": ids[:1]}).status_code == 200
    asked = {"ids": ids[:1], "input": {"n": "mended"}, "by": "op"}
    assert server.post(f"{API}/dead-letters/requeue", asked).json()["requeued"] == 1
    preview = server.post(f"{API}/dead-letters/requeue", {"all": True, "dry_run": True}).json()
    assert (preview["dead"], preview["requeued"]) == (2, 0)
    assert server.post(f"{API}/dead-letters/requeue", {"all": True}).json()["requeued"] == 2
    nothing = server.post(f"{API}/dead-letters/requeue", {})
    assert nothing.status_code == 422
    late = server.post(f"{API}/dead-letters/discard", {"ids": ids[:1]})
    assert (late.status_code, late.json()["code"]) == (409, "SUI-3004")


def test_a_channel_is_added_tested_and_forgotten(server: ServeProcess, lab: Lab) -> None:
    asked = {"name": "night", "email": "night@example.com", "kinds": ["run.failed"]}
    assert server.post(f"{API}/channels", asked).status_code == 201
    assert server.post(f"{API}/channels/night/test").status_code == 202
    (notice,) = items(server, "notices", channel="night")
    assert notice["state"] == "waiting"
    assert server.post(f"{API}/channels/night/disable").json()["changed"] is True
    assert server.ask("DELETE", f"{API}/channels/night").json()["state"] == "removed"
    assert server.get(f"{API}/channels/night").status_code == 404
    literal = {"name": "a", "webhook": "https://example.com/x", "secret": "a literal"}
    assert server.post(f"{API}/channels", literal).status_code == 422


def test_a_secret_goes_in_and_never_comes_out(api_url: str, lab: Lab, tmp_path: Path) -> None:
    value = "a-value-that-nobody-sees"
    key = {"SUIMON_SECRET_KEY": base64.b64encode(os.urandom(32)).decode()}
    with serving(api_url, tmp_path, "--no-duties", env=key) as server:
        put = server.ask("PUT", f"{API}/secrets/hook", json={"value": value, "by": "op"})
        assert put.json() == {"name": "hook", "version": 1}
        told = [
            server.get(f"{API}/{path}").text
            for path in ("secrets", "secrets/hook/uses", "audit", "status")
        ]
        assert '"hook"' in told[0]
        assert value not in "".join([*told, put.text, server.log])
        assert server.ask("DELETE", f"{API}/secrets/hook").json()["removed"] is True
        gone = server.ask("DELETE", f"{API}/secrets/hook")
        assert (gone.status_code, gone.json()["code"]) == (404, "SUI-8001")


def test_a_server_without_a_key_stores_no_secret(server: ServeProcess, lab: Lab) -> None:
    answer = server.ask("PUT", f"{API}/secrets/hook", json={"value": "a-value-nobody-sees"})
    assert (answer.status_code, answer.json()["code"]) == (409, "SUI-8002")
    assert "a-value" not in answer.text


def test_a_destination_is_edited_with_its_etag_and_held(server: ServeProcess, lab: Lab) -> None:
    given = {"rate": "20/s", "concurrency": 8}
    destinations.declare(lab.conn, [destinations.Declared("crm", given)])
    where = f"{API}/destinations/crm"
    seen = server.get(where)
    assert (seen.json()["rate"], seen.json()["concurrency"]) == ("20/s", 8)
    assert server.ask("PATCH", where, json={"concurrency": 2}).status_code == 428
    mark = {"If-Match": seen.headers["etag"]}
    done = server.ask("PATCH", where, json={"concurrency": 2}, headers=mark)
    assert (done.status_code, done.json()["concurrency"]) == (200, 2)
    assert server.ask("PATCH", where, json={"rate": None}, headers=mark).status_code == 412
    assert server.post(f"{where}/hold", {"seconds": 60, "why": "they asked"}).json()["held"] is True
    assert server.post(f"{where}/release").json()["held"] is False


@pytest.mark.parametrize(
    "place", ["destinations/crm", "quotas/all", "pipelines/p/limits", "storage"]
)
def test_an_edit_that_names_nothing_is_refused_and_recorded_nowhere(
    server: ServeProcess, lab: Lab, place: str
) -> None:
    destinations.declare(lab.conn, [destinations.Declared("crm", {"rate": "20/s"})])
    lab.pipeline("p")
    quotas.change(lab.conn, "all", {"per_day": 5}, actor="op")
    recorded = lab.one("select count(*) from suimon.audit")
    mark = {"If-Match": server.get(f"{API}/{place}").headers["etag"]}
    answer = server.ask("PATCH", f"{API}/{place}", json={"why": "?"}, headers=mark)
    assert (answer.status_code, answer.json()["code"]) == (422, "SUI-3003")
    assert server.get(f"{API}/{place}").headers["etag"] == mark["If-Match"]
    assert lab.one("select count(*) from suimon.audit") == recorded


def test_the_marks_of_the_store_are_edited_with_their_etag(server: ServeProcess, lab: Lab) -> None:
    """And while it is full, a large input is answered with 503 and the time to come again."""
    lab.pipeline("p")
    seen = server.get("/api/v1/storage")
    assert seen.json()["store"]["high_bytes"] is None
    mark = {"If-Match": seen.headers["etag"]}
    body = {"high_bytes": 1000, "why": "a small disk"}
    assert server.ask("PATCH", "/api/v1/storage", json=body).status_code == 428
    done = server.ask("PATCH", "/api/v1/storage", json=body, headers=mark)
    assert (done.json()["high_bytes"], done.json()["low_bytes"]) == (1000, 800)
    assert server.ask("PATCH", "/api/v1/storage", json=body, headers=mark).status_code == 412
    fill(lab, 1000)
    large = {"pipeline": "p", "input": {"text": "x" * 9000}}
    full = server.ask("POST", "/api/v1/runs", json=large)
    assert (full.status_code, full.json()["code"]) == (503, "SUI-3009")
    assert full.headers["retry-after"] == "30"
    event = {"type": "a.b", "payload": large["input"]}
    assert server.ask("POST", "/api/v1/events", json=event).status_code == 503
    assert server.ask("POST", "/api/v1/runs", json={"pipeline": "p"}).status_code == 201
    text = server.get("/metrics").text
    assert "suimon_store_bytes 1000.0" in text
    assert "suimon_store_high_bytes 1000.0" in text
