"""What is wrong with the database, its server and what the engine keeps in it; with names.

``examine`` gives findings, the bad ones first. ``bad`` needs somebody: work stands still, or will.
``warn`` is worth knowing. Nothing here writes. Whether work moves at all (workers, queues, duties)
is ``health.overall``'s question; the command shows both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from suimon.core import clock, words
from suimon.db import migrate
from suimon.db.connect import Connection
from suimon.db.statements import statements
from suimon.errors import SchemaMismatch
from suimon.run import health, pressure, quotas

SQL = statements(__package__, "doctor.sql")

#: What holds back vacuum for longer than this is told; what waits for longer than this is stuck.
HELD_SECONDS: Final = health.OLD_SECONDS
STUCK_SECONDS: Final = 120.0
#: A slot or a standby has no age in time; this many transactions are told.
HELD_XIDS: Final = 100_000
SKEW_SECONDS: Final = 2.0
PRUNE: Final = "What keeps runs, and how long: suimon storage, suimon prune --dry-run"
#: Of one worker: batches, desk, beat, listen, upkeep.
WORKER_CONNECTIONS: Final = 5
_SPARE_CONNECTIONS: Final = 10
_INDEX: Final = re.compile(r"^create (?:unique )?index (\w+)", re.MULTILINE)
_DROPPED: Final = re.compile(r"^drop index (?:if exists )?(?:suimon\.)?(\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing: how bad (``bad``, ``warn``, ``ok``), what was looked at, what is, what to do."""

    level: str
    check: str
    text: str
    hint: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


def examine(conn: Connection, *, held_s: float = HELD_SECONDS) -> list[Finding]:
    """Every finding, bad ones first; a check that finds nothing says ``ok``."""
    found = list(_schema(conn))
    if not any(one.level == "bad" for one in found):
        found += _indexes(conn)
        found += _runs(conn)
        found += _connections(conn)
        found += _quotas(conn)
        found.append(_storage(conn))
    found += _horizon(conn, held_s)
    found += _server(conn)
    found.append(_clock(conn))
    order = {"bad": 0, "warn": 1, "ok": 2}
    return sorted(found, key=lambda one: order[one.level])


def report(conn: Connection, *, held_s: float = HELD_SECONDS) -> dict[str, Any]:
    """``{ok, findings, problems}``: what was found, and what ``status`` says needs somebody."""
    found = examine(conn, held_s=held_s)
    sound = not any(one.level == "bad" and one.check == "schema" for one in found)
    problems = health.overall(conn)["problems"] if sound else []
    bad = bool(problems) or any(one.level == "bad" for one in found)
    return {"ok": not bad, "findings": [one.to_json() for one in found], "problems": problems}


def _schema(conn: Connection) -> Iterator[Finding]:
    try:
        migrate.check_version(conn)
    except SchemaMismatch as error:
        text = error.message + (f" ({error.detail})" if error.detail else "")
        yield Finding("bad", "schema", text, error.hint)
    else:
        version = f"schema version {migrate.schema_version()}, package {migrate.package_version()}"
        yield Finding("ok", "schema", version)


def _indexes(conn: Connection) -> Iterator[Finding]:
    """Against this package's migrations: who dropped one for a while may have forgotten."""
    there: dict[str, bool] = dict(conn.execute(SQL.indexes).fetchall())
    wanted: dict[str, None] = {}
    for migration in migrate.migrations():
        wanted |= dict.fromkeys(_INDEX.findall(migration.text))
        for name in _DROPPED.findall(migration.text):
            wanted.pop(name, None)
    missing = [name for name in wanted if name not in there]
    invalid = [name for name, valid in there.items() if not valid]
    for name in missing:
        hint = "Make it as schema.sql has it, with create index concurrently."
        yield Finding("bad", "indexes", f"index suimon.{name} is missing", hint)
    for name in invalid:
        yield Finding(
            "bad",
            "indexes",
            f"index suimon.{name} is invalid: its making was broken off, and nothing uses it",
            f"reindex index concurrently suimon.{name}",
        )
    if not missing and not invalid:
        yield Finding("ok", "indexes", f"{len(there)} indexes, all of them valid")


def _runs(conn: Connection) -> Iterator[Finding]:
    stuck = {"seconds": STUCK_SECONDS}
    bad = 0
    for name, limit, live, first, seconds in conn.execute(SQL.room, stuck).fetchall():
        bad += 1
        room = "no limit" if limit is None else f"{live} of {limit} places taken"
        text = f'lane "{name}" has room ({room}), and run {first} waits in it for {seconds:.0f} s'
        yield Finding("bad", "lanes", text, "A worker's sweep admits it; is one alive?")
    for worker, runs, first in conn.execute(SQL.orphans).fetchall():
        bad += 1
        held = words.count(runs, "run is", "runs are")
        text = f"{held} held by {worker}, which is dead (the first: {first})"
        yield Finding("bad", "dead workers", text, "Any live worker takes them back; start one.")
    for run_id, pipeline, seconds in conn.execute(SQL.stranded, stuck).fetchall():
        bad += 1
        text = f"run {run_id} of {pipeline} waits for children, and none is alive ({seconds:.0f} s)"
        yield Finding("bad", "parents", text, "A worker's sweep wakes it; is one alive?")
    row = conn.execute(SQL.overslept, stuck).fetchone()
    if row and row[0]:
        bad += 1
        late = words.count(row[0], "run waits", "runs wait")
        text = f"{late} for a time that has passed, the first for {row[1]:.0f} s"
        yield Finding("bad", "timers", text, "A worker's sweep wakes them; is one alive?")
    if not bad:
        yield Finding("ok", "runs", "no run is stuck: lanes, parents, timers, dead workers")


def _quotas(conn: Connection) -> Iterator[Finding]:
    for one in quotas.used(conn):
        if one["nearly"]:
            text = (
                f"quota {one['name']}: {one['used']:,} of {one['limit']:,} runs of this "
                f"{one['period']} are used or reserved"
            )
            hint = f"Raise it: suimon quotas set {one['name']} --per-{one['period']} N"
            yield Finding("warn", "quotas", text, hint)


def _storage(conn: Connection) -> Finding:
    """Marks that hold fan-outs back: for a while, or with nothing in sight that makes room."""
    found, first = pressure.state(conn), pressure.oldest(conn)
    if first is None:
        level = "warn" if found["pressure"] else "ok"
        return Finding(level, "storage", found["text"], PRUNE if found["pressure"] else None)
    waiting = words.count(found["deferred"], "run waits", "runs wait")
    text = f"{found['text']}: {waiting} for room, the first is run "
    text += f"{first['run']} of {first['pipeline']}, for {first['waited_s']:.0f} s"
    if not first["alone"] or first["waited_s"] < STUCK_SECONDS:
        return Finding("warn", "storage", text, PRUNE)
    text += "; nothing is alive that could end and be pruned"
    return Finding(
        "bad", "storage", text, f"Raise the mark: suimon storage set --high SIZE. {PRUNE}"
    )


def _connections(conn: Connection) -> Iterator[Finding]:
    settings: dict[str, str] = dict(conn.execute(SQL.settings).fetchall())
    row = conn.execute(SQL.connections).fetchone()
    assert row is not None
    used, ours, workers = row
    room = int(settings["max_connections"]) - int(settings["superuser_reserved_connections"])
    need = workers * WORKER_CONNECTIONS
    text = (
        f"{used} of {room} connections are in use, {ours} of them Suimon's; "
        f"{words.count(workers, 'worker needs', 'workers need')} {need}"
    )
    if need + _SPARE_CONNECTIONS > room:
        yield Finding("bad", "connections", text, "Raise max_connections, or use PgBouncer.")
    elif used + _SPARE_CONNECTIONS > room:
        yield Finding("warn", "connections", text, "Raise max_connections, or end idle clients.")
    else:
        yield Finding("ok", "connections", text)


def _horizon(conn: Connection, held_s: float) -> Iterator[Finding]:
    """Who holds back vacuum: dead rows stay, and the queue's index grows, until it ends."""
    rows = conn.execute(SQL.horizon).fetchall()
    held = 0
    for kind, name, xids, seconds, program, who, state, place, said in rows:
        timed = kind in ("session", "prepared")
        if (seconds or 0) < held_s if timed else (xids or 0) < HELD_XIDS:
            continue
        held += 1
        age = f"{seconds:.0f} s and {xids or 0} transactions" if timed else f"{xids} transactions"
        where = f" in database {place}" if place else ""
        match kind:
            case "session":
                text = f"session {name} ({program or 'no name'}, {who}, {state}){where}"
                words = " ".join((said or "").split())
                text += f" holds back vacuum for {age}; it said last: {words}"
                hint = f"End it there, or: select pg_terminate_backend({name})"
            case "prepared":
                text = f'prepared transaction "{name}" of {who}{where} holds back vacuum for {age}'
                hint = f"Nobody has finished it: rollback prepared '{name}', or commit prepared"
            case "slot":
                text = f'replication slot "{name}" ({state}){where} holds back vacuum by {age}'
                hint = f"Who reads it? If nobody: select pg_drop_replication_slot('{name}')"
            case _:
                text = f"standby {program} (process {name}) holds back vacuum by {age}"
                hint = "It reports its queries (hot_standby_feedback); look for a long one there."
        yield Finding("bad", "vacuum", text, hint)
    seen = conn.execute(SQL.sees_all).fetchone()
    if not (seen and seen[0]):
        text = "this role does not see what sessions of other roles do"
        yield Finding("warn", "vacuum", text, "grant pg_monitor to it")
    elif not held:
        yield Finding("ok", "vacuum", "nothing holds it back")


def _server(conn: Connection) -> Iterator[Finding]:
    settings: dict[str, str] = dict(conn.execute(SQL.settings).fetchall())
    losses = {
        "fsync": "a crash of the machine can destroy the database",
        "full_page_writes": "a crash of the machine can destroy the database",
        "synchronous_commit": "a crash can lose what was told as done in the last moments",
    }
    for name, what in losses.items():
        if settings[name] == "off":
            level = "warn" if name == "synchronous_commit" else "bad"
            yield Finding(level, "durability", f"{name} is off: {what}", f"Set {name} = on.")
    for name in ("autovacuum", "track_counts"):
        if settings[name] == "off":
            text = f"{name} is off: dead rows stay, and everything becomes slower by the hour"
            yield Finding("bad", "autovacuum", text, f"Set {name} = on.")
    for (table,) in conn.execute(SQL.tables_without_autovacuum).fetchall():
        text = f"autovacuum is off for table suimon.{table}"
        hint = f"Switch it on: alter table suimon.{table} reset (autovacuum_enabled)"
        yield Finding("bad", "autovacuum", text, hint)
    for table, live, dead, last in conn.execute(SQL.dead_rows).fetchall():
        when = "never" if last is None else f"last at {last:%Y-%m-%d %H:%M:%S} UTC"
        text = f"suimon.{table} has {dead:,} dead rows beside {live:,} live ones; vacuumed {when}"
        yield Finding("warn", "autovacuum", text, "See what holds it back, or: vacuum suimon.runs")


def _clock(conn: Connection) -> Finding:
    """This machine's clock against the database's; nothing is decided by it."""
    before = clock.now().timestamp()
    row = conn.execute(SQL.clock).fetchone()
    after = clock.now().timestamp()
    assert row is not None
    skew = (before + after) / 2 - float(row[0])
    which = "ahead of" if skew > 0 else "behind"
    text = f"this machine's clock is {abs(skew):.2f} s {which} the database's"
    if abs(skew) > SKEW_SECONDS + (after - before):
        return Finding("warn", "clock", text, "Let both follow a time server (chrony, timesyncd).")
    return Finding("ok", "clock", text)
