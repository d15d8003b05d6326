"""The instants of schedules, judged by a clock that is read minute by minute."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suimon.core import instants
from suimon.core.instants import Calendar, Rhythm

MINUTE = timedelta(minutes=1)
ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Winnipeg"]


def local(text: str, zone: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone))


def times(cron: str, zone: str, start: str, count: int, **rules: str) -> list[str]:
    """The next instants, as `day hour:minute offset`."""
    calendar = Calendar(cron, ZoneInfo(zone), **rules)
    found = instants.upcoming(calendar, local(start, zone), count)
    return [f"{one:%d %H:%M %z}" for one in found]


# ------------------------------------------------------------------------------- gaps and folds


@pytest.mark.parametrize(
    ("zone", "start", "cron", "next_", "skip"),
    [
        ("Europe/Berlin", "2027-03-27T12:00", "30 2 * * *", "28 03:00 +0200", "29 02:30 +0200"),
        ("America/New_York", "2027-03-13T12:00", "30 2 * * *", "14 03:00 -0400", "15 02:30 -0400"),
        ("America/Winnipeg", "2021-03-13T12:00", "15 2 * * 0", "14 03:00 -0500", "21 02:15 -0500"),
        ("Australia/Lord_Howe", "2027-10-02T12:00", "15 2 * * *", "03 02:30 +1100",
         "04 02:15 +1100"),
    ],
)  # fmt: skip
def test_a_fixed_time_in_a_gap_comes_at_its_end_or_not(
    zone: str, start: str, cron: str, next_: str, skip: str
) -> None:
    assert times(cron, zone, start, 1) == [next_]
    assert times(cron, zone, start, 1, gap="skip") == [skip]


def test_several_fixed_times_in_a_gap_are_one_instant() -> None:
    found = times("15,45 2,3 * * *", "Europe/Berlin", "2027-03-27T12:00", 3)
    assert found == ["28 03:00 +0200", "28 03:15 +0200", "28 03:45 +0200"]


@pytest.mark.parametrize(
    ("zone", "start", "cron", "first", "last"),
    [
        ("Europe/Berlin", "2027-10-31T00:00", "30 2 * * *", "31 02:30 +0200", "31 02:30 +0100"),
        ("America/New_York", "2027-11-07T00:00", "30 1 * * *", "07 01:30 -0400", "07 01:30 -0500"),
        ("Australia/Lord_Howe", "2027-04-04T00:00", "45 1 * * *", "04 01:45 +1100",
         "04 01:45 +1030"),
    ],
)  # fmt: skip
def test_a_fixed_time_that_comes_twice_follows_its_rule(
    zone: str, start: str, cron: str, first: str, last: str
) -> None:
    for rule, wanted in {"first": [first], "last": [last], "both": [first, last]}.items():
        assert times(cron, zone, start, 3, fold=rule)[: len(wanted)] == wanted
        assert first[:2] != times(cron, zone, start, 3, fold=rule)[len(wanted)][:2], rule


@pytest.mark.slow
def test_a_frequent_schedule_goes_on_in_real_time_through_gap_and_fold() -> None:
    for zone in ZONES:
        calendar = Calendar("*/15 * * * *", ZoneInfo(zone))
        for month in (3, 4, 10, 11):
            start = datetime(2021, month, 1, tzinfo=UTC)
            found = instants.upcoming(calendar, start, 30 * 96)
            real = [one.astimezone(UTC) for one in found]
            assert {b - a for a, b in pairwise([start, *real])} == {timedelta(minutes=15)}, zone
            assert len({one.isoformat() for one in found}) == len(found)


def test_both_times_of_an_hour_that_comes_twice_have_texts_of_their_own() -> None:
    calendar = Calendar("30 1 * * *", ZoneInfo("America/Winnipeg"), fold="both")
    found = instants.upcoming(calendar, local("2021-11-07T00:50", "America/Winnipeg"), 2)
    assert [one.isoformat() for one in found] == [
        "2021-11-07T01:30:00-05:00", "2021-11-07T01:30:00-06:00",
    ]  # fmt: skip


def test_the_search_begins_within_the_second_pass_of_an_hour() -> None:
    zone = ZoneInfo("Europe/Berlin")
    inside = datetime(2027, 10, 31, 2, 10, tzinfo=zone, fold=1)
    daily = Calendar("30 2 * * *", zone)
    assert str(daily.after(inside)) == "2027-11-01 02:30:00+01:00"
    assert str(daily.before(inside)) == "2027-10-31 02:30:00+02:00"
    assert str(Calendar("30 2 * * *", zone, fold="last").after(inside)) == (
        "2027-10-31 02:30:00+01:00"
    )


def test_a_day_that_a_zone_left_out_is_a_gap_like_any_other() -> None:
    """Samoa went over the date line: 30 December 2011 was not."""
    found = times("0 12 * * *", "Pacific/Apia", "2011-12-28T13:00", 3)
    assert found == ["29 12:00 -1000", "31 00:00 +1400", "31 12:00 +1400"]


# --------------------------------------------------------------------------------- brute force


def matches(cron: str, wall: datetime) -> bool:
    """Five fields of `*`, `*/n` and lists, read without cronsim."""
    values = (wall.minute, wall.hour, wall.day, wall.month, wall.isoweekday() % 7)
    fits = []
    for text, value, low in zip(cron.split(), values, (0, 0, 1, 1, 0), strict=True):
        if text == "*":
            fits.append(True)
        elif text.startswith("*/"):
            fits.append((value - low) % int(text[2:]) == 0)
        else:
            fits.append(value in {int(part) for part in text.split(",")})
    minute, hour, day, month, weekday = fits
    starred = cron.split()[2].startswith("*") or cron.split()[4].startswith("*")
    on_day = (day and weekday) if starred else (day or weekday)
    return minute and hour and month and on_day


def walked(cron: str, zone: ZoneInfo, year: int, gap: str, fold: str) -> list[datetime]:
    """Every minute of a year, by the clock on the wall."""
    minute, hour, *_ = cron.split()
    real = minute.startswith("*") or hour.startswith("*")
    found: list[datetime] = []
    utc = datetime(year, 1, 1, tzinfo=UTC)
    before = (utc - MINUTE).astimezone(zone).replace(tzinfo=None)
    seen: set[datetime] = set()
    again: dict[datetime, int] = {}
    while utc.year == year:
        wall = utc.astimezone(zone).replace(tzinfo=None, fold=0)
        skipped = [before + n * MINUTE for n in range(1, int((wall - before) / MINUTE))]
        if any(matches(cron, one) for one in skipped) and gap == "next" and not real:
            found.append(utc)
        if matches(cron, wall):
            if real or fold == "both" or wall not in seen:
                if found[-1:] != [utc]:
                    again[wall] = len(found)
                    found.append(utc)
            elif fold == "last":
                found[again[wall]] = utc
            seen.add(wall)
        before, utc = wall, utc + MINUTE
    return sorted(found)


fields = st.tuples(
    st.sampled_from(["*", "*/15", "0", "30", "5,20,50", "*/7"]),
    st.sampled_from(["*", "*/2", "2", "1", "1,2,3", "0,23", "*/5"]),
    st.sampled_from(["*", "*/2", "1,14,28,31", "7"]),
    st.sampled_from(["*", "3,4,10,11", "*/5"]),
    st.sampled_from(["*", "0", "1,3"]),
)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
@settings(max_examples=8, deadline=None)
@given(
    parts=fields,
    zone=st.sampled_from(ZONES),
    year=st.sampled_from([2021, 2027]),
    gap=st.sampled_from(["next", "skip"]),
    fold=st.sampled_from(["first", "last", "both"]),
)
def test_a_year_of_any_schedule_is_what_the_clocks_show(
    parts: tuple[str, ...], zone: str, year: int, gap: str, fold: str
) -> None:
    """Forward and backward, against a walk over all minutes that knows neither cronsim nor us."""
    cron, name = " ".join(parts), ZoneInfo(zone)
    wanted = walked(cron, name, year, gap, fold)
    calendar = Calendar(cron, name, gap, fold)
    assert list(forward(calendar, year)) == wanted
    sample = wanted[:: max(1, len(wanted) // 200)]
    for one in sample:
        assert calendar.before(one + timedelta(seconds=1)) == one.astimezone(name)
        assert calendar.after(one - timedelta(seconds=1)) == one.astimezone(name)


def forward(calendar: Calendar, year: int) -> Iterator[datetime]:
    one = calendar.after(datetime(year, 1, 1, tzinfo=UTC) - MINUTE)
    while one is not None and one.astimezone(UTC).year == year:
        yield one.astimezone(UTC)
        one = calendar.after(one)


# -------------------------------------------------------------------------- never, and what passed


@pytest.mark.parametrize("cron", ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 */29 2 1L"])
def test_a_date_that_never_comes_is_said_to_never_come(cron: str) -> None:
    assert "never comes" in str(instants.check(cron))
    assert Calendar(cron, ZoneInfo("UTC")).after(datetime(2026, 1, 1, tzinfo=UTC)) is None


def test_a_time_that_falls_into_the_gap_each_year_never_comes_when_gaps_are_skipped() -> None:
    calendar = Calendar("30 2 * 3 0L", ZoneInfo("Europe/Berlin"), gap="skip")
    assert calendar.after(datetime(2026, 1, 1, tzinfo=UTC)) is None


def test_a_day_of_the_month_and_a_day_of_the_week_are_either_or() -> None:
    """As in cron: 31 February never comes, the Mondays of February do."""
    assert instants.check("0 0 31 2 1") is None
    found = times("0 0 31 2 1", "UTC", "2027-01-01", 4)
    assert [one[:2] for one in found] == ["01", "08", "15", "22"]


@pytest.mark.parametrize(
    ("cron", "said"),
    [
        ("61 * * * *", "bad minute"),
        ("0 24 * * *", "bad hour"),
        ("0 0 32 * *", "bad day-of-month"),
        ("0 0 * 13 *", "bad month"),
        ("0 0 * * 8", "bad day-of-week"),
        ("0 0 * * * *", "not five fields"),
        ("*/0 * * * *", "bad minute"),
    ],
)
def test_an_unreadable_line_names_its_field(cron: str, said: str) -> None:
    assert said in str(instants.check(cron))


def test_a_rhythm_counts_from_its_anchor() -> None:
    anchor = datetime(2026, 1, 1, 9, tzinfo=UTC)
    week = Rhythm(timedelta(days=7), anchor)
    assert week.after(anchor - timedelta(days=30)) == anchor
    assert week.after(anchor) == anchor + timedelta(days=7)
    assert week.before(anchor) is None
    assert week.before(anchor + MINUTE) == anchor
    passed = week.passed(anchor, anchor + timedelta(days=21))
    assert (passed.count, passed.exact) == (3, True)
    assert passed.first == anchor + timedelta(days=7)
    assert passed.newest[-1] == anchor + timedelta(days=21)


def test_what_passed_is_counted_and_the_newest_are_named() -> None:
    every = Calendar("* * * * *", ZoneInfo("Europe/Berlin"))
    start = datetime(2026, 5, 1, tzinfo=UTC)
    few = every.passed(start, start + timedelta(minutes=5))
    assert [one.minute for one in few.newest] == [1, 2, 3, 4, 5]
    many = every.passed(start, start + timedelta(days=400))
    assert (many.count, many.exact) == (instants.WALK, False)
    assert len(many.newest) == instants.KEEP
    assert many.newest[-1] == start + timedelta(days=400)
    assert many.newest[0] == start + timedelta(days=400, minutes=1 - instants.KEEP)


def test_jitter_is_the_same_every_time_and_differs_by_instant() -> None:
    start = datetime(2026, 5, 1, tzinfo=UTC)

    def late(instant: datetime) -> timedelta:
        return instants.due_at("cron:x", instant, "30s") - instant.astimezone(UTC)

    several = [late(start + n * MINUTE) for n in range(200)]
    assert several == [late(start + n * MINUTE) for n in range(200)]
    assert late(start.astimezone(ZoneInfo("Europe/Berlin"))) == several[0]
    assert all(timedelta() <= one < timedelta(seconds=30) for one in several)
    assert len(set(several)) > 150
    assert instants.due_at("cron:x", start, None) == start


def test_the_second_pass_of_an_hour_is_not_forgotten() -> None:
    """Adding even nothing to a local time would take it back into the first pass."""
    second = datetime(2021, 11, 7, 1, 30, tzinfo=ZoneInfo("America/Winnipeg"), fold=1)
    calendar = Calendar("*/15 * * * *", ZoneInfo("America/Winnipeg"))
    assert instants.due_at("x", second, None).isoformat() == "2021-11-07T07:30:00+00:00"
    latest = instants.latest(calendar, second)
    assert latest is not None
    assert latest.isoformat() == "2021-11-07T01:30:00-06:00"
    assert calendar.passed(second - MINUTE, second).newest[-1].isoformat() == latest.isoformat()
