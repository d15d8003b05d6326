"""When a notice is tried again, and when it is given up."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from suimon.core import notices
from suimon.core.notices import PAUSES_S

NOW = datetime(2030, 1, 1, tzinfo=UTC)
RNG = random.Random(1)


def test_the_pauses_grow_from_seconds_to_a_day_and_then_it_is_given_up() -> None:
    for tries, pause in enumerate(PAUSES_S, start=1):
        verdict = notices.later(tries, "no", RNG)
        assert verdict.state == "waiting"
        assert 0.8 * pause <= verdict.delay_s <= 1.2 * pause
    assert list(PAUSES_S) == sorted(PAUSES_S)
    assert 3 * 86_400 < sum(PAUSES_S) < 5 * 86_400
    last = notices.later(len(PAUSES_S) + 1, "no", RNG)
    assert (last.state, last.why) == ("dead", "no; given up after 10 tries")


def test_who_names_a_time_is_not_asked_before_but_not_never() -> None:
    assert notices.later(1, "", RNG, not_before_s=600).delay_s == 600
    assert notices.later(1, "", RNG, not_before_s=1e9).delay_s <= 1.2 * 86_400
    assert notices.later(9, "", RNG, not_before_s=1).delay_s > 60_000


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120), (" 7 ", 7), (format_datetime(NOW + timedelta(hours=1), usegmt=True), 3600),
        (format_datetime(NOW - timedelta(hours=1), usegmt=True), 0), ("soon", 0), ("-5", 0),
        ("1e9", 0), ("", 0), (None, 0), ("9" * 40, 0), ("Wed, 99 Foo 2030", 0),
    ],
)  # fmt: skip
def test_retry_after_is_seconds_or_a_date_or_nothing(text: str | None, seconds: float) -> None:
    assert notices.retry_after(text, NOW) == seconds


def test_kinds_are_known_and_a_star_stands_at_the_end() -> None:
    assert notices.unknown([*notices.KINDS, "run.*", "*", "pool.*"]) == []
    assert notices.unknown(["run.lost", "*.failed", "runs.*", "run"]) == [
        "run.lost", "*.failed", "runs.*", "run",
    ]  # fmt: skip
