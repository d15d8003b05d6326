"""Quotas over HTTP: 429 with the numbers, edits by ETag."""

from __future__ import annotations

from typing import Any

import httpx2 as httpx
from support.lab import Lab
from support.serving import ServeProcess

API = "/api/v1"


def edit(
    server: ServeProcess, path: str, asked: dict[str, Any], match: str | None = None
) -> httpx.Response:
    headers = {} if match is None else {"If-Match": match}
    return server.ask("PATCH", path, json=asked, headers=headers)


def test_a_start_is_429_with_the_numbers_and_retry_after(server: ServeProcess, lab: Lab) -> None:
    made = edit(server, f"{API}/quotas/label:tenant:acme", {"per_day": 1})
    assert made.status_code == 201, made.text
    asked = {"pipeline": "free", "labels": ["tenant:acme"]}
    first = server.post(f"{API}/runs", asked)
    assert first.status_code == 201, first.text
    assert first.json()["labels"] == ["tenant:acme"]
    refused = server.post(f"{API}/runs", asked)
    about = refused.json()
    assert (refused.status_code, about["code"]) == (429, "SUI-3008")
    assert refused.headers["content-type"] == "application/problem+json"
    assert 1 <= int(refused.headers["retry-after"]) <= 300
    assert {key: about[key] for key in ("quota", "period", "limit", "used", "left", "asked")} == {
        "quota": "label:tenant:acme", "period": "day", "limit": 1, "used": 1, "left": 0, "asked": 1,
    }  # fmt: skip
    assert about["renews_at"]
    wrong = server.post(f"{API}/runs", {"pipeline": "free", "labels": ["acme"]})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "SUI-3003")
    listed = server.get(f"{API}/runs", params={"label": "tenant:acme"}).json()["items"]
    assert [one["id"] for one in listed] == [first.json()["id"]]


def test_a_quota_is_made_shown_changed_and_removed_by_its_etag(
    server: ServeProcess, lab: Lab
) -> None:
    one = f"{API}/quotas/label:path:a/b"
    assert server.get(one).status_code == 404
    made = edit(server, one, {"per_day": 5, "by": "op", "why": "a trial"})
    assert (made.status_code, made.json()["day_left"]) == (201, 5)
    mark = made.headers["etag"]
    assert server.get(one).headers["etag"] == mark
    assert edit(server, one, {"per_day": 6}).status_code == 428
    changed = edit(server, one, {"per_month": 60}, mark)
    assert (changed.json()["per_day"], changed.json()["per_month"]) == (5, 60)
    assert edit(server, one, {"per_day": 6}, mark).status_code == 412
    nothing = edit(server, one, {"per_day": None, "per_month": None}, "*")
    assert (nothing.status_code, nothing.json()["code"]) == (422, "SUI-3003")
    assert edit(server, f"{API}/quotas/some", {"per_day": 6}).status_code == 422
    (listed,) = server.get(f"{API}/quotas").json()["items"]
    assert (listed["name"], listed["version"]) == ("label:path:a/b", 2)
    assert server.ask("DELETE", one).status_code == 428
    gone = server.ask("DELETE", one, headers={"If-Match": changed.headers["etag"]})
    assert gone.json() == {"name": "label:path:a/b", "removed": True}
    assert server.get(one).status_code == 404
    stale = edit(server, one, {"per_day": 6}, mark)
    assert stale.status_code == 412
    acts = lab.sql("select actor, detail ->> 'why' from suimon.audit where action = 'quota'"
                   " order by id")  # fmt: skip
    assert acts == [("op", "a trial"), ("api", ""), ("api", "")]
