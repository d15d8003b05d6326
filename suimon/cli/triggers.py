"""``suimon triggers``: what starts runs by itself, why a file was taken or not, a file again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from suimon.cli import schedules, show
from suimon.cli.actor import audited
from suimon.cli.options import Place, database_options, json_option
from suimon.errors import EXIT_NEGATIVE, NotThere

if TYPE_CHECKING:
    from suimon.db.connect import Connection


@click.group()
def triggers() -> None:
    """List and show triggers; next instants; explain a file; process a file again."""


triggers.add_command(schedules.next_)
triggers.add_command(schedules.run_now)


@triggers.command("list")
@click.option("--pipeline", metavar="NAME", help="Of this pipeline only.")
@click.option("--all", "all_", is_flag=True, help="Also those that are in no current graph.")
@json_option
@database_options
def list_(pipeline: str | None, all_: bool, as_json: bool, place: Place) -> None:
    """Triggers with what waits at each, and what hinders it."""
    from suimon.run.read import as_json as plain
    from suimon.triggers import files

    with place.connect() as conn:
        found = files.listed(conn, pipeline=pipeline, retired=all_)
    if as_json:
        show.as_json({"triggers": [{k: plain(v) for k, v in one.items()} for one in found]})
        return
    rows = [
        (one["id"], one["pipeline"], one["name"], one["waiting"] or "", show.when(one["next_at"]),
         show.when(one["last_at"]), _state(one))
        for one in found
    ]  # fmt: skip
    columns = ["ID", "PIPELINE", "TRIGGER", "WAITING", "NEXT", "LAST ARRIVAL", "STATE"]
    show.table(columns, rows)


@triggers.command("show")
@click.argument("trigger", type=int, metavar="ID")
@json_option
@database_options
def show_(trigger: int, as_json: bool, place: Place) -> None:
    """One trigger: its options with those left out, its note, its last 20 deliveries."""
    from suimon.run.read import as_json as plain
    from suimon.triggers import files

    with place.connect() as conn:
        found = files.listed(conn, trigger=trigger)
        if not found:
            msg = f"there is no trigger {trigger}"
            raise NotThere(msg, hint="suimon triggers list shows their numbers.")
        latest = files.latest(conn, trigger)
    one = {**found[0], "options": _options(found[0])}
    if as_json:
        shown = {name: plain(value) for name, value in one.items()}
        listed = [{name: plain(value) for name, value in each.items()} for each in latest]
        show.as_json({**shown, "deliveries": listed})
        return
    parts = {name: one[name] for name in ("id", "pipeline", "name", "kind", "waiting", "note")}
    show.pairs({**parts, "state": _state(one), "next": show.when(one["next_at"]) or None})
    show.lines()
    show.pairs({name: _text(value) for name, value in one["options"].items()})
    show.lines()
    _deliveries(latest)


@triggers.command()
@click.argument("file")
@click.option("--trigger", type=int, metavar="ID", help="At this trigger only.")
@json_option
@database_options
def explain(file: str, trigger: int | None, as_json: bool, place: Place) -> int:
    """Why FILE was taken, or why not, at each FILE trigger.

    The answer is about the file as this machine sees it now. Exit code 1: no trigger took it.
    """
    from suimon.run.read import as_json as plain
    from suimon.triggers import file_explain

    with place.connect() as conn:
        path = _place(conn, file)
        found = file_explain.explain(conn, path, trigger=trigger)
    near = [one for one in found if one.near] or found
    taken = any(one.code in ("taken", "known", "waiting") for one in found)
    if as_json:
        answers = [
            {
                "trigger": one.trigger.id, "pipeline": one.trigger.pipeline,
                "name": one.trigger.name, "code": one.code, "why": one.why, "key": one.key,
                "note": one.trigger.note,
                "deliveries": [{k: plain(v) for k, v in d.items()} for d in one.deliveries],
            }
            for one in found
        ]  # fmt: skip
        show.as_json({"file": _shown(file), "taken": taken, "triggers": answers})
        return 0 if taken else EXIT_NEGATIVE
    if not found:
        show.lines("there are no FILE triggers")
    for one in near:
        name = f"{one.trigger.pipeline}, trigger {one.trigger.id} ({one.trigger.name})"
        show.lines(f"{name}: {one.code}: {one.why}")
        if one.trigger.note:
            show.lines(f"  its note: {one.trigger.note}")
        if one.deliveries:
            _deliveries(one.deliveries)
    if found and not taken and not os.path.isabs(file):  # noqa: PTH117
        begins = "a relative FILE begins at this folder, else at that of the code"
        show.error_lines(f"looked at: {_shown(path)} ({begins})")
    return 0 if taken else EXIT_NEGATIVE


@triggers.command()
@click.argument("file")
@click.option("--trigger", type=int, metavar="ID", help="At this trigger only.")
@audited
@json_option
@database_options
def again(
    file: str, trigger: int | None, who: str, reason: str, as_json: bool, place: Place
) -> None:
    """Process FILE again, as it is now: a new delivery at each trigger that means it."""
    from suimon.triggers import file_explain

    with place.connect() as conn:
        path = _place(conn, file)
        made = file_explain.again(conn, path, trigger=trigger, actor=who, why=reason)
    if as_json:
        answers = [
            {"trigger": one.trigger.id, "pipeline": one.trigger.pipeline, "key": one.key}
            for one in made
        ]
        show.as_json({"file": _shown(file), "deliveries": answers})
        return
    for one in made:
        show.lines(f'"{_shown(file)}" waits for {one.trigger.pipeline} (trigger {one.trigger.id})')


def _place(conn: Connection, file: str) -> str:
    """A relative name begins here; one that is not here, at the folder of the code, as in a
    pipeline.
    """
    from suimon.read import local_path
    from suimon.triggers import file_explain

    path = _path(file)
    if os.path.isabs(file) or os.path.lexists(path) or "://" in path:  # noqa: PTH117
        return path
    return file_explain.below_code(conn, str(local_path(file))) or path


def _path(file: str) -> str:
    """A path as triggers have it: absolute; the URL of an object as it is."""
    from suimon.read import local_path
    from suimon.triggers import file_rules

    if file_rules.is_address(file) and "://" in file:
        return file
    return os.path.join(Path.cwd(), local_path(file))  # noqa: PTH118  (links stay as written)


def _shown(file: str) -> str:
    from suimon.read.names import shown

    return shown(os.fsencode(file))


def _options(one: dict[str, Any]) -> dict[str, Any]:
    """What the graph says, and for files what holds where it says nothing."""
    spec = {name: value for name, value in one["spec"].items() if name != "type"}
    if one["kind"] != "FILE":
        return spec
    from suimon.triggers import file_rules

    usual = {
        "settle": f"{file_rules.SETTLE_S:g}s", "dedupe": "version", "mode": "auto",
        "interval": f"{file_rules.INTERVAL_S:g}s", "recursive": False, "order": "mtime",
        "empty": "skip", "followLinks": False, "ignore": list(file_rules.IGNORE),
    }  # fmt: skip
    return {**spec, **{name: value for name, value in usual.items() if name not in spec}}


def _state(one: dict[str, Any]) -> str:
    if one["retired_at"] is not None:
        return "retired"
    if one["pause"] is not None:
        return f"paused ({one['pause']})"
    return show.first_line(one["note"]) or "live"


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else show.value(value).strip('"')


def _deliveries(found: list[dict[str, Any]]) -> None:
    rows = [
        (show.when(one["arrived_at"]), one["state"], one.get("source", ""), one["run_id"],
         one["why"] or one["code"] or ("duplicate" if one["duplicate"] else ""))
        for one in found
    ]  # fmt: skip
    show.table(["ARRIVED", "STATE", "WHAT", "RUN", "WHY"], rows)
