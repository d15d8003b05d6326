"""When has a fan-out failed? The merge's arithmetic, in one place.

`tolerate` names the states that may occur at all; a bound says how many of them. Without
`tolerate` nothing is tolerated. The allowance is computed once, at the seal, from the *text* of the
ratio: binary floats would lose a failure here and there (0.29 * 100 is 28.999...).

Before the seal the number of items is unknown: more items raise a ratio's allowance, so a merge
with only a ratio cannot be hopeless yet; one with `max_failures`, or without tolerance, can.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from enum import StrEnum
from typing import Any, Final

from suimon.core.states import RunStatus

#: The states a merge may tolerate, as the graph writes them. They are the bad ends of a run.
TOLERABLE: Final[dict[str, RunStatus]] = {
    "CANCELLED": RunStatus.CANCELLED,
    "FAILED": RunStatus.FAILED,
    "TIMED_OUT": RunStatus.TIMED_OUT,
}
_BAD: Final = tuple(TOLERABLE.values())


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What one merge tolerates."""

    states: frozenset[RunStatus] = frozenset()
    ratio_text: str | None = None
    max_failures: int | None = None


class Verdict(StrEnum):
    """What the counts say about the merge."""

    OPEN = "open"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


def from_config(config: Mapping[str, Any]) -> Tolerance:
    """The tolerance of a MERGE vertex's config, which has been checked before."""
    bounds = config.get("failureTolerance", {})
    ratio = bounds.get("maxFailureRatio")
    return Tolerance(
        states=frozenset(TOLERABLE[name] for name in config.get("tolerateChildFailures", [])),
        # repr gives the shortest text that reads back as this number: what the author wrote
        ratio_text=None if ratio is None else repr(ratio),
        max_failures=bounds.get("maxFailures"),
    )


def allowed(tolerance: Tolerance, expected: int) -> int:
    """How many children in tolerated states the merge survives, of `expected` children."""
    if not tolerance.states:
        return 0
    bounds = [expected]
    if tolerance.ratio_text is not None:
        exact = Decimal(tolerance.ratio_text) * expected
        bounds.append(int(exact.to_integral_value(rounding=ROUND_FLOOR)))
    if tolerance.max_failures is not None:
        bounds.append(tolerance.max_failures)
    return min(bounds)


def allowed_before_seal(tolerance: Tolerance) -> int | None:
    """The allowance that holds whatever the list's length turns out to be; None: no such bound."""
    return tolerance.max_failures if tolerance.states else 0


def broken(
    tolerance: Tolerance, counts: Mapping[str, int], allowance: int | None, *, skipped: int = 0
) -> bool:
    """Can the merge no longer succeed, whatever the children that still run do?

    `skipped`: bad ends in states that are not tolerated, which an operator has forgiven.
    """
    tolerated = sum(counts.get(state, 0) for state in tolerance.states)
    others = sum(counts.get(state, 0) for state in _BAD) - tolerated
    return others > skipped or (allowance is not None and tolerated > allowance)


def verdict(
    tolerance: Tolerance,
    counts: Mapping[str, int],
    *,
    expected: int | None,
    fail_fast: bool = False,
    skipped: int = 0,
) -> Verdict:
    """The merge's state from the counts per terminal state; `expected` is None before the seal."""
    if expected is None:
        before = allowed_before_seal(tolerance)
        hopeless = fail_fast and broken(tolerance, counts, before, skipped=skipped)
        return Verdict.FAILED if hopeless else Verdict.OPEN
    is_broken = broken(tolerance, counts, allowed(tolerance, expected), skipped=skipped)
    ended = sum(counts.get(state, 0) for state in (RunStatus.SUCCEEDED, *_BAD)) >= expected
    if ended:
        return Verdict.FAILED if is_broken else Verdict.SUCCEEDED
    return Verdict.FAILED if fail_fast and is_broken else Verdict.OPEN
