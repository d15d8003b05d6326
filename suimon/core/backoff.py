"""How long to wait before the next try: `2s..5m` doubles from 2 s up to 5 m, with jitter.

The wait never leaves the range the author wrote. The jitter is there because a thousand children
that failed together would otherwise come back together.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from suimon.core import durations

#: What holds when a task says `retries=` and nothing else.
DEFAULT: Final = "1s..5m"

_FACTOR: Final = 2
_SPREAD: Final = 1.5
_MAX_DOUBLINGS: Final = 62  # beyond it every range has reached its end; keeps the power bounded


@dataclass(frozen=True, slots=True)
class Backoff:
    """A range of waits, in milliseconds."""

    first_ms: int
    limit_ms: int


def parse(text: object) -> Backoff:
    """`"2s..5m"`, or `"5s"` for a constant wait. Raises ValueError for the author."""
    first, limit = durations.span(text)
    return Backoff(first, limit)


def delay(policy: Backoff, failures: int, rng: random.Random) -> float:
    """Seconds to wait after the `failures`-th failure in a row (the first one is 1)."""
    if failures < 1:
        msg = f"a wait follows a failure; {failures} failures were given"
        raise ValueError(msg)
    doublings = min(failures - 1, _MAX_DOUBLINGS)
    base = min(policy.limit_ms, policy.first_ms * _FACTOR**doublings)
    upper = min(policy.limit_ms, base * _SPREAD)
    lower = max(policy.first_ms, upper / _SPREAD)
    return rng.uniform(lower, max(lower, upper)) / 1000
