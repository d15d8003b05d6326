"""Does it move? Everything that people, programs and monitors ask, counted in one place.

``overall`` is what ``suimon status``, ``/api/v1/status`` and the metrics are made of; its verdict
is ``core/verdict.py``'s one sentence. A problem is something that will not go away by itself or
that somebody should know now; a queue that is merely long is none, nor is what somebody paused.
Every count has a bound, so an answer takes some milliseconds whatever the tables hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from suimon.core import clock, reasons, verdict, words
from suimon.core.verdict import Count, Facts, Held, Pool
from suimon.db.connect import Connection
from suimon.db.statements import statements
from suimon.errors import DatabaseUnavailable
from suimon.run import pause, pressure, quotas
from suimon.run.read import as_json, named

SQL = statements(__package__, "health.sql")

#: What the counts go up to (see the statements).
MOST: Final = 10_000
#: A transaction that holds back vacuum for longer than this is told, as by the doctor.
OLD_SECONDS: Final = 300.0
_SILENT_BEATS: Final = 3
_HELD_SHOWN: Final = 20

_POOL = (
    "pool", "ready", "more", "oldest_s", "workers", "beating", "slots", "starts", "ends",
    "silent_s", "paused", "cap",
)  # fmt: skip
_WORKER = (
    "id", "name", "pool", "slots", "host", "pid", "version", "idle", "draining", "started_at",
    "silent_s", "beat_ms", "starts", "ends",
)  # fmt: skip
_RUNNING = ("pool", "worker", "runs", "lost", "silent_s", "id", "pipeline", "for_s")
_DUTY = ("name", "every_ms", "last_at", "last_note", "overdue_s", "age_s")
#: Triggers with waiting deliveries that are counted.
_TRIGGERS: Final = 1000
_DELIVERIES = ("pipeline", "trigger", "waiting", "more", "oldest_s", "pause", "due_s")
_DATABASE = ("used", "most", "ours", "oldest_transaction_s")


def overall(conn: Connection, *, old_s: float = OLD_SECONDS) -> dict[str, Any]:
    """``{verdict, ok, problems, warnings, counts, pools, workers, held, ...}``.

    ``old_s``: a transaction older than this is warned of.
    """
    running = _all(conn, SQL.running, _RUNNING)
    pools = _pools(conn, running)
    alive = workers(conn, running)
    deliveries = _all(conn, SQL.deliveries, _DELIVERIES)
    duties = _all(conn, SQL.duties, _DUTY)
    held_back = _all(conn, SQL.held_back, ("pool", "reason", "runs", "more"))
    stored = pressure.state(conn)
    held = _held(conn, pools, held_back, deliveries, stored["text"])
    database = _all(conn, SQL.database, _DATABASE)[0]
    start = _all(conn, SQL.next_start, ("next_at", "due_s"))[0]
    facts = _facts(pools, running, held, deliveries, duties, database, start)
    problems = _problems(pools, alive, held_back, facts, duties)
    judged = verdict.judge(facts)
    return {
        "verdict": {"level": judged.level, "sentence": judged.sentence, "todo": judged.todo},
        "ok": not problems and judged.level != "stopped",
        "at": as_json(clock.now()),
        "problems": problems,
        "warnings": _warnings(conn, old_s),
        "counts": _counts(pools, facts, held),
        "pools": pools,
        "workers": alive,
        "held": [_as_object(one) for one in held[:_HELD_SHOWN]],
        "held_back": held_back[:_HELD_SHOWN],
        "held_by_reason": _labelled(held),
        "orphaned_runs": facts.lost.n,
        "deliveries": {
            "waiting": facts.deliveries.n,
            "oldest_s": max((one["oldest_s"] for one in deliveries), default=None),
            "dead": _one(conn, SQL.dead_letters),
            "by_trigger": deliveries[:_HELD_SHOWN],
        },
        "notices": _all(conn, SQL.notices, ("waiting", "oldest_s"))[0],
        "duties": duties,
        "paused": pause.listed(conn),
        "quotas": quotas.used(conn),
        "storage": stored,
        "next_start_at": facts.next_at,
        "start_due_s": facts.due_s,
        "database": {"reachable": True, **database},
    }


def by_reason(conn: Connection) -> list[dict[str, Any]]:
    """``{reason, runs, more, until}`` for everything that waits, the most frequent first; those
    that nothing but a slot or a worker keeps are counted up to 10,000 a pool.
    """
    pools = _pools(conn, [])
    held_back = _all(conn, SQL.held_back, ("pool", "reason", "runs", "more"))
    stored = pressure.state(conn)["text"]
    found = [one for one in _held(conn, pools, held_back, [], stored) if one.runs]
    for one in pools:
        if one["ready"] and not one["paused"]:
            word = "no_slot" if one["beating"] else "no_worker"
            found.append(Held(f"{word}:{one['pool']}", Count(one["ready"], one["more"])))
    return [_as_object(one) for one in sorted(found, key=lambda each: -each.runs.n)]


def _warnings(conn: Connection, old_s: float) -> list[str]:
    """What slows everything down by the hour and stops nothing yet."""
    found = []
    for pid, seconds, program, who, state in conn.execute(
        SQL.old_transaction, {"seconds": old_s}
    ).fetchall():
        found.append(
            f"process {pid} of the database ({program or 'no name'}, {who}, {state}) has a "
            f"transaction open for {verdict.span(seconds)}: dead rows stay while it lasts; end it "
            f"there, or: select pg_terminate_backend({pid})"
        )
    return found


def unreachable(error: DatabaseUnavailable) -> dict[str, Any]:
    """The same answer while there is no database to ask."""
    judged = verdict.judge(Facts(unreachable=error.message))
    return {
        "verdict": {"level": judged.level, "sentence": judged.sentence, "todo": judged.todo},
        "ok": False,
        "at": as_json(clock.now()),
        "problems": [judged.sentence],
        "database": {"reachable": False},
    }


def workers(
    conn: Connection, running: Iterable[dict[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """Every worker that is not buried, at most 1,000."""
    if running is None:
        running = _all(conn, SQL.running, _RUNNING)
    held = {one["worker"]: one["runs"] for one in running}
    found = _all(conn, SQL.workers, _WORKER)
    return [{**one, "running": held.get(one["id"], 0)} for one in found]


def _all(conn: Connection, statement: Any, names: tuple[str, ...]) -> list[dict[str, Any]]:
    return [named(names, row) for row in conn.execute(statement, {}).fetchall()]


def _one(conn: Connection, statement: Any) -> Any:
    row = conn.execute(statement, {}).fetchone()
    return None if row is None else row[0]


def _pools(conn: Connection, running: list[dict[str, Any]]) -> list[dict[str, Any]]:
    held: dict[str, int] = {}
    for one in running:
        if not one["lost"]:
            held[one["pool"]] = held.get(one["pool"], 0) + one["runs"]
    found = _all(conn, SQL.pools, _POOL)
    for one in found:
        for name in ("slots", "starts", "ends"):
            one[name] = int(one[name])
        one["running"] = held.get(one["pool"], 0)
    return found


def _held(
    conn: Connection,
    pools: list[dict[str, Any]],
    held_back: list[dict[str, Any]],
    deliveries: list[dict[str, Any]],
    stored: str,
) -> list[Held]:
    """Every reason why runs and deliveries do not run, the most frequent first."""
    counts: dict[tuple[str, str], list[Count]] = {}

    def add(reason: str, runs: int, *, more: bool, until: str = "") -> None:
        counts.setdefault((reason, until), []).append(Count(int(runs), more))

    for one in pools:
        if one["paused"] and one["ready"]:
            add(f"paused:pool:{one['pool']}", one["ready"], more=one["more"])
    for one in held_back:
        add(one["reason"], one["runs"], more=one["more"])
    for what, runs, more in conn.execute(SQL.paused_ready, {}).fetchall():
        add(f"paused:{what}", runs, more=more)
    for reason, runs, more in conn.execute(SQL.lanes, {}).fetchall():
        add(reason, runs, more=more)
    waiting = _but_those_that_stop(conn)
    full = sum(runs for _, runs in waiting) >= MOST
    first = _one(conn, SQL.next_wake) if waiting else None
    for reason, runs in waiting:
        timed = first is not None and reason in ("retry", "timer")
        until = f"the first at {as_json(first)}" if timed else ""
        add(reason, runs, more=full, until=stored if reason == "storage" else until)
    for one in deliveries:
        if one["pause"] is not None:
            add(f"paused:{one['pause']}", one["waiting"], more=one["more"], until="deliveries")
    found = [Held(reason, _sum(parts), until) for (reason, until), parts in counts.items()]
    return sorted(found, key=lambda one: (-one.runs.n, one.reason))


def _but_those_that_stop(conn: Connection) -> list[tuple[str, int]]:
    """(Reason, runs) of what is parked; who was asked to stop waits for nothing else any more."""
    waiting: dict[str, int] = dict(conn.execute(SQL.waiting, {}).fetchall())
    for reason, runs in conn.execute(SQL.stopping, {}).fetchall():
        waiting[reason] = waiting.get(reason, 0) - runs
        waiting["cancelling"] = waiting.get("cancelling", 0) + runs
    return [(reason, runs) for reason, runs in waiting.items() if runs > 0]


def _sum(parts: Iterable[Count]) -> Count:
    listed = list(parts)
    return Count(sum(one.n for one in listed), any(one.more for one in listed))


def _facts(
    pools: list[dict[str, Any]],
    running: list[dict[str, Any]],
    held: list[Held],
    deliveries: list[dict[str, Any]],
    duties: list[dict[str, Any]],
    database: dict[str, Any],
    start: dict[str, Any],
) -> Facts:
    lost = [one for one in running if one["lost"]]
    first = max(running, key=lambda one: one["for_s"] or 0.0, default=None)
    total, gone = sum(one["runs"] for one in running), sum(one["runs"] for one in lost)
    stuck = [one["due_s"] for one in deliveries if one["pause"] is None]
    return Facts(
        pools=[
            Pool(
                one["pool"], Count(one["ready"], one["more"]), one["oldest_s"], one["beating"],
                one["slots"], one["running"], one["starts"], one["ends"], one["silent_s"],
                one["paused"], one["cap"],
            )
            for one in pools
        ],
        running=Count(total, total >= MOST),
        longest=None if first is None else (first["id"], first["pipeline"], first["for_s"]),
        lost=Count(gone, total >= MOST),
        lost_s=max((one["silent_s"] or 0.0 for one in lost), default=0.0),
        held=held,
        overdue=[
            (one["name"], one["age_s"])
            for one in duties
            if verdict.overdue(one["every_ms"] / 1000, one["age_s"])
        ],
        deliveries=Count(
            sum(one["waiting"] for one in deliveries),
            len(deliveries) >= _TRIGGERS or any(one["more"] for one in deliveries),
        ),
        deliveries_stuck_s=max(stuck, default=None),
        next_at=start["next_at"],
        due_s=start["due_s"],
        oldest_transaction_s=database["oldest_transaction_s"],
    )  # fmt: skip


def _counts(pools: list[dict[str, Any]], facts: Facts, held: list[Held]) -> dict[str, Any]:
    """The numbers of the first line; ``more`` names those that were counted up to a bound."""
    ready = _sum(Count(one["ready"], one["more"]) for one in pools if not one["paused"])
    waiting = [one for one in held if one.reason.partition(":")[0] not in ("paused", "lane")]
    numbers = {
        "ready": ready,
        "running": facts.running,
        "held": _sum(one.runs for one in held),
        "waiting": _sum(one.runs for one in waiting),
        "lost": facts.lost,
        "deliveries_waiting": facts.deliveries,
    }
    return {
        **{name: count.n for name, count in numbers.items()},
        "more": [name for name, count in numbers.items() if count.more],
        "starts_last_minute": sum(one["starts"] for one in pools),
        "ends_last_minute": sum(one["ends"] for one in pools),
        "pools_without_workers": sum(
            bool(one["ready"] and not one["beating"] and not one["paused"]) for one in pools
        ),
    }


def _labelled(held: Iterable[Held]) -> list[dict[str, Any]]:
    """Counts by word and name; no name is a run's id."""
    counts: dict[tuple[str, str], int] = {}
    for one in held:
        key = reasons.label(one.reason)
        counts[key] = counts.get(key, 0) + one.runs.n
    return [{"word": w, "name": n, "runs": runs} for (w, n), runs in sorted(counts.items())]


def _as_object(one: Held) -> dict[str, Any]:
    return {"reason": one.reason, "runs": one.runs.n, "more": one.runs.more, "until": one.until}


def _problems(
    pools: list[dict[str, Any]],
    alive: list[dict[str, Any]],
    held_back: list[dict[str, Any]],
    facts: Facts,
    duties: list[dict[str, Any]],
) -> list[str]:
    found = []
    for one in pools:
        if one["ready"] and not one["beating"] and not one["paused"]:
            age = f", the oldest for {one['oldest_s']:.0f} s" if one["oldest_s"] else ""
            ready = words.count(one["ready"], "run is", "runs are", more=one["more"])
            found.append(
                f"pool {one['pool']}: {ready} ready{age}, and no live worker "
                f"claims them; start one: suimon worker PATH --pool {one['pool']}"
            )
    silent = [w for w in alive if w["silent_s"] * 1000 > _SILENT_BEATS * w["beat_ms"]]
    found += [
        f"worker {w['name']}: no heartbeat for {w['silent_s']:.0f} s; it holds "
        f"{words.count(w['running'], 'run')}"
        for w in silent
    ]
    found += [
        f"pool {one['pool']}: {words.count(one['runs'], 'run is', 'runs are')} held: "
        f"{one['reason']}"
        for one in held_back
        if not one["reason"].startswith("paused:")
    ][:_HELD_SHOWN]
    if facts.lost:
        lost = words.count(facts.lost.n, "run belongs", "runs belong", more=facts.lost.more)
        wait = words.pick(facts.lost.n, "waits", "wait", more=facts.lost.more)
        found.append(f"{lost} to dead workers and {wait} for a rescue")
    beating = len(alive) - len(silent)
    if beating == 0 and (silent or facts.lost):
        found.append("no worker is alive: nobody rescues, wakes or repairs; start one")
    if beating:
        late = dict(facts.overdue)
        found += [
            f"duty {one['name']}: not done for {one['age_s']:.0f} s"
            for one in duties
            if one["name"] in late
        ]
    return found
