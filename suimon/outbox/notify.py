"""Who is told when something needs people, and of what: channels, notices, and a search.

Dead letters and pauses write their notice in their own transaction (triggers in schema.sql). Runs
end on the hot path, where nothing is written for a notice: ``scan`` looks for those that failed,
and for pools with work and without a worker. Both are duties; sending is the relay's (``relay``).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import orjson

from suimon.core import addresses, notices, secret_names
from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.errors import Conflict, InputRefused, NotThere
from suimon.outbox import mail
from suimon.run import audit, submit
from suimon.run.read import named

SQL = statements(__package__, "notify.sql")

CHANNELS: Final = 100
#: Failed runs of one page of the search; so many pages at most a turn.
PAGE: Final = 500
PAGES: Final = 20
#: Failed runs of a pipeline that have a notice each; the others of a page share one.
SINGLE: Final = 20
#: How long a pool may have work and no worker before that is told.
NO_WORKER_SECONDS: Final = 60.0
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}", re.ASCII)
_CHANNEL: Final = (
    "name", "kind", "target", "secret", "kinds", "enabled", "note", "created_at", "waiting", "dead",
)  # fmt: skip
_NOTICE: Final = (
    "id", "channel", "kind", "subject", "state", "tries", "why", "created_at", "ended_at",
    "next_at", "payload",
)  # fmt: skip


# ------------------------------------------------------------------------------------- channels


def add(
    conn: Connection,
    name: str,
    *,
    webhook: str | None = None,
    email: str | None = None,
    secret: str | None = None,
    kinds: Sequence[str] = ("*",),
    actor: str,
) -> None:
    """A new channel. Raises InputRefused, AddressRefused, Conflict."""
    target = _checked(name, webhook, email, secret, kinds)
    given = {
        "name": name,
        "kind": "webhook" if webhook is not None else "email",
        "target": target,
        "secret": secret,
        "kinds": list(kinds),
    }
    with transaction(conn):
        row = conn.execute(SQL.count).fetchone()
        if row is not None and row[0] >= CHANNELS:
            msg = f"there are {CHANNELS} channels already"
            raise Conflict(msg, hint="Remove one: suimon notify remove NAME")
        if conn.execute(SQL.add, given).fetchone() is None:
            msg = f'there is a channel "{name}" already'
            raise Conflict(msg, hint=f"Remove it first: suimon notify remove {name}")
        shown = {"target": addresses.redacted(target), "kinds": list(kinds)}
        audit.note(conn, "notify.add", [f"channel:{name}"], actor=actor, detail=shown)


def _checked(
    name: str, webhook: str | None, email: str | None, secret: str | None, kinds: Sequence[str]
) -> str:
    """The target as it is stored."""
    if not _NAME.fullmatch(name):
        msg = f'the name "{name[:100]}" cannot be used'
        hint = "Lower-case letters, digits, - and _ (at most 63)."
        raise InputRefused(msg, path="name", hint=hint)
    if unknown := notices.unknown(list(kinds)):
        msg = f'there is no notice "{unknown[0]}"'
        raise InputRefused(msg, path="on", hint=f"One of {', '.join(notices.KINDS)}; or run.*, *")
    if webhook is not None and email is None:
        addresses.parse(webhook)
        if secret is None:
            msg = "a webhook needs a secret: --secret is missing"
            raise InputRefused(msg, path="secret", hint=f"One of {secret_names.FORMS}.")
        problem = secret_names.reference(secret)
        if problem is not None:
            msg = f"the secret of a webhook {problem}"
            hint = "Its receiver checks the signature with it."
            raise InputRefused(msg, path="secret", hint=hint)
        return webhook
    if email is not None and webhook is None:
        if secret is not None:
            msg = "e-mail is not signed"
            hint = "The login is SUIMON_SMTP_USER and SUIMON_SMTP_PASSWORD."
            raise InputRefused(msg, path="secret", hint=hint)
        return ", ".join(mail.addresses(email))
    msg = "a channel is a webhook or e-mail"
    raise InputRefused(msg, path="webhook", hint="--webhook URL --secret env:NAME, or --email A")


def listed(conn: Connection, name: str | None = None) -> list[dict[str, Any]]:
    """The channels, with how many notices wait and how many are dead."""
    return [named(_CHANNEL, row) for row in conn.execute(SQL.listed, {"name": name}).fetchall()]


def one(conn: Connection, name: str) -> dict[str, Any]:
    """One channel, or NotThere."""
    found = listed(conn, name)
    if not found:
        msg = f'there is no channel "{name[:100]}"'
        raise NotThere(msg, hint="List them: suimon notify list")
    return found[0]


def enable(conn: Connection, name: str, *, actor: str) -> bool:
    """Enabled again it hears of what happens from now on; False: it was enabled."""
    return _change(conn, "enable", name, actor)


def disable(conn: Connection, name: str, *, actor: str, note: str = "by hand") -> bool:
    """What waits for it waits on; False: it was disabled."""
    return _change(conn, "disable", name, actor, note=note)


def remove(conn: Connection, name: str, *, actor: str) -> None:
    """The channel goes, with its notices."""
    _change(conn, "remove", name, actor)


def _change(conn: Connection, action: str, name: str, actor: str, **more: str) -> bool:
    with transaction(conn):
        one(conn, name)
        changed = conn.execute(SQL[action], {"name": name, **more}).fetchone() is not None
        if changed:
            audit.note(conn, f"notify.{action}", [f"channel:{name}"], actor=actor, detail=more)
        if changed and action == "enable":
            conn.execute(SQL.due_now, {"name": name})
            conn.execute(SQL.tell_keepers)
        return changed


def test(conn: Connection, name: str) -> str:
    """A notice that says nothing but that it arrived; its id."""
    notice = submit.uuid7()
    with transaction(conn):
        if not one(conn, name)["enabled"]:
            msg = f'the channel "{name}" is disabled'
            raise Conflict(msg, hint=f"suimon notify enable {name}")
        conn.execute(SQL.test, {"id": notice, "name": name})
        conn.execute(SQL.tell_keepers)
    return notice


# ------------------------------------------------------------------------------------- notices


def log(
    conn: Connection,
    *,
    channel: str | None = None,
    state: str | None = None,
    notice: str | None = None,
    before: str | None = None,
    limit: int = 50,
) -> list[dict[str, Any]]:
    """Notices, newest first; at most 1,000."""
    where = {"channel": channel, "state": state, "id": notice, "before": before, "n": limit}
    return [named(_NOTICE, row) for row in conn.execute(SQL.log, where).fetchall()]


def again(conn: Connection, notice: str, *, actor: str) -> None:
    """Send one again that is dead or was sent."""
    with transaction(conn):
        if conn.execute(SQL.again, {"id": notice}).fetchone() is None:
            found = log(conn, notice=notice)
            msg = f"notice {notice} is waiting" if found else f"there is no notice {notice}"
            raise (Conflict if found else NotThere)(msg, hint="See: suimon notify log")
        audit.note(conn, "notify.again", [f"notice:{notice}"], actor=actor)
        conn.execute(SQL.tell_keepers)


def tell(
    conn: Connection, kind: str, fact: str, at: datetime, subject: str, payload: dict[str, Any]
) -> int:
    """A notice for each channel that wants this kind, in the caller's transaction; how many."""
    given = {"kind": kind, "fact": fact, "at": at, "subject": subject}
    text = orjson.dumps(payload).decode()
    row = conn.execute(SQL.notice, {**given, "payload": text}).fetchone()
    return int(row[0]) if row else 0


# ------------------------------------------------------------------------------------- the search


def scan(conn: Connection) -> int:
    """Look for failed runs and for pools without a worker; returns how many notices are due.

    Those whose relay died are among them: the relays are told of both.
    """
    retrying(lambda: _failed_runs(conn))
    retrying(lambda: _pools(conn))
    row = conn.execute(SQL.count_due).fetchone()
    due = int(row[0]) if row else 0
    if due:
        conn.execute(SQL.tell_keepers)
    return due


def _failed_runs(conn: Connection) -> int:
    """At most 10,000 a turn; the rest is found by the next one."""
    written = 0
    with transaction(conn):
        mark = conn.execute(SQL.lock_mark).fetchone()
        since = conn.execute(SQL.wanted_since).fetchone()
        if mark is None or since is None or since[0] is None:
            return 0  # another process is at it, or nobody wants to know
        row = conn.execute(SQL.horizon).fetchone()
        assert row is not None
        where = {"mark": mark[0], "horizon": row[0], "since": since[0], "n": PAGE}
        for _ in range(PAGES):
            rows = conn.execute(SQL.failed, where).fetchall()
            written += _tell_failed(conn, rows)
            if len(rows) < PAGE:
                conn.execute(SQL.move_mark, {"horizon": row[0]})
                break
    return written


def _tell_failed(conn: Connection, rows: Sequence[tuple[Any, ...]]) -> int:
    """A notice for each of the first 20 of a pipeline; the others of this page share one."""
    if not rows:
        return 0
    written = 0
    pipelines: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for row in rows:
        pipelines[row[3]].append(row)
    for pipeline, of in pipelines.items():
        for run, claim, at, _, status, error in of[:SINGLE]:
            text = str((error or {}).get("message", ""))[:500]
            payload = {"pipeline": pipeline, "run_id": run, "status": status, "error": text,
                       "error_type": (error or {}).get("type"), "finished_at": at}  # fmt: skip
            subject = f"{pipeline} {status.replace('_', ' ')}: {text}"[:300]
            written += tell(conn, "run.failed", f"run:{run}:{claim}", at, subject, payload)
        if rest := of[SINGLE:]:
            runs = [row[0] for row in rest]
            payload = {"pipeline": pipeline, "count": len(rest), "runs": runs}
            subject = f"{pipeline}: {len(rest)} more runs failed"
            fact = f"runs:{runs[0]}:{rest[0][1]}:{len(rest)}"
            written += tell(conn, "run.failed", fact, rest[-1][2], subject, payload)
    ids, claims, ats = zip(*(row[:3] for row in rows), strict=True)
    conn.execute(SQL.keep_told, {"ids": list(ids), "claims": list(claims), "ats": list(ats)})
    return written


def _pools(conn: Connection) -> int:
    """An episode is told once, when it has lasted a minute, and forgotten when it is over."""
    written = 0
    with transaction(conn):
        pools = [row[0] for row in conn.execute(SQL.stranded_pools).fetchall()]
        conn.execute(SQL.clear_alarms, {"pools": pools})
        conn.execute(SQL.raise_alarms, {"pools": pools})
        due = conn.execute(SQL.tell_alarms, {"after_s": NO_WORKER_SECONDS}).fetchall()
        for what, since, now in due:
            pool = what.removeprefix("pool:")
            subject = f"pool {pool} has work and no worker"
            payload = {"pool": pool, "since": since}
            fact = f"alarm:{what}:{since}"
            written += tell(conn, "pool.no_worker", fact, now, subject, payload)
    return written
