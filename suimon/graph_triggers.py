"""Triggers in a graph: what each door may say, and which input a run started there has.

Their fields are checked before anything is stored, and so is what vertices read of the input: a
cron start has no file. Who fires them is in suimon/triggers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Protocol

from suimon import graph_files
from suimon import graph_schedules as schedules
from suimon.core import bodies, jsonsafe, shape, signatures
from suimon.core.door import TRIGGER_INPUT as INPUT
from suimon.core.door import input_references
from suimon.core.secret_names import reference as secret
from suimon.core.suggest import did_you_mean, one_of
from suimon.graph_fields import Rule, duration, whole
from suimon.graph_fields import one_of as choice

Graph = Mapping[str, Any]

MAX_TRIGGERS: Final = 100
#: Bytes of a webhook's body, unless the trigger says otherwise.
MAX_BODY: Final = 1024 * 1024

_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", re.ASCII)
_SLUG: Final = re.compile(r"[a-z0-9][a-z0-9_/-]{0,99}", re.ASCII)
_EVENT: Final = re.compile(r"[A-Za-z0-9*][A-Za-z0-9_.:/*-]{0,199}", re.ASCII)


class Notes(Protocol):
    def add(
        self, vertex: str | None, field: str | None, message: str, hint: str | None = None
    ) -> None: ...


def slug(value: Any) -> str | None:
    if isinstance(value, str) and _SLUG.fullmatch(value):
        return None
    return f"must be lower-case letters, digits, - _ and / (at most 100), not {value!r}"


def event(value: Any) -> str | None:
    """What no type of an event can fit would wait for ever."""
    if isinstance(value, str) and _EVENT.fullmatch(value):
        return None
    return (
        "must be a type of event like order.paid or order.*: letters, digits, and . _ : / - "
        f"(at most 200), where * stands for any of them; not {value!r}"
    )


def secret_or_two(value: Any) -> str | None:
    """Two at most: the new one, and the old one while senders still sign with it."""
    if not isinstance(value, list):
        return secret(value)
    problems = [problem for problem in map(secret, value) if problem]
    if problems or (len(value) == signatures.MAX_SECRETS and value[0] != value[1]):
        return problems[0] if problems else None
    return "must be one reference to a secret, or a list of two different ones"


def header_name(value: Any) -> str | None:
    if isinstance(value, str) and _HEADER.fullmatch(value):
        return None
    return f'must be the name of a header, like "X-Request-Id", not {value!r}'


def prefix(value: Any) -> str | None:
    """What stands before the digest, like `sha256=`."""
    fine = isinstance(value, str) and value.isascii() and value.isprintable() and len(value) <= 50
    return None if fine else f"must be at most 50 printable ASCII characters, not {value!r}"


FIELDS: Final[Mapping[str, Mapping[str, Rule]]] = {
    "CRON": schedules.CRON,
    "EVENT": {"event": event},
    "EVERY": schedules.EVERY,
    "FILE": graph_files.FILE,
    "WEBHOOK": {
        "slug": slug,
        "preset": choice(*signatures.PRESETS),
        "secret": secret_or_two,
        "keyHeader": header_name,
        "header": header_name,
        "algorithm": choice(*signatures.ALGORITHMS),
        "encoding": choice(*signatures.ENCODINGS),
        "prefix": prefix,
        "timestampHeader": header_name,
        "template": signatures.template_problem,
        "tolerance": duration,
        "expects": choice(*bodies.EXPECTS),
        "maxBody": whole(1, jsonsafe.MAX_BYTES),
    },
}
NEEDED: Final = {
    "CRON": "cron",
    "EVENT": "event",
    "EVERY": "every",
    "FILE": "path",
    "WEBHOOK": "slug",
}
DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "CRON": {"tz": "UTC"},
    "WEBHOOK": {
        "preset": signatures.DEFAULT_PRESET,
        "algorithm": "sha256",
        "encoding": "hex",
        "expects": "any",
        "maxBody": MAX_BODY,
    },
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
    _check_twins(triggers, notes)


#: What tells two triggers of one type apart; deliveries and schedules hang on it.
_KNOWN_BY: Final = {
    "CRON": ("cron", "tz"),
    "EVENT": ("event",),
    "EVERY": ("every", "anchor"),
    "FILE": ("path",),
    "WEBHOOK": ("slug",),
}


def _check_twins(triggers: list[Any], notes: Notes) -> None:
    """Two triggers that are one to the database would lose one of their options."""
    seen: dict[tuple[str, ...], int] = {}
    for index, trigger in enumerate(triggers):
        kind = trigger.get("type") if isinstance(trigger, dict) else None
        if not isinstance(kind, str) or kind not in _KNOWN_BY:
            continue
        values = {**DEFAULTS.get(kind, {}), **trigger}
        key = (kind, *(repr(values.get(field)) for field in _KNOWN_BY[kind]))
        first = seen.setdefault(key, index)
        if first != index:
            fields = " and ".join(_KNOWN_BY[kind])
            message = f"the same {fields} as triggers[{first}]"
            notes.add(None, f"triggers[{index}]", message)


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
    if kind == "WEBHOOK":
        _check_webhook(trigger, place, notes)
    if together := schedules.together(trigger):
        notes.add(None, f"{place}.{together[0]}", together[1])
    if kind == "FILE":
        graph_files.check(trigger, place, notes)


_OF_GENERIC: Final = ("header", "algorithm", "encoding", "prefix", "timestampHeader", "template")


def _check_webhook(trigger: Mapping[str, Any], place: str, notes: Notes) -> None:
    """What its fields say together."""
    preset = trigger.get("preset", signatures.DEFAULT_PRESET)
    if preset != "generic":
        for key in _OF_GENERIC:
            if key in trigger:
                message = f'{key} belongs to the preset "generic"; "{preset}" has its own'
                notes.add(None, f"{place}.{key}", message)
        return
    template = trigger.get("template")
    timed = "{timestamp}" in template if isinstance(template, str) else None
    if timed and "timestampHeader" not in trigger:
        message = "the template has a {timestamp} that no header brings"
        notes.add(None, f"{place}.template", message, 'add "timestampHeader"')
    if timed is False and "timestampHeader" in trigger:
        message = "the template leaves out the timestamp, so anybody could change it"
        notes.add(None, f"{place}.template", message, 'like "{timestamp}.{body}"')


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


def open_doors(graph: Graph) -> list[str]:
    """The addresses of webhooks that anybody may call: they have no secret."""
    triggers = graph.get("triggers", [])
    return [t["slug"] for t in triggers if t["type"] == "WEBHOOK" and "secret" not in t]
