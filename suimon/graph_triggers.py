"""Triggers in a graph: what each door may say, and which input a run started there has.

They are stored as data: this version does not fire them, and says so. Their fields are checked all
the same, and so is what vertices read of the input: a cron start has no file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Protocol
from zoneinfo import ZoneInfo

from suimon.core import shape
from suimon.core.door import input_references
from suimon.core.suggest import did_you_mean, one_of
from suimon.graph_fields import Rule, duration, instant, text
from suimon.graph_fields import one_of as choice

Graph = Mapping[str, Any]

MAX_TRIGGERS: Final = 100
WARNING: Final = "triggers are stored; this version does not fire them"

_SECRET: Final = re.compile(r"env:[A-Za-z_]\w*|file:/.+|secret:[a-z0-9][a-z0-9_-]*", re.ASCII)
_SLUG: Final = re.compile(r"[a-z0-9][a-z0-9_/-]{0,99}", re.ASCII)
_CRON_FIELD: Final = re.compile(r"[0-9A-Za-z*,/#-]+", re.ASCII)
_CRON_ALIAS: Final = re.compile(r"@(hourly|daily|midnight|weekly|monthly|yearly|annually)")


class Notes(Protocol):
    def add(
        self, vertex: str | None, field: str | None, message: str, hint: str | None = None
    ) -> None: ...


def cron(value: Any) -> str | None:
    """Five fields of the right letters; what they mean is judged by whoever fires them."""
    if isinstance(value, str) and len(value) <= 200:
        fields = value.split()
        five = len(fields) == 5 and all(_CRON_FIELD.fullmatch(field) for field in fields)
        if five or _CRON_ALIAS.fullmatch(value):
            return None
    return f'must be five fields, like "30 2 * * *", not {value!r}'


def time_zone(value: Any) -> str | None:
    try:
        known = isinstance(value, str) and ZoneInfo(value) is not None
    except (ValueError, OSError, KeyError):  # what ZoneInfo raises for names and for odd paths
        known = False
    return None if known else f'must be a time zone like "Europe/Berlin" or "UTC", not {value!r}'


def secret(value: Any) -> str | None:
    """Never a literal: it would lie in the database and in every copy of the definition."""
    if isinstance(value, str) and _SECRET.fullmatch(value):
        return None
    return 'must name a secret: "env:NAME", "file:/path" or "secret:name"'


def slug(value: Any) -> str | None:
    if isinstance(value, str) and _SLUG.fullmatch(value):
        return None
    return f"must be lower-case letters, digits, - _ and / (at most 100), not {value!r}"


FIELDS: Final[Mapping[str, Mapping[str, Rule]]] = {
    "CRON": {
        "cron": cron,
        "tz": time_zone,
        "gap": choice("next", "skip"),
        "fold": choice("first", "last", "both"),
        "catchUp": choice("last", "all", "none"),
    },
    "EVENT": {"event": text},
    "EVERY": {"every": duration, "anchor": instant},
    "FILE": {
        "path": text,
        "settle": duration,
        "order": choice("mtime", "name"),
        "mode": choice("auto", "poll"),
    },
    "WEBHOOK": {
        "slug": slug,
        "preset": choice("generic", "standard", "github", "stripe"),
        "secret": secret,
        "keyHeader": text,
    },
}
NEEDED: Final = {
    "CRON": "cron",
    "EVENT": "event",
    "EVERY": "every",
    "FILE": "path",
    "WEBHOOK": "slug",
}
DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {"CRON": {"tz": "UTC"}}
_ON_TIME: Final = ("folded", "previous_at", "scheduled_at")

#: type -> the fields of the input of a run that it starts.
INPUT: Final[Mapping[str, tuple[str, ...]]] = {
    "CRON": _ON_TIME,
    "EVENT": ("event_id", "occurred_at", "payload", "type"),
    "EVERY": _ON_TIME,
    "FILE": ("event_id", "folder", "mtime", "name", "path", "size"),
    "WEBHOOK": ("body", "delivery_id", "headers", "received_at"),
}


def check_triggers(triggers: Any, notes: Notes) -> None:
    """Each trigger by itself."""
    if triggers is None:
        return
    if not isinstance(triggers, list):
        notes.add(None, "triggers", 'must be a list, like [{"type": "FILE", "path": "in/*.csv"}]')
        return
    if len(triggers) > MAX_TRIGGERS:
        message = f"{len(triggers):,} triggers; the limit is {MAX_TRIGGERS}"
        notes.add(None, "triggers", message)
        return
    for index, trigger in enumerate(triggers):
        _check_trigger(trigger, f"triggers[{index}]", notes)


def _check_trigger(trigger: Any, place: str, notes: Notes) -> None:
    kind = trigger.get("type") if isinstance(trigger, dict) else trigger
    if not isinstance(kind, str) or kind not in FIELDS or not isinstance(trigger, dict):
        listed = ", ".join(FIELDS)
        near = did_you_mean(kind.upper(), FIELDS) if isinstance(kind, str) else None
        message = f"unknown trigger type {kind!r}; this version has {listed}"
        notes.add(None, f"{place}.type", message, near)
        return
    rules = FIELDS[kind]
    for key, value in trigger.items():
        if key == "type":
            continue
        if key not in rules:
            notes.add(None, f"{place}.{key}", f'unknown key "{key}"', one_of(str(key), rules))
        elif problem := rules[key](value):
            notes.add(None, f"{place}.{key}", f"{key} {problem}")
    if NEEDED[kind] not in trigger:
        notes.add(None, f"{place}.{NEEDED[kind]}", f'a {kind} trigger needs "{NEEDED[kind]}"')


def check_inputs(graph: Graph, notes: Notes) -> None:
    """Does every trigger's input have what vertices and the lanes read of it?"""
    triggers = graph.get("triggers")
    if not isinstance(triggers, list):
        return
    kinds = {str(trigger.get("type")) for trigger in triggers if isinstance(trigger, dict)}
    wanted = [(vertex, ref.path[1:]) for vertex, ref in input_references(graph)]
    limit = graph.get("concurrency")
    if isinstance(limit, dict) and isinstance(limit.get("per"), str):
        wanted.append(("concurrency", tuple(limit["per"].split("."))))
    told: set[tuple[str, str, str]] = set()
    for kind in sorted(kind for kind in kinds if kind in INPUT):
        for vertex, rest in wanted:
            if rest and rest[0] not in INPUT[kind] and (kind, vertex, str(rest[0])) not in told:
                told.add((kind, vertex, str(rest[0])))
                message = f'a run started by {_A[kind]} has no input "{rest[0]}"'
                hint = f"it has {', '.join(INPUT[kind])}"
                known = vertex in shape.vertices(graph)
                notes.add(vertex if known else None, None if known else vertex, message, hint)


_A: Final = {
    "CRON": "a CRON trigger",
    "EVENT": "an EVENT trigger",
    "EVERY": "an EVERY trigger",
    "FILE": "a FILE trigger",
    "WEBHOOK": "a WEBHOOK trigger",
}
