"""`Destination`: something outside that tasks call, with the limits that all of them keep together.

    crm = Destination("crm", rate="20/s", concurrency=8, base_url="https://crm.example",
                      auth="secret:crm_token")

    @task(destination=crm)                    # its turn is awaited before the task begins
    async def post(order, ctx):
        await ctx.http("crm").post("/orders", json=order)

A declaration is deployed beside the pipelines and is no part of a graph's hash: its limits are live
values. A changed declaration moves them only while nobody has edited them (`suimon limits set`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from suimon.core import gcra, secret_names
from suimon.core.durations import seconds
from suimon.core.suggest import one_of
from suimon.source_line import caller

#: How YAML and JSON write the fields, and Python.
KEYS: Final[Mapping[str, str]] = {
    "rate": "rate",
    "burst": "burst",
    "concurrency": "concurrency",
    "baseUrl": "base_url",
    "auth": "auth",
    "timeout": "timeout",
}
MOST: Final = 100_000
URL_CHARACTERS: Final = 2_000
LONGEST_TIMEOUT_SECONDS: Final = 3_600.0
#: A call that takes longer has failed.
TIMEOUT: Final = "10s"


@dataclass(frozen=True, slots=True)
class Destination:
    """A declaration. Without rate and concurrency nothing is limited but what the far side says.

    `rate` is "20/s" or "100/m", `burst` how many may go at once after a pause (default: a quarter
    of a second's calls), `concurrency` how many at the same time, everywhere. `auth` names a
    secret; it becomes the header `Authorization: Bearer ...` (a value with a space in it is the
    whole header). `timeout` is for one call.
    """

    name: str
    rate: str | None = None
    burst: int | None = None
    concurrency: int | None = None
    base_url: str | None = None
    auth: str | None = None
    timeout: str | None = None
    place: tuple[str, int] = field(default=("", 0), compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", caller())

    def to_json(self) -> dict[str, Any]:
        """As a definition writes it, without its name."""
        found = {key: getattr(self, name) for key, name in KEYS.items()}
        return {key: value for key, value in found.items() if value is not None}


def name_of(destination: Any) -> Any:
    """What a config keeps of it: a Destination or its name."""
    return destination.name if isinstance(destination, Destination) else destination


def problems(name: Any, given: Any) -> list[tuple[str, str, str | None]]:
    """(field, what is wrong, hint) of one declaration as JSON; none: it can be deployed."""
    found: list[tuple[str, str, str | None]] = []
    if not isinstance(name, str) or not secret_names.NAME.fullmatch(name):
        message = f"{name!r} is no name of a destination"
        found.append(("", message, "lower-case letters, digits, - and _, at most 100"))
    if not isinstance(given, Mapping):
        return [*found, ("", f"must be an object, not {given!r:.80}", None)]
    for key, value in given.items():
        rule = _RULES.get(key)
        if rule is None:
            found.append((str(key), f'unknown key "{key}"', one_of(str(key), _RULES)))
        elif problem := rule(value):
            found.append((str(key), f"{key} {problem}", None))
    if not found:
        found += _together(given)
    return found


def _together(given: Mapping[str, Any]) -> list[tuple[str, str, str | None]]:
    rate, burst = given.get("rate"), given.get("burst")
    if rate is None and burst is not None:
        return [("burst", "a burst without a rate", 'give it one: "rate": "20/s"')]
    if rate is not None and burst is not None:
        least = gcra.least_burst(gcra.per_second(rate))
        if burst < least:
            message = f"a burst of {burst} at {rate} is less than can be kept to"
            return [("burst", message, f"give it at least {least}, a fiftieth of a second's calls")]
    return []


def _rate(value: Any) -> str | None:
    try:
        gcra.per_second(value)
    except ValueError as error:
        return f"is wrong: {error}"
    return None


def _count(value: Any) -> str | None:
    fine = type(value) is int and 1 <= value <= MOST
    return None if fine else f"must be a whole number from 1 to {MOST:,}, not {value!r}"


def _url(value: Any) -> str | None:
    plain = isinstance(value, str) and len(value) <= URL_CHARACTERS and value.isascii()
    if not plain or not value.startswith(("http://", "https://")) or not value.isprintable():
        return f"must be an address like https://crm.example, not {value!r:.80}"
    rest = value.partition("://")[2]
    if "@" in rest.partition("/")[0]:
        return "holds a user or a password; name a secret in auth"
    return "may have no ? and no #" if "?" in rest or "#" in rest else None


def _timeout(value: Any) -> str | None:
    try:
        fine = 0 < seconds(value) <= LONGEST_TIMEOUT_SECONDS
    except (ValueError, TypeError) as error:
        return f"is wrong: {error}"
    return None if fine else "must be longer than 0 and at most 1h"


_RULES: Final = {
    "rate": _rate,
    "burst": _count,
    "concurrency": _count,
    "baseUrl": _url,
    "auth": secret_names.reference,
    "timeout": _timeout,
}
