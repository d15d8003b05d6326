"""Why was this file taken, or not? For each FILE trigger, in the words of the rule that decided.

The rules are those of the listing, asked about one path; what became of it stands in deliveries and
keys. Whether a watcher has seen it yet is the one thing that nobody can know from outside: then the
answer says what it would take.
"""

# ruff: noqa: PTH116  (paths are bytes)

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from typing import Any

from suimon.core import clock
from suimon.db.connect import Connection, transaction
from suimon.errors import Conflict, NotThere
from suimon.read.names import shown
from suimon.run import audit
from suimon.triggers import file_rules, files, fire, listing, mounts, stores
from suimon.triggers.file_rules import Rules
from suimon.triggers.files import SQL
from suimon.triggers.fire import Trigger
from suimon.triggers.listing import Seen
from suimon.triggers.settling import mark_of


@dataclass(slots=True)
class Explained:
    """One trigger's answer. `code` is stable: taken, waiting, dead, known, settling, unseen, or why
    it is left out: elsewhere, pattern, ignored, moved, gone, link, outside, no_file, empty,
    unreadable.
    """

    trigger: Trigger
    code: str = ""
    why: str = ""
    seen: Seen | None = None
    key: str | None = None
    deliveries: list[dict[str, Any]] = field(default_factory=list)

    @property
    def near(self) -> bool:
        """Does this trigger look at the folder at all?"""
        return self.code not in ("elsewhere", "pattern") or bool(self.deliveries)


def explain(conn: Connection, given: str, *, trigger: int | None = None) -> list[Explained]:
    """The answers of all FILE triggers, those that look at the file's folder first."""
    triggers = fire.live(conn, ("FILE",))
    if trigger is not None:
        triggers = [one for one in triggers if one.id == trigger]
    found = [_explain(conn, one, given) for one in triggers]
    return sorted(found, key=lambda one: (not one.near, one.trigger.id))


def below_code(conn: Connection, relative: str) -> str | None:
    """Where this stands below the folder that a FILE trigger's own relative path begins at."""
    for one in fire.live(conn, ("FILE",)):
        written, path = one.name.removeprefix("file:"), str(one.spec["path"])
        folder = path.removesuffix(written)
        found = f"{folder}{relative}"
        if written != path and path.endswith(written) and os.path.lexists(found):
            return found
    return None


def again(
    conn: Connection, given: str, *, trigger: int | None = None, actor: str, why: str = ""
) -> list[Explained]:
    """A new delivery of this file, as it is now, at each trigger that means it.

    Raises NotThere when there is no such trigger and Conflict when the file cannot be taken.
    """
    answers = explain(conn, given, trigger=trigger)
    ready = [one for one in answers if one.seen is not None and one.key is not None]
    if not ready:
        near = [one for one in answers if one.near]
        msg = f'no FILE trigger takes "{shown(os.fsencode(given))}"'
        if near:
            raise Conflict(msg, detail=f"{near[0].trigger.name}: {near[0].why}")
        raise NotThere(msg, hint="suimon triggers list shows the patterns.")
    for one in ready:
        assert one.seen is not None
        assert one.key is not None
        key = files.again_key(one.key)
        rules = _rules(one.trigger)
        with transaction(conn):
            if rules.own_folders:
                files.keep_moves(conn, one.trigger, [(one.seen, key)], host="")
            fire.arrive(conn, one.trigger, [files.arrival(one.seen, key)])
            detail = {"file": files.source(one.seen.path)}
            target = [f"trigger:{one.trigger.id}"]
            audit.note(conn, "again_file", target, actor=actor, why=why, detail=detail)
            conn.execute(SQL.tell_watchers)
        one.key = key
    return ready


def _rules(trigger: Trigger) -> Rules:
    path = str(trigger.spec["path"])
    if not file_rules.is_address(path):
        return file_rules.of_spec(trigger.spec)
    return file_rules.with_options(trigger.spec, *stores.split(path))


def _explain(conn: Connection, trigger: Trigger, given: str) -> Explained:
    rules = _rules(trigger)
    answer = Explained(trigger)
    in_store = file_rules.is_address(str(trigger.spec["path"]))
    path = given if in_store else os.path.normpath(given)
    answer.code, answer.why = by_name(rules, path)
    if not answer.code and in_store:
        answer.code, answer.why = "unseen", "it lies in a store; what arrived from there is below"
    elif not answer.code:
        answer.code, answer.why, answer.seen = _by_looking(rules, path)
    _ask(conn, answer, rules, os.fsencode(path))
    return answer


def by_name(rules: Rules, path: str) -> tuple[str, str]:
    """The rule of names that leaves this path out; empty when none does."""
    below = rules.below(path)
    if below is None:
        return "elsewhere", f'it is not below "{rules.base}"'
    states = rules.start
    names = below.split("/")
    for end, name in enumerate(names, 1):
        part = "/".join(names[:end])
        states = rules.step(states, name)
        if end < len(names) and f"{rules.base.rstrip('/')}/{part}" in rules.own_folders:
            return "moved", f'"{part}" holds files that are done with; it is not listed'
        ignored = rules.ignored_by(part)
        if ignored is not None and states:
            return "ignored", f'"{part}" is ignored by "{ignored}"'
    if not rules.is_whole(states):
        return "pattern", f'the pattern "{"/".join(rules.parts)}" does not mean it'
    return "", ""


def _by_looking(rules: Rules, path: str) -> tuple[str, str, Seen | None]:
    """The rule of the file itself that leaves it out, or the file."""
    raw = os.fsencode(path)
    try:
        code, why = _links(rules, path)
        if code:
            return code, why, None
        status = os.stat(raw)
    except (FileNotFoundError, NotADirectoryError):
        return "gone", "there is no such file on this machine now", None
    except OSError as error:
        return "unreadable", f"it cannot be looked at: {error.strerror}", None
    if not stat.S_ISREG(status.st_mode):
        return "no_file", listing.NO_FILE, None
    if status.st_size == 0 and not rules.take_empty:
        return "empty", f"{listing.EMPTY}; with empty=take it would be taken", None
    if not listing.is_readable(raw):
        return "unreadable", listing.UNREADABLE, None
    inodes = mounts.has_inodes(mounts.kind_of(rules.base))
    return "", "", listing.now(rules, raw, inodes=inodes)


def _links(rules: Rules, path: str) -> tuple[str, str]:
    below = rules.below(path) or ""
    at = rules.base
    for name in below.split("/"):
        at = f"{at.rstrip('/')}/{name}"
        if os.path.islink(at):  # noqa: PTH114
            if not rules.follow_links:
                return "link", f'"{at}" is a link, and follow_links is off'
            if not listing.is_inside(os.path.realpath(os.fsencode(at)),
                                     os.path.realpath(os.fsencode(rules.base))):  # fmt: skip
                return "outside", f'"{at}" is a link that leads outside of the folder'
    return "", ""


def _ask(conn: Connection, answer: Explained, rules: Rules, raw: bytes) -> None:
    """What the database knows of this path, and of this version of the file."""
    keys = _keys(conn, answer, rules)
    where = {"trigger": answer.trigger.id, "keys": keys, "source": files.source(raw)}
    answer.deliveries = files.rows_of(conn, SQL.deliveries_of, where)
    if answer.seen is None:
        return
    answer.key = keys[-1] if keys else None
    mine = next((one for one in answer.deliveries if one["key"] in keys), None)
    if mine is not None:
        answer.code, answer.why = _of_delivery(conn, answer.trigger, mine)
        return
    for key in keys:
        found = files.rows_of(
            conn, SQL.run_of_key, {"pipeline": answer.trigger.pipeline, "key": key}
        )
        if found:
            run = found[0]
            answer.code = "known"
            status = run["status"] or "pruned"
            answer.why = f"this version has its run already: {run['run_id']} ({status})"
            return
    answer.code, answer.why = _not_yet(rules, answer.seen)


def _keys(conn: Connection, answer: Explained, rules: Rules) -> list[str]:
    """The keys that this version of the file may have; the last one is for one more run."""
    seen = answer.seen
    if seen is None:
        return []
    if not rules.by_content:
        return [seen.version]
    where = {"trigger": answer.trigger.id, "mark": mark_of(seen)}
    row = conn.execute(SQL.key_of_mark, where).fetchone()
    try:
        key = row[0] if row else files.content_key(seen)
    except OSError as error:
        answer.code, answer.why = "unreadable", error.strerror or str(error)
        return []
    return [key] if key else []


def _of_delivery(conn: Connection, trigger: Trigger, row: dict[str, Any]) -> tuple[str, str]:
    state = row["state"]
    if state == "delivered":
        again = ", which another arrival had started" if row["duplicate"] else ""
        status = row["status"] or "pruned"
        return "taken", f"it started run {row['run_id']} ({status}){again}"
    if state == "waiting":
        pause = conn.execute(SQL.pause_of, {"trigger": trigger.id}).fetchone()
        held = f"{pause[0]} is paused" if pause and pause[0] else row["why"]
        return "waiting", f"its delivery waits: {held or 'behind older ones, or for a moment'}"
    return "dead", f"its delivery is {state}: {row['why'] or row['code'] or 'no reason was kept'}"


def _not_yet(rules: Rules, seen: Seen) -> tuple[str, str]:
    changed = max(seen.mtime_ns, seen.changed_ns) / 1e9
    age = clock.now().timestamp() - changed
    if age < rules.settle_s:
        text = f"it settles: it changed {max(age, 0):.1f} s ago and must be left alone"
        return "settling", f"{text} for {rules.settle_s:g} s"
    return "unseen", (
        "nothing is against it and nobody has taken it yet: it comes with the next listing of a "
        "worker or serve that keeps duties and sees this folder (suimon status, and this trigger's "
        "note)"
    )
