"""The relay: a thread that sends notices, so that a slow receiver delays nothing else.

It sleeps until it is told that there is something (``poke``) or until the next try is due, claims a
few notices with a lease, sends them side by side, one a channel, and writes down what each came to.
Killed at any moment, its notices are sent again when their leases end: at least once. Any worker
and any server has one, unless they keep no duties.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from typing import Final

import psycopg

from suimon.core import addresses, clock, notices, settings
from suimon.core.notices import Notice, Verdict
from suimon.core.settings import Settings
from suimon.db import connect
from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.errors import DatabaseUnavailable, SecretError
from suimon.store import secret
from suimon.store.secret_key import KeyRing

log = logging.getLogger("suimon.outbox")

SQL = statements(__package__, "relay.sql")

#: Notices that are sent side by side.
SENDERS: Final = 4
#: How long one is waited for; then its lease decides (a name server that does not answer).
PATIENCE_SECONDS: Final = 45.0
LEASE_SECONDS: Final = 120.0
#: Claims of one round.
CLAIMS: Final = 25
#: A sleep without an end is none: what waits is found after a day at the latest.
LONGEST_SLEEP_SECONDS: Final = 86_400.0
_AFTER_ERROR_SECONDS: Final = 5.0

#: Sends one notice: what it came to.
Send = Callable[[Notice], Verdict]


class Post:
    """How this process sends: where it may connect to, its mail server, its secrets."""

    def __init__(self, ring: KeyRing) -> None:
        """With the environment that came with the keys. Raises SettingsError."""
        environment = ring.environment
        names = [settings.environment_name(name) for name in settings.OUTGOING]
        self.settings: Settings = settings.load(
            {name: environment[name] for name in names if name in environment}
        )
        self._ring = ring
        self._allow = addresses.allowed(self.settings.allow_addresses)
        self._rng = random.Random()  # noqa: S311  (jitter, no secret)

    def sender(self, conn: Connection, notice: Notice) -> Callable[[], Verdict]:
        """What is needed from the database, fetched now; the answer is called in any thread.

        (An HTTP client is loaded by whoever has something to send, not by every worker's start.)
        """
        try:
            if notice.channel_kind == "email":
                return self._by_mail(conn, notice)
            value = secret.resolve(conn, self._ring, notice.secret or "")
        except SecretError as error:
            return _always(notices.later(notice.tries, error.message, self._rng))
        from suimon.outbox import reach, webhook_out

        where = reach.Reach(self._allow, reach.of_database(conn))
        return lambda: webhook_out.send(where, notice, value, clock.now(), self._rng)

    def _by_mail(self, conn: Connection, notice: Notice) -> Callable[[], Verdict]:
        reference = self.settings.smtp_password
        password = None if reference is None else secret.resolve(conn, self._ring, reference)
        from suimon.outbox import mail

        server = mail.Server.of(self.settings, password)
        if server is None:
            why = "this process has no mail server (SUIMON_SMTP_HOST)"
            return _always(notices.later(notice.tries, why, self._rng))
        return lambda: mail.send(server, notice, clock.now(), self._rng)


def _always(verdict: Verdict) -> Callable[[], Verdict]:
    return lambda: verdict


def round(conn: Connection, post: Post) -> float | None:  # noqa: A001
    """Send what is due; seconds until the next try is, None: nothing waits."""
    for _ in range(CLAIMS):
        claimed = _claim(conn)
        if not claimed:
            break
        for notice, verdict in _send_all(conn, post, claimed):
            settle(conn, notice, verdict)
    row = conn.execute(SQL.next_in).fetchone()
    return None if row is None or row[0] is None else float(row[0])


def _claim(conn: Connection) -> list[Notice]:
    given = {"n": SENDERS, "lease_s": LEASE_SECONDS}
    rows = retrying(lambda: conn.execute(SQL.claim, given).fetchall())
    return [Notice(*row) for row in rows]


def _send_all(
    conn: Connection, post: Post, claimed: Sequence[Notice]
) -> list[tuple[Notice, Verdict]]:
    """Side by side; who does not come back in time is left to its lease."""
    done: list[tuple[Notice, Verdict]] = []

    def act(notice: Notice, send: Callable[[], Verdict]) -> None:
        try:
            done.append((notice, send()))
        except Exception:
            log.exception("notice %s for %s could not be sent", notice.id, notice.channel)

    threads = [
        threading.Thread(target=act, args=(one, post.sender(conn, one)), daemon=True)
        for one in claimed
    ]
    for thread in threads:
        thread.start()
    give_up_at = clock.monotonic() + PATIENCE_SECONDS
    for thread in threads:
        thread.join(max(0.0, give_up_at - clock.monotonic()))
    return list(done)


def settle(conn: Connection, notice: Notice, verdict: Verdict) -> None:
    """waiting → sent | waiting (the next try) | dead."""
    given = {
        "id": notice.id,
        "tries": notice.tries,
        "state": verdict.state,
        "why": verdict.why,
        "delay_s": verdict.delay_s,
    }

    def act() -> None:
        with transaction(conn):
            conn.execute(SQL.settle, given)
            if verdict.disable:
                conn.execute(SQL.disable, {"channel": notice.channel, "why": verdict.why})

    retrying(act)
    if verdict.state == "dead":
        log.error("notice %s for %s is dead: %s", notice.id, notice.channel, verdict.why)


class Relay(threading.Thread):
    """Start it, ``poke`` it whenever there may be something, ``close`` it.

    It has a connection only while it is at work.
    """

    def __init__(self, url: str, post: Post) -> None:
        super().__init__(name="suimon-relay", daemon=True)
        self._url, self._post = url, post
        self._poked = threading.Event()
        self._ending = threading.Event()

    def poke(self) -> None:
        """There may be something to send."""
        self._poked.set()

    def close(self) -> None:
        """What is being sent is not waited for."""
        self._ending.set()
        self._poked.set()

    def run(self) -> None:
        wait_s = LONGEST_SLEEP_SECONDS
        while not self._ending.is_set():
            self._poked.wait(wait_s)
            self._poked.clear()
            if self._ending.is_set():
                break
            try:
                with connect.connect(self._url, name="relay") as conn:
                    next_s = round(conn, self._post)
                wait_s = LONGEST_SLEEP_SECONDS if next_s is None else next_s
            except (psycopg.Error, DatabaseUnavailable) as error:
                log.warning("relay: %s", str(error).splitlines()[0] if str(error) else error)
                wait_s = _AFTER_ERROR_SECONDS


def of(url: str, ring: KeyRing) -> Relay:
    """The relay of a process with these keys and the environment that it was started with."""
    return Relay(url, Post(ring))
