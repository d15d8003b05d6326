"""How often and how many at once: the arithmetic of a destination, without clock and database.

A rate is kept by GCRA: one number, the *theoretical arrival time* of the next call, says everything
about the past. `take` books several calls at once. Each booked call has a first instant (the
rate's) and a last one, `slack` later, because a call that waits in a slot and is made late bunches
with those behind it. So the burst that people allow is split: half of it is given to GCRA, the rest
is what lateness may use. In any window of `t` seconds at most `rate * t + burst` calls are made
(one more when the burst is 1: half a call cannot be given away).

`suimon.take_calls` in the schema says the same in SQL, under the lock of the destination's row; a
property test compares the two. `shares` divides calls at once among those who ask for them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

#: No call is booked further ahead than this.
HORIZON_SECONDS: Final = 0.25
#: The longest time that a booked call may be late.
SLACK_SECONDS: Final = 1.0
#: A burst that is not given: so many seconds of the rate.
BURST_SECONDS: Final = 0.25
#: The least burst, in seconds of the rate: no process keeps a stricter beat.
LEAST_BURST_SECONDS: Final = 0.02

MOST_PER_SECOND: Final = 100_000.0
LEAST_PER_SECOND: Final = 1.0 / 86_400

_RATE: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*/\s*([0-9]{0,6})\s*(s|m|h|d)", re.ASCII)
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def per_second(rate: str) -> float:
    """Calls a second of a rate as people write it; ValueError says what is wrong.

    >>> per_second("20/s"), per_second("90/m"), per_second("100/10s")
    (20.0, 1.5, 10.0)
    """
    found = _RATE.fullmatch(str(rate).strip())
    if found is None:
        msg = f'a rate is written like "20/s", "100/m" or "500/10s", not {rate!r}'
        raise ValueError(msg)
    calls, many, unit = found.groups()
    seconds = int(many or 1) * _UNITS[unit]
    value = float(calls) / seconds if seconds else 0.0
    if not LEAST_PER_SECOND <= value <= MOST_PER_SECOND:
        msg = f"a rate is from 1/d to {MOST_PER_SECOND:,.0f}/s, not {rate!r}"
        raise ValueError(msg)
    return value


def default_burst(rate: float) -> int:
    """What a rate without a burst gets: a quarter of a second's calls."""
    return max(1, math.ceil(rate * BURST_SECONDS))


def least_burst(rate: float) -> int:
    """A smaller one could not be kept to: each call would be too late for its own turn."""
    return max(1, math.ceil(rate * LEAST_BURST_SECONDS))


def steady(burst: int) -> int:
    """The part of the burst that GCRA gives at once."""
    return max(1, burst // 2)


def slack(rate: float, burst: int) -> float:
    """How late a booked call may be made, in seconds."""
    return min(SLACK_SECONDS, max(burst - steady(burst), 1) / rate)


@dataclass(frozen=True, slots=True)
class Booked:
    """`n` calls: the first may be made at `first` (a time like `now`), each next `step` later, and
    none before `now`; `tat` is the new state.
    """

    n: int
    first: float
    step: float
    tat: float

    def starts(self, now: float) -> list[float]:
        """The first instant of each call."""
        return [max(now, self.first + i * self.step) for i in range(self.n)]


def take(
    tat: float, now: float, rate: float, burst: int, want: int, horizon: float = HORIZON_SECONDS
) -> Booked:
    """Book at most `want` calls that may begin within the horizon. All times in seconds."""
    step = 1.0 / rate
    begin = max(tat, now)
    first = begin - (steady(burst) - 1) * step
    fit = math.floor((now + horizon - first) * rate + 1e-9) + 1
    n = max(0, min(want, fit))
    return Booked(n, first, step, begin + n * step if n else tat)


def shares(total: int, wants: Sequence[int]) -> list[int]:
    """Divide `total` so that nobody gets more than he wants, and who wants more gets the same as
    the others who do. What does not divide goes to the last of those.
    """
    order = sorted(range(len(wants)), key=lambda i: (wants[i], i))
    found = [0] * len(wants)
    for place, i in enumerate(order):
        found[i] = min(wants[i], total // (len(order) - place))
        total -= found[i]
    return found
