"""The instants of a schedule: a cron line in a time zone, or a fixed rhythm.

cronsim knows what a line means and walks it over plain wall-clock times; this module says at which
instants the clocks of a zone show them. A wall-clock time may exist once, never (the clock was put
forward over it: a gap) or twice (it was put back: a fold):

    "30 2 * * *"    a fixed time: one run for each date. In a gap it runs at the end of the gap
                    (`gap="next"`) or not at all ("skip"); in a fold the first time ("first"), the
                    second ("last"), or both times.
    "*/15 * * * *"  minute or hour begins with a star: real time. Whatever the clocks show: what
                    does not exist is not run, what comes twice is run twice.

Every instant is strictly after the one before it, and each search is bounded: no date within 50
years means never.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import Any, Final, Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from suimon.core import durations

#: What is looked at for the next instant: wall-clock times that do not count (all minutes of a gap
#: or fold, a day at most), and years.
_STEPS: Final = 5_000
_YEARS: Final = 50
#: Instants that are counted one by one; of more it is only known that there are more.
WALK: Final = 10_000
#: Passed instants that are listed, the newest.
KEEP: Final = 1_000

_ALIASES: Final[Mapping[str, str]] = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
#: What `of` may raise: an unreadable line, a zone that this machine does not know.
UNREADABLE: Final = (KeyError, ValueError, OverflowError, OSError)

_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Passed:
    """The instants between two moments: how many (`exact`, or at least), and the newest of them."""

    count: int
    first: datetime | None = None
    newest: tuple[datetime, ...] = ()
    exact: bool = field(default=True, kw_only=True)


class Schedule(Protocol):
    """What both kinds can say. Moments in and out are aware; those that come out are in `zone`."""

    @property
    def zone(self) -> ZoneInfo: ...

    def after(self, moment: datetime) -> datetime | None:
        """The first instant after it; None: never."""

    def before(self, moment: datetime) -> datetime | None:
        """The last instant before it; None: there is none."""

    def passed(self, after: datetime, until: datetime) -> Passed:
        """The instants after the one and not after the other."""


def of(spec: Mapping[str, Any], created_at: datetime, *, begun: bool = False) -> Schedule:
    """The schedule of a CRON or EVERY trigger; a rhythm without an anchor counts from `created_at`.

    A rhythm begins at the anchor that it was given, unless it has `begun` by a clock that was set
    back since.    Raises what stands in `UNREADABLE`.
    """
    if spec["type"] == "CRON":
        zone = ZoneInfo(spec.get("tz", "UTC"))
        _line(spec["cron"])
        return Calendar(spec["cron"], zone, spec.get("gap", "next"), spec.get("fold", "first"))
    anchor = datetime.fromisoformat(spec["anchor"]) if "anchor" in spec else created_at
    every = timedelta(milliseconds=durations.milliseconds(spec["every"]))
    return Rhythm(every, anchor.astimezone(UTC), endless=begun or "anchor" not in spec)


def check(cron: str) -> str | None:
    """What is wrong with a cron line, as the end of the sentence "`cron` ..."."""
    try:
        _line(cron)
    except ValueError as error:
        return f"cannot be read: {error} in {cron!r}"
    start = datetime(2000, 1, 1, tzinfo=UTC)
    if Calendar(cron, ZoneInfo("UTC")).after(start) is None:
        return f"never comes: no date fits {cron!r} within {_YEARS} years"
    return None


def upcoming(schedule: Schedule, after: datetime, count: int) -> list[datetime]:
    """The next instants, in order."""
    found: list[datetime] = []
    while len(found) < count and (instant := schedule.after(after)) is not None:
        found.append(instant)
        after = instant
    return found


def latest(schedule: Schedule, moment: datetime) -> datetime | None:
    """The last instant that is not after the moment."""
    return schedule.before(moment.astimezone(UTC) + _MICROSECOND)


def due_at(name: str, instant: datetime, jitter: str | None) -> datetime:
    """When a planned instant is to start, in UTC: with jitter a little later.

    How much later is the same after a restart and on every machine. (Only UTC is added to: local
    times would add wall-clock time and forget which pass of a fold they were in.)
    """
    planned = instant.astimezone(UTC)
    if jitter is None:
        return planned
    digest = hashlib.sha256(f"{name} {planned.isoformat()}".encode()).digest()
    share = int.from_bytes(digest[:8]) / 2**64
    return planned + timedelta(milliseconds=int(share * durations.milliseconds(jitter)))


# --------------------------------------------------------------------------------------- rhythms


@dataclass(frozen=True, slots=True)
class Rhythm:
    """`anchor` (in UTC) and every multiple of `every` after it; `endless`: before it too."""

    every: timedelta
    anchor: datetime
    endless: bool = False

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo("UTC")

    def after(self, moment: datetime) -> datetime | None:
        number = (moment.astimezone(UTC) - self.anchor) // self.every + 1
        return self._at(number if self.endless else max(number, 0))

    def before(self, moment: datetime) -> datetime | None:
        number = -((self.anchor - moment.astimezone(UTC)) // self.every) - 1
        return self._at(number) if self.endless or number >= 0 else None

    def passed(self, after: datetime, until: datetime) -> Passed:
        first, last = self.after(after), self.before(until.astimezone(UTC) + _MICROSECOND)
        if first is None or last is None or last < first:
            return Passed(0)
        count = (last - first) // self.every + 1
        back = range(min(count, KEEP) - 1, -1, -1)
        return Passed(count, first, tuple(last - n * self.every for n in back))

    def _at(self, number: int) -> datetime | None:
        try:
            return (self.anchor + number * self.every).astimezone(self.zone)
        except OverflowError:  # beyond the year 9999
            return None


# -------------------------------------------------------------------------------------- calendars


@dataclass(frozen=True, slots=True)
class Calendar:
    """A cron line in a zone."""

    cron: str
    zone: ZoneInfo
    gap: str = "next"
    fold: str = "first"

    def after(self, moment: datetime) -> datetime | None:
        wall, again = self._wall(moment)
        # behind the first pass of a fold come times that the clock has shown already
        start = wall - again if again > timedelta() else wall
        return self._nearest(moment, start, back=False)

    def before(self, moment: datetime) -> datetime | None:
        wall, again = self._wall(moment)
        start = wall - again if again < timedelta() else wall
        return self._nearest(moment, start, back=True)

    def passed(self, after: datetime, until: datetime) -> Passed:
        newest: deque[datetime] = deque(maxlen=KEEP)
        end = until.astimezone(UTC)  # (moments of one zone would be compared by the wall clock)
        first, count, last = None, 0, self.after(after)
        while last is not None and last <= end and count < WALK:
            first = first or last
            newest.append(last)
            count += 1
            last = self.after(last)
        if last is None or last > end:
            return Passed(count, first, tuple(newest))
        newest.clear()
        moment: datetime | None = end + _MICROSECOND
        for _ in range(KEEP):
            assert moment is not None  # there are more than WALK of them
            moment = self.before(moment)
            assert moment is not None
            newest.appendleft(moment)
        return Passed(WALK, first, tuple(newest), exact=False)

    def _wall(self, moment: datetime) -> tuple[datetime, timedelta]:
        """What the clock shows then, and how far it is put back after (or, below zero, before)."""
        local = moment.astimezone(self.zone)
        first, second = _offset(local, 0), _offset(local, 1)
        again = first - second if first > second else timedelta()
        return local.replace(tzinfo=None, fold=0), -again if local.fold else again

    def _nearest(self, moment: datetime, start: datetime, *, back: bool) -> datetime | None:
        """The nearest instant on that side, among those of the wall-clock times from `start`."""
        edge = moment.astimezone(UTC)
        best: datetime | None = None
        for wall in self._walls(start, back=back):
            found, low, high = self._instants(wall)
            for one in found:
                beyond = one < edge if back else one > edge
                if beyond and (best is None or (one > best if back else one < best)):
                    best = one
            # no later time of the walk can be nearer than this one's own nearest
            if best is not None and (high <= best if back else low >= best):
                break
        return None if best is None else best.astimezone(self.zone)

    def _walls(self, start: datetime, *, back: bool) -> Iterator[datetime]:
        years = range(start.year - _YEARS, start.year + _YEARS + 1)
        try:
            for wall in islice(CronSim(_line(self.cron), start, reverse=back), _STEPS):
                if wall.year not in years:
                    return
                yield wall
        except (OverflowError, ValueError, CronSimError):  # the year 1, the year 9999; 30 February
            return

    def _instants(self, wall: datetime) -> tuple[tuple[datetime, ...], datetime, datetime]:
        """The instants of a wall-clock time by the rules, and the bounds of all it could have."""
        local = wall.replace(tzinfo=self.zone)
        if _offset(local, 0) == _offset(local, 1):
            only = local.astimezone(UTC)
            return (only,), only, only
        first = local.replace(fold=0).astimezone(UTC)
        second = local.replace(fold=1).astimezone(UTC)
        in_real_time = _in_real_time(self.cron)
        if first > second:
            end = _end_of_gap(second, first, self.zone)
            return ((end,) if self.gap == "next" and not in_real_time else ()), end, end
        if in_real_time or self.fold == "both":
            return (first, second), first, second
        return ((second,) if self.fold == "last" else (first,)), first, second


@lru_cache(maxsize=1024)
def _line(cron: str) -> str:
    """Five fields that cronsim can read; ValueError names the field that it cannot."""
    line = _ALIASES.get(cron, cron)
    if len(line.split()) != 5:
        msg = f"not five fields but {len(line.split())}"
        raise ValueError(msg)
    try:
        CronSim(line, datetime(2000, 1, 1))  # noqa: DTZ001  (wall-clock times have no zone)
    except CronSimError as error:
        if str(error) == "Bad day-of-month" and _days_alone_are_fine(line):
            return line  # no month has that day: it never comes
        raise ValueError(str(error).replace("Bad ", "bad ")) from None
    except (AssertionError, OverflowError):
        msg = "a field"
        raise ValueError(msg) from None
    return line


def _days_alone_are_fine(line: str) -> bool:
    minute, hour, day, _, weekday = line.split()
    try:
        CronSim(f"{minute} {hour} {day} * {weekday}", datetime(2000, 1, 1))  # noqa: DTZ001
    except CronSimError:
        return False
    return True


@lru_cache(maxsize=1024)
def _in_real_time(cron: str) -> bool:
    minute, hour, *_ = _line(cron).split()
    return minute.startswith("*") or hour.startswith("*")


def _offset(local: datetime, fold: int) -> timedelta:
    offset = local.replace(fold=fold).utcoffset()
    assert offset is not None
    return offset


def _end_of_gap(low: datetime, high: datetime, zone: ZoneInfo) -> datetime:
    """The instant at which the clock was put forward, by halving."""
    before = low.astimezone(zone).utcoffset()
    seconds = int((high - low).total_seconds())
    first, last = 0, seconds  # it is after `first` and not after `last`
    while last - first > 1:
        middle = (first + last) // 2
        same = (low + timedelta(seconds=middle)).astimezone(zone).utcoffset() == before
        first, last = (middle, last) if same else (first, middle)
    return low + timedelta(seconds=last)
