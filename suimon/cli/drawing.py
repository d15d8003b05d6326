"""A run, a child, a retry: how they look to a person."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from suimon.cli import follow, show
from suimon.core import words


def run(document: dict[str, Any], short: str | None) -> None:
    """What ``runs show`` prints."""
    error = document["error"] or {}
    show.pairs(
        {
            "run": document["id"],
            "pipeline": document["pipeline"],
            "status": document["status"] + (f" ({short})" if short else ""),
            "parent": document["parent_id"],
            "vertex": document["vertex"],
            "item": _item(document),
            "attempt": document["attempt"] or None,
            "interrupted": document["interruptions"] or None,
            "key": document["idempotency_key"],
            "labels": ", ".join(document["labels"] or ()) or None,
            "worker": document["worker"],
            "created": show.when(document["created_at"]),
            "last claimed": show.when(document["started_at"]) or None,
            "finished": show.when(document["finished_at"]) or None,
            "in all": _in_all(document),
            "input": show.value(document["input"], longest=300),
            "output": show.value(document["output"], longest=600)
            if document["status"] == "succeeded"
            else None,
            "error": f"{error.get('type')}: {error.get('message')}" if error else None,
            "hint": error.get("hint") if error else None,
        }
    )
    _steps(document)
    for fanout in document["fanouts"]:
        _fanout(document, fanout)
    _attempts(document["attempts"])


def _in_all(document: dict[str, Any]) -> str | None:
    """From its birth to its end, waiting included; `last claimed` moves with every wait."""
    if document["finished_at"] is None:
        return None
    born, ended = (datetime.fromisoformat(document[f"{one}_at"]) for one in ("created", "finished"))
    return show.span((ended - born).total_seconds())


def _item(document: dict[str, Any]) -> str | None:
    if document["position"] is None:
        return None
    key = f" ({document['item_key']})" if document["item_key"] else ""
    return f"{document['position']}{key}"


def _steps(document: dict[str, Any]) -> None:
    done = {one["vertex"]: one for one in document["steps"]}
    if not done and len(document["vertices"]) < 2:
        return
    show.lines()
    names = [*(v for v in done), *(v for v in document["vertices"] if v not in done)]
    rows = []
    for name in names:
        one = done.get(name)
        kind = document["vertices"].get(name, "")
        state, tries, took, why = "", "", "", ""
        if one is not None:
            state, tries, took = (
                one["status"],
                one["attempt"],
                show.microseconds(one["duration_us"]),
            )
            why = show.first_line((one["error"] or {}).get("message"))
        elif document["reason"] == f"approval:{name}":
            state = "waiting"
        rows.append((name, kind, state, tries, took, why))
    show.table(["STEP", "TYPE", "STATUS", "TRIES", "TOOK", "WHY"], rows)


def _fanout(document: dict[str, Any], fanout: dict[str, Any]) -> None:
    show.lines()
    run_id, counts = document["id"], fanout["counts"]
    verdict = f", {fanout['verdict']}" if fanout["verdict"] else ""
    tolerated = fanout["allowed_failures"]
    if document["finished_at"] and fanout["state"] == "open" and counts["expected"] is None:
        made = words.count(counts["total"], "child", "children")
        text = f'fan-out "{fanout["vertex"]}": given up, its list was not read to its end; {made}'
        text += f" made, {counts['succeeded']:,} succeeded" if counts["total"] else " made"
    else:
        text = f'fan-out "{fanout["vertex"]}": {fanout["state"]}{verdict}; '
        text += follow.counts_text(counts)
    show.lines(text + (f"; at most {tolerated:,} may fail" if tolerated else ""))
    times = fanout["durations"]
    if times:
        parts = [f"{p} {show.microseconds(times[f'{p}_us'])}" for p in ("p50", "p95", "p99", "max")]
        show.lines("  took " + ", ".join(parts))
    if fanout["errors"]:
        rows = [
            (one["count"], one["status"], one["type"], show.first_line(one["example"]), _first(one))
            for one in fanout["errors"]
        ]
        show.table(["CHILDREN", "STATUS", "ERROR", "FOR EXAMPLE", "FIRST"], rows)
        show.lines(f"  see them: suimon runs children {run_id} --status failed")
    if fanout["slowest_now"]:
        rows = [
            (c["position"], c["item_key"], show.span(c["running_for_s"]), c["worker"], c["id"])
            for c in fanout["slowest_now"]
        ]
        show.table(["RUNNING NOW", "KEY", "FOR", "WORKER", "ID"], rows)


def _first(one: dict[str, Any]) -> str:
    return str(one["first_key"] or one["first_position"])


def _attempts(found: list[dict[str, Any]]) -> None:
    if not found:
        return
    show.lines()
    rows = [
        (
            one["attempt"],
            one["vertex"],
            one["how"],
            one["worker"],
            show.when(one["ended_at"]),
            show.first_line((one["error"] or {}).get("message")),
        )
        for one in found
    ]
    show.table(["TRY", "STEP", "HOW", "WORKER", "ENDED", "WHY"], rows)


def why_of_child(one: dict[str, Any]) -> str:
    """Its reason or its error, in one line."""
    if one["reason"]:
        return str(one["reason"])
    return show.first_line((one["error"] or {}).get("message"))


def retry(answer: dict[str, Any]) -> None:
    """What runs again, or would."""
    verb = "would run again" if answer["dry_run"] else "run again"
    for fanout in answer["fanouts"]:
        children = words.count(fanout["children"], "child", "children")
        show.lines(f'{children} of "{fanout["vertex"]}" {verb} (run {fanout["run"]})')
    for one in answer["runs"]:
        show.lines(f"run {one} {verb}")
    for merge in answer["merges_again"]:
        steps = ", ".join(sorted(merge["steps"]))
        show.lines(f"after them, of {merge['pipeline']} {merge['run']}: {steps}")
