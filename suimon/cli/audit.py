"""``suimon audit``: who did what by hand, when and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from suimon.cli import show
from suimon.cli.options import Place, database_options, json_option

#: Characters of a summary; the whole is in --json.
_LONGEST: Final = 80
#: Words of a list that are shown; of a longer one its length.
_FEW: Final = 4
_COUNTED: Final = {"runs": "run", "children": "child"}


@click.group()
def audit() -> None:
    """Who did what, when and why."""


@audit.command("list")
@click.option("--run", "run_id", metavar="ID", help="What was done to this run.")
@click.option("--as", "who", metavar="NAME", help="What this person did.")
@click.option("--action", help="Only this: retry, cancel, rerun, skip, priority, approve, ...")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--before", type=int, metavar="NUMBER", help="Older than this record: the next page.")
@json_option
@database_options
def list_(
    run_id: str | None,
    who: str | None,
    action: str | None,
    limit: int,
    before: int | None,
    as_json: bool,
    place: Place,
) -> None:
    """The records, newest first. They outlive the runs."""
    from suimon.run import audit as recorded

    with place.connect() as conn:
        target = None if run_id is None else recorded.target_of(conn, run_id)
        found = recorded.listed(
            conn, target=target, actor=who, action=action, before=before, limit=limit
        )
    if as_json:
        show.as_json({"audit": found, "next": found[-1]["id"] if len(found) == limit else None})
        return
    rows = [
        (
            one["id"],
            show.when(one["at"]),
            one["actor"],
            one["action"],
            one["target"],
            (one["detail"] or {}).get("why"),
            _summary(one["detail"] or {}),
        )
        for one in found
    ]
    more = f"{limit} shown; more: --before {rows[-1][0]}" if len(rows) == limit else None
    columns = ["NUMBER", "AT", "WHO", "DID", "TO", "WHY", "DETAIL"]
    show.table(columns, rows, footer=more)


def _summary(detail: Mapping[str, Any]) -> str:
    """What belongs to the act, in one short line: changes as `x 1 -> 2`, long lists as numbers."""
    parts = {name: value for name, value in detail.items() if name != "why"}
    found = _changes(parts.pop("from"), parts.pop("to")) if {"from", "to"} <= set(parts) else []
    found += [text for name, value in parts.items() if (text := _part(name, value))]
    text = ", ".join(found)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _changes(before: Any, after: Any) -> list[str]:
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        return [f"{_word(before)} -> {_word(after)}"]
    changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return [f"{n} {_word(before.get(n))} -> {_word(after.get(n))}" for n in changed]


def _part(name: str, value: Any) -> str:
    """One part of a detail; what is off or empty is left out."""
    said = name.replace("_", " ")
    if value is None or value is False or value in ("", [], {}):
        return ""
    if value is True:
        return said
    if name in _COUNTED:
        number = value if isinstance(value, int) else len(value)
        return f"{number:,} {_COUNTED[name] if number == 1 else name}"
    if isinstance(value, list | dict):
        return f"{said}: {_few(value)}"
    return f"{said} {_word(value)}"


def _few(value: list[Any] | dict[str, Any]) -> str:
    """Its words, if they are few and plain; else how many there are."""
    inner = value if isinstance(value, list) else list(value.values())
    if len(value) > _FEW or any(isinstance(one, list | dict) for one in inner):
        return f"{len(value):,}"
    if isinstance(value, list):
        return ", ".join(map(_word, value))
    return ", ".join(f"{name} {_word(one)}" for name, one in value.items())


def _word(value: Any) -> str:
    if isinstance(value, list | dict):
        return _few(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
