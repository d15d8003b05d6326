"""Notices to people, as decisions: of what kinds they are, and what follows from one try to send.

A try is sent, comes later, or was the last one. The pauses are those of the Standard Webhooks: soon
at first, then for more than three days, each with a fifth of jitter, and longer where the receiver
names a time.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, Literal

#: kind -> what it tells.
KINDS: Final = {
    "run.failed": "a run that nobody spawned has failed or timed out",
    "pipeline.paused": "a pipeline's triggers stopped after failures in a row",
    "delivery.dead": "a delivery became a dead letter; once an hour for each trigger and cause",
    "storage.pressure": "the payload store or the disk is nearly full: fan-outs are deferred",
    "pool.no_worker": "runs wait in a pool and no worker has been there for a minute",
}
#: What `suimon notify test` sends.
TEST: Final = "test"

#: Before the second try, the third one, ...; after the last the notice is dead.
PAUSES_S: Final = (5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400)
LONGEST_S: Final = 86_400.0
JITTER: Final = 0.2
WHY_CHARACTERS: Final = 500


@dataclass(frozen=True, slots=True)
class Notice:
    """One notice for one channel, claimed for one try."""

    id: str
    channel: str
    channel_kind: str
    target: str
    secret: str | None
    kind: str
    subject: str
    payload: dict[str, Any]
    tries: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one try came to. `disable`: the receiver wants nothing any more."""

    state: Literal["sent", "waiting", "dead"]
    why: str | None = None
    delay_s: float = 0.0
    disable: bool = False


SENT: Final = Verdict("sent")


def dead(why: str, *, disable: bool = False) -> Verdict:
    """No other try can help."""
    return Verdict("dead", why[:WHY_CHARACTERS], disable=disable)


def later(tries: int, why: str, rng: random.Random, *, not_before_s: float = 0.0) -> Verdict:
    """The next pause after `tries` tries, at least what the receiver asked for; or the end."""
    if tries > len(PAUSES_S):
        return dead(f"{why}; given up after {tries} tries")
    pause = PAUSES_S[tries - 1] * rng.uniform(1 - JITTER, 1 + JITTER)
    wanted = min(max(pause, not_before_s), LONGEST_S * (1 + JITTER))
    return Verdict("waiting", why[:WHY_CHARACTERS], wanted)


def retry_after(text: str | None, now: datetime) -> float:
    """Seconds that a Retry-After header asks for; 0: none, or none that can be read."""
    if not text:
        return 0.0
    given = text.strip()
    if given.isdecimal() and len(given) < 10:
        return float(given)
    try:
        instant = parsedate_to_datetime(given)
        return max(0.0, (instant - now).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return 0.0


def unknown(kinds: list[str]) -> list[str]:
    """Those that fit no kind; `run.*` and `*` fit several."""
    return [one for one in kinds if not any(_fits(one, kind) for kind in KINDS)]


def _fits(pattern: str, kind: str) -> bool:
    head, star, rest = pattern.partition("*")
    return pattern == kind or (bool(star) and not rest and kind.startswith(head))


def text_of(notice: Notice) -> str:
    """A notice as plain text: a line for each thing it says."""
    lines = [notice.subject, ""]
    for name, value in notice.payload.items():
        if value is not None and value != []:
            shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            lines.append(f"{name}: {shown}"[:2_000])
    lines += ["", f"notice {notice.id} of {notice.created_at:%Y-%m-%d %H:%M:%S} UTC, {notice.kind}"]
    return "\n".join(lines) + "\n"
