"""The fields of the graph format 1: which there are, what each may hold, and what it is by default.

Defaults belong to the format number: they never change within it, and are left out of the canonical
form. Each rule answers with None when a value is fine, else with the end of the sentence
"`retries` ...".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from suimon.core import backoff, durations, labels, sql_text
from suimon.core.secret_names import NAME, grants
from suimon.core.shape import APPROVAL, HTTP, MERGE, READ, RUN_IF, SPAWNER, SQL, START, TASK, WAIT
from suimon.core.tolerance import TOLERABLE
from suimon.read import options as reading

FORMAT: Final = 1
UNLIMITED: Final = "unlimited"
NEVER: Final = "never"

ID: Final = re.compile(r"[a-z][a-z0-9_]{0,99}", re.ASCII)
PIPELINE_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}", re.ASCII)
SIGNAL_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}", re.ASCII)
TASK_NAME: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
RESERVED_IDS: Final = frozenset({"input", "run"})

MAX_VERTICES: Final = 1_000
MAX_PAUSE_AFTER: Final = 100
MAX_DEPTH: Final = 64
MAX_TEXT_BYTES: Final = 1024 * 1024

_LANES: Final = '{"limit": 3, "per": "customer"}'
_MAX_COUNT: Final = 2**31 - 1  # positions of children are below it

Rule = Callable[[Any], str | None]


def whole(low: int, high: int) -> Rule:
    def check(value: Any) -> str | None:
        fine = type(value) is int and low <= value <= high
        return None if fine else f"must be a whole number from {low} to {high}, not {value!r}"

    return check


def one_of(*choices: str) -> Rule:
    def check(value: Any) -> str | None:
        listed = ", ".join(f'"{choice}"' for choice in choices)
        return None if value in choices else f"must be one of {listed}, not {value!r}"

    return check


def limit(value: Any) -> str | None:
    if value == UNLIMITED or (type(value) is int and 1 <= value <= _MAX_COUNT):
        return None
    return f'must be a whole number from 1, or "unlimited", not {value!r}'


def failures(value: Any) -> str | None:
    """`pauseAfter`: bad ends in a row after which the triggers stop."""
    if value == NEVER or (type(value) is int and 1 <= value <= MAX_PAUSE_AFTER):
        return None
    return f'must be a whole number from 1 to {MAX_PAUSE_AFTER}, or "never", not {value!r}'


def lanes(value: Any) -> str | None:
    """`concurrency` of a pipeline: one limit, or one for each value of a field of the input."""
    if not isinstance(value, dict):
        return limit(value)
    problem = parts({"limit": whole(1, _MAX_COUNT), "per": dotted})(value)
    missing = [key for key in ("limit", "per") if key not in value]
    return problem or (f'lacks "{missing[0]}": write {_LANES}' if missing else None)


def keep(value: Any) -> str | None:
    """`keep`: how long finished runs stay, by age, by number, or by both."""
    return parts({"age": duration, "count": whole(0, _MAX_COUNT)})(value)


def parts(rules: Mapping[str, Rule]) -> Rule:
    """A small object whose fields are judged here."""

    def check(value: Any) -> str | None:
        if not isinstance(value, dict) or not value:
            return f"must be an object with {', '.join(rules)}, not {value!r}"
        for name, inner in value.items():
            rule = rules.get(name)
            if rule is None:
                return f'has an unknown key "{name}"; it may have {" and ".join(rules)}'
            problem = rule(inner)
            if problem:
                return f"is wrong: {name} {problem}"
        return None

    return check


def instant(value: Any) -> str | None:
    try:
        fine = isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        fine = False
    return None if fine else f'must be an instant like "2030-01-31T06:00:00Z", not {value!r}'


def an_object(value: Any) -> str | None:
    return None if isinstance(value, dict) else f"must be an object, not {value!r}"


def dotted(value: Any) -> str | None:
    if isinstance(value, str) and len(value) <= 200 and all(value.split(".")):
        return None
    return f'must be the path of a field of the input, like "customer.id", not {value!r}'


def signal(value: Any) -> str | None:
    if isinstance(value, str) and SIGNAL_NAME.fullmatch(value):
        return None
    return f"must be letters, digits and any of _ . : - (at most 100), not {value!r}"


def duration(value: Any) -> str | None:
    try:
        positive = durations.milliseconds(value) > 0
    except ValueError as error:
        return f"is wrong: {error}"
    return None if positive else "must be longer than 0"


def wait(value: Any) -> str | None:
    try:
        durations.milliseconds(value)
    except ValueError as error:
        return f"is wrong: {error}"
    return None


def backoff_range(value: Any) -> str | None:
    try:
        backoff.parse(value)
    except ValueError as error:
        return f"is wrong: {error}"
    return None


def pipeline_name(value: Any) -> str | None:
    if isinstance(value, str) and PIPELINE_NAME.fullmatch(value):
        return None
    return f"must be lower-case letters, digits, - and _ (at most 100), not {value!r}"


def destination_name(value: Any) -> str | None:
    if isinstance(value, str) and NAME.fullmatch(value):
        return None
    return f"must be the name of a destination, not {value!r:.80}"


def statuses(value: Any) -> str | None:
    """`expect`: the answers of an HTTP vertex that are good ones."""
    listed = isinstance(value, list) and 0 < len(value) <= 100
    if listed and all(type(one) is int and 200 <= one <= 599 for one in value):
        return None
    return f"must be a list of statuses from 200 to 599, like [200, 404], not {value!r:.80}"


def task_name(value: Any) -> str | None:
    if isinstance(value, str) and TASK_NAME.fullmatch(value):
        return None
    return f'must be "module:function", not {value!r}'


def text(value: Any) -> str | None:
    return None if isinstance(value, str) and value else f"must be text, not {value!r}"


def flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else f"must be true or false, not {value!r}"


def states(value: Any) -> str | None:
    listed = isinstance(value, list) and bool(value)
    if listed and all(isinstance(name, str) and name.upper() in TOLERABLE for name in value):
        return None
    return f"must be a list of {', '.join(TOLERABLE)}, not {value!r}"


def ratio(value: Any) -> str | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return None if number and 0 <= value <= 1 else f"must be a number from 0 to 1, not {value!r}"


TOLERANCE_FIELDS: Final[Mapping[str, Rule]] = {
    "maxFailureRatio": ratio,
    "maxFailures": whole(0, _MAX_COUNT),
}
bounds: Final = parts(TOLERANCE_FIELDS)

PIPELINE_FIELDS: Final[Mapping[str, Rule]] = {
    "pool": pipeline_name,
    "concurrency": lanes,
    "priority": whole(0, 3),
    "maxQueued": limit,
    "maxInterruptions": whole(0, 1_000),
    "pauseAfter": failures,
    "onFailure": one_of("hold"),
    "deadline": duration,
    "keep": keep,
    "labels": labels.fault,
}


def sql_query(value: Any) -> str | None:
    """`query`: text that ends somewhere; what it means is judged where it runs."""
    if not isinstance(value, str) or not value.strip():
        return f"must be the text of a SELECT, not {value!r}"
    if len(value.encode(errors="replace")) > sql_text.QUERY_BYTES:
        return "must be at most 64 KiB"
    return None


_TRIES: Final[Mapping[str, Rule]] = {
    "retries": whole(0, 10_000),
    "backoff": backoff_range,
    "timeout": duration,
    "deadline": duration,
    "pool": pipeline_name,
    "maxInterruptions": whole(0, 1_000),
    "secrets": grants,
    "destination": destination_name,
}

CONFIG_FIELDS: Final[Mapping[str, Mapping[str, Rule]]] = {
    TASK: {"task": task_name, **_TRIES},
    READ: {
        "format": one_of(*reading.FORMATS),
        **reading.RULES,
    },
    SPAWNER: {
        "task": task_name,
        "pipeline": pipeline_name,
        "itemKey": text,
        "concurrency": limit,
        "maxItems": whole(0, _MAX_COUNT),
        **_TRIES,
    },
    MERGE: {
        "tolerateChildFailures": states,
        "failureTolerance": bounds,
        "failFast": flag,
        "stragglers": one_of("cancel", "finish"),
        "grace": wait,
    },
    WAIT: {"timer": duration, "signal": signal, "timeout": duration},
    APPROVAL: {
        "title": text,
        "role": text,
        "quorum": whole(1, 100),
        "expires": duration,
        "onReject": one_of("fail", "continue"),
    },
    START: {"pipeline": pipeline_name, "wait": flag, "pool": pipeline_name},
    HTTP: {
        "destination": destination_name,
        "method": one_of("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"),
        "expect": statuses,
        "retries": whole(0, 10_000),
        "backoff": backoff_range,
        "deadline": duration,
    },
    SQL: {
        "query": sql_query,
        "retries": whole(0, 10_000),
        "backoff": backoff_range,
        "timeout": duration,
        "deadline": duration,
    },
}

#: type -> (the inputs it knows, those it needs). A TASK's are its function's parameters, an SQL's
#: those of its query.
INPUTS: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    READ: (("path",), ("path",)),
    SPAWNER: (("items", "shared"), ("items",)),
    MERGE: ((), ()),
    WAIT: (("until",), ()),
    APPROVAL: (("show", "required"), ()),
    START: (("input",), ()),
    HTTP: (("path", "json", "params", "headers", "body"), ("path",)),
}
#: What a constant must be where a reference usually stands.
CONSTANTS: Final[Mapping[tuple[str, str], Rule]] = {
    (APPROVAL, "required"): flag,
    (START, "input"): an_object,
    (WAIT, "until"): instant,
    (HTTP, "path"): text,
    (HTTP, "params"): an_object,
    (HTTP, "headers"): an_object,
    (HTTP, "body"): text,
}
run_if: Final = one_of(*RUN_IF)

PIPELINE_DEFAULTS: Final[Mapping[str, Any]] = {
    "pool": "default",
    "concurrency": 1,
    "priority": 2,
    "maxQueued": 1_000,
    "maxInterruptions": 3,
    "pauseAfter": 5,
    "labels": [],
    "triggers": [],
}

CONFIG_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    TASK: {"retries": 0, "backoff": backoff.DEFAULT},
    READ: reading.DEFAULTS,
    SPAWNER: {"retries": 0, "backoff": backoff.DEFAULT, "concurrency": UNLIMITED},
    MERGE: {"failFast": False, "stragglers": "cancel", "grace": "10s"},
    WAIT: {},
    APPROVAL: {"quorum": 1, "onReject": "fail"},
    START: {"wait": True},
    HTTP: {"method": "GET", "retries": 3, "backoff": backoff.DEFAULT},
    SQL: {"retries": 0, "backoff": backoff.DEFAULT},
}
