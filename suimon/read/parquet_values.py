"""What a Parquet value becomes in a row: the same on every machine, and nothing cut off.

whole numbers, true/false, text    as they are
floating numbers                   as they are; NaN and infinity are no JSON: a bad value
decimals                           Decimal with all digits
dates, times                       date, time
timestamps without a zone          datetime without a zone, unchanged
timestamps with a zone             datetime with the offset of that zone at that moment
finer than a microsecond           text in ISO 8601 with nine digits
durations                          text in ISO 8601 ("PT90.5S")
lists, structs, maps               list, object, object (keys must be text)
bytes                              refused, unless declared "text": then UTF-8, strictly
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Any, Final

from suimon.core import zones
from suimon.read.schema import Bad

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - zones are put on afterwards
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_LAST_DAY: Final = date.max.toordinal()
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY_NS: Final = 86_400 * 10**9

Convert = Callable[[Any], list[Any]]


def converter(kind: Any, *, declared: str | None) -> Convert:
    """From an Arrow array of this type to values. Raises TypeError for what has no JSON form."""
    import pyarrow as pa

    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        is_uuid = kind.extension_name == "arrow.uuid"
        stored = _uuids if is_uuid else converter(kind.storage_type, declared=declared)
        return lambda array: stored(array.storage)
    if types.is_dictionary(kind):
        inner = converter(kind.value_type, declared=declared)
        return lambda array: _by_index(array, inner)
    if _is_nested(types, kind):
        return _nested(pa, kind, declared)
    if types.is_floating(kind):
        return _floats
    if types.is_date(kind):
        return _dates
    if types.is_timestamp(kind):
        zone = _zone(kind.tz)
        return lambda array: [_moment(n, zone) for n in _nanoseconds(array, kind.unit)]
    if types.is_time(kind):
        return lambda array: [_clock(n) for n in _nanoseconds(array, kind.unit)]
    if types.is_duration(kind):
        return lambda array: [_span(n) for n in _nanoseconds(array, kind.unit)]
    return _simple(types, kind, declared)


def _simple(types: Any, kind: Any, declared: str | None) -> Convert:
    """Bytes and texts, and what Arrow gives as JSON has it."""
    if _is_bytes(types, kind):
        if declared != "text":
            msg = "its values are bytes, which have no JSON form"
            raise TypeError(msg)
        return _decoded
    if _is_text(types, kind):
        return _texts
    if _is_plain(types, kind):
        return _plain
    msg = f"its values are of the type {kind}, which has no JSON form"
    raise TypeError(msg)


def kind_of(kind: Any) -> str:
    """A word for what the values are, for comparing files: "number" is any kind of number."""
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(kind):
        return kind_of(kind.value_type)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "number"
    if _is_text(types, kind):
        return "text"
    if types.is_timestamp(kind):
        return "datetime" if kind.tz is None else "datetime with offset"
    if types.is_null(kind):
        return "nothing"
    for is_it, word in ((types.is_boolean, "boolean"), (types.is_date, "date"),
                        (types.is_time, "time"), (types.is_duration, "duration")):  # fmt: skip
        if is_it(kind):
            return word
    return str(kind) if not _is_nested(types, kind) else "nested"


def unwrapped(fine: Any, coarse: Any) -> list[Any]:
    """Times read in nanoseconds, and in microseconds where nanoseconds do not reach."""
    pairs = zip(_integers(fine), _integers(coarse), strict=True)
    return [
        None if ns is None or us is None else _moment(ns if ns // 1000 == us else us * 1000, None)
        for ns, us in pairs
    ]


# --------------------------------------------------------------------------- single values


def _plain(array: Any) -> list[Any]:
    values: list[Any] = array.to_pylist()
    return values


def _texts(array: Any) -> list[Any]:
    try:
        return _plain(array)
    except UnicodeDecodeError:  # the file says that it is text, and nobody has looked
        return _decoded(array.cast(_bytes_of(array.type)))


def _bytes_of(kind: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_string_view(kind):
        return pa.binary_view()
    return pa.large_binary() if pa.types.is_large_string(kind) else pa.binary()


def _floats(array: Any) -> list[Any]:
    return [
        value
        if value is None or math.isfinite(value)
        else Bad(str(value), f"{value} is no number that JSON knows")
        for value in array.to_pylist()
    ]


def _decoded(array: Any) -> list[Any]:
    found: list[Any] = []
    for value in array.to_pylist():
        try:
            found.append(None if value is None else value.decode())
        except UnicodeDecodeError as error:
            reason = f"the bytes are no UTF-8 (at byte {error.start})"
            found.append(Bad(value.decode("utf-8", "backslashreplace"), reason))
    return found


def _uuids(array: Any) -> list[Any]:
    from uuid import UUID

    return [None if value is None else str(UUID(bytes=value)) for value in array.to_pylist()]


def _integers(array: Any) -> list[int | None]:
    import pyarrow as pa

    width = pa.int32() if array.type.bit_width == 32 else pa.int64()
    values: list[int | None] = array.view(width).to_pylist()
    return values


def _nanoseconds(array: Any, unit: str) -> Iterator[int | None]:
    factor = 10**9 // _PER_SECOND[unit]
    for value in _integers(array):
        yield None if value is None else value * factor


def _dates(array: Any) -> list[Any]:
    per_day = 1 if array.type.bit_width == 32 else 86_400_000
    found: list[Any] = []
    for value in _integers(array):
        if value is None:
            found.append(None)
            continue
        day = value // per_day + _EPOCH_DAY
        fits = 1 <= day <= _LAST_DAY and value % per_day == 0
        reason = f"{value} (days since 1970) is no date of the years 1 to 9999"
        found.append(date.fromordinal(day) if fits else Bad(str(value), reason))
    return found


def _moment(ns: int | None, zone: tzinfo | None) -> Any:
    if ns is None:
        return None
    microseconds, rest = divmod(ns, 1000)
    try:
        moment = _EPOCH + timedelta(microseconds=microseconds)
        if zone is not None:
            moment = _at_offset(moment, zone)
    except OverflowError:
        return Bad(str(ns), f"{ns} (nanoseconds since 1970) lies outside the years 1 to 9999")
    if not rest:
        return moment
    text = moment.isoformat(timespec="microseconds")
    return f"{text[:26]}{rest:03d}{text[26:]}"


def _at_offset(moment: datetime, zone: tzinfo) -> datetime:
    """The moment (in UTC) with its zone's offset then, as a plain number of minutes."""
    there = moment.replace(tzinfo=UTC).astimezone(zone)
    offset = there.utcoffset()
    assert offset is not None
    if offset % timedelta(minutes=1):  # local mean times of long ago have no offset in ISO 8601
        return moment.replace(tzinfo=UTC)
    return there.replace(tzinfo=timezone(offset))


def _zone(name: str | None) -> tzinfo | None:
    if name is None:
        return None
    if name.upper() in ("UTC", "Z", "ETC/UTC", "GMT"):
        return UTC
    if name[0] in "+-":
        hours, _, minutes = name[1:].partition(":")
        if not minutes and len(hours) == 4:
            hours, minutes = hours[:2], hours[2:]
        span = timedelta(hours=int(hours), minutes=int(minutes or 0))
        return timezone(-span if name[0] == "-" else span)
    try:
        return zones.named(name)
    except ValueError:
        msg = f'its time zone "{name}" is not known on this machine (install tzdata)'
        raise TypeError(msg) from None


def _clock(ns: int | None) -> Any:
    if ns is None:
        return None
    if not 0 <= ns < _DAY_NS:
        return Bad(str(ns), f"{ns} (nanoseconds since midnight) is no time of a day")
    microseconds, rest = divmod(ns, 1000)
    clock = (_EPOCH + timedelta(microseconds=microseconds)).time()
    return f"{clock.isoformat('microseconds')}{rest:03d}" if rest else clock


def _span(ns: int | None) -> str | None:
    if ns is None:
        return None
    seconds, rest = divmod(abs(ns), 10**9)
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{'-' if ns < 0 else ''}PT{seconds}{fraction}S"


# --------------------------------------------------------------------------- values in values


def _by_index(array: Any, inner: Convert) -> list[Any]:
    known = inner(array.dictionary)
    return [None if index is None else known[index] for index in array.indices.to_pylist()]


def _is_bytes(types: Any, kind: Any) -> bool:
    tests = (types.is_binary, types.is_large_binary, types.is_binary_view)
    return types.is_fixed_size_binary(kind) or any(is_it(kind) for is_it in tests)


def _is_text(types: Any, kind: Any) -> bool:
    tests = (types.is_string, types.is_large_string, types.is_string_view)
    return any(is_it(kind) for is_it in tests)


def _is_plain(types: Any, kind: Any) -> bool:
    tests = (types.is_integer, types.is_boolean, types.is_decimal, types.is_null)
    return any(is_it(kind) for is_it in tests)


def _is_nested(types: Any, kind: Any) -> bool:
    tests = (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_map)
    return types.is_struct(kind) or any(is_it(kind) for is_it in tests)


def _nested(pa: Any, kind: Any, declared: str | None) -> Convert:
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        if len(set(names)) != len(names):
            msg = "its objects name a field twice"
            raise TypeError(msg)
        parts = [converter(field.type, declared=declared) for field in kind]
        return lambda array: _objects(array, names, parts)
    if pa.types.is_map(kind):
        keys = converter(kind.key_type, declared="text")
        items = converter(kind.item_type, declared=declared)
        return lambda array: _maps(array, keys, items)
    inner = converter(kind.value_type, declared=declared)
    return lambda array: _lists(array, inner)


def _lists(array: Any, inner: Convert) -> list[Any]:
    values = iter(inner(array.flatten()))
    size = getattr(array.type, "list_size", None)
    found: list[Any] = []
    for is_there, length in zip(
        array.is_valid().to_pylist(),
        [size] * len(array) if size is not None else array.value_lengths().to_pylist(),
        strict=True,
    ):
        found.append(_sound([next(values) for _ in range(length)]) if is_there else None)
    return found


def _objects(array: Any, names: list[str], parts: list[Convert]) -> list[Any]:
    columns = [part(array.field(index)) for index, part in enumerate(parts)]
    rows = zip(*columns, strict=True) if columns else iter([()] * len(array))
    return [
        _sound(dict(zip(names, row, strict=True))) if is_there else None
        for is_there, row in zip(array.is_valid().to_pylist(), rows, strict=True)
    ]


def _maps(array: Any, keys: Convert, items: Convert) -> list[Any]:
    offsets = array.offsets.to_pylist()
    first, last = (offsets[0], offsets[-1]) if len(array) else (0, 0)
    names = keys(array.keys.slice(first, last - first))
    values = items(array.items.slice(first, last - first))
    found: list[Any] = []
    for row, is_there in enumerate(array.is_valid().to_pylist()):
        begin, end = offsets[row] - first, offsets[row + 1] - first
        pairs = list(zip(names[begin:end], values[begin:end], strict=True))
        if not is_there:
            found.append(None)
        elif any(isinstance(key, Bad) for key, _ in pairs):
            found.append(next(key for key, _ in pairs if isinstance(key, Bad)))
        elif not all(isinstance(key, str) for key, _ in pairs) or len(dict(pairs)) != len(pairs):
            found.append(Bad(str(pairs), "the keys of the map are no text, or not distinct"))
        else:
            found.append(_sound(dict(pairs)))
    return found


def _sound(value: Any) -> Any:
    """A list or object; Bad when one of its values is: the whole cell is then no value."""
    inside = value.values() if isinstance(value, dict) else value
    return next((part for part in inside if isinstance(part, Bad)), value)
