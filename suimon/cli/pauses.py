"""``suimon pause|resume|paused``: what stands still on purpose, by whose word, and since when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from suimon.cli import show
from suimon.cli.actor import audited
from suimon.cli.options import Place, database_options, json_option
from suimon.core import words

F = TypeVar("F", bound=Callable[..., Any])
_KINDS: Final = click.Choice(["pipeline", "trigger", "pool", "destination"])


def _named(function: F) -> F:
    only = click.option(
        "--triggers-only", is_flag=True, help="Of a pipeline: what starts it by itself."
    )
    function = json_option(database_options(function))
    return click.argument("kind", type=_KINDS)(click.argument("name")(only(audited(function))))


@click.command()
@_named
def pause(
    kind: str,
    name: str,
    triggers_only: bool,
    who: str,
    reason: str,
    as_json: bool,
    place: Place,
) -> None:
    """Let nothing of it start; what runs goes on to its end.

    \b
    suimon pause pipeline nightly --why "the ledger is being moved"
    suimon pause pipeline nightly --triggers-only
    suimon pause pool gpu
    """
    from suimon.run import pause as pauses

    with place.connect() as conn:
        made = pauses.pause(conn, f"{kind}:{name}", who, reason, triggers_only=triggers_only)
    if as_json:
        show.as_json(made)
        return
    if made["changed"]:
        show.lines(f"{made['kind']} {made['name']} is paused; resume it: {made['resume']}")
    else:
        show.lines(f"{made['kind']} {made['name']} is paused already, {_since(made)}")


@click.command()
@_named
def resume(
    kind: str,
    name: str,
    triggers_only: bool,
    who: str,
    reason: str,
    as_json: bool,
    place: Place,
) -> None:
    """Let it go on, with all that waited for it; a pipeline's failures are counted anew."""
    from suimon.run import pause as pauses

    with place.connect() as conn:
        answer = pauses.resume(conn, f"{kind}:{name}", who, reason, triggers_only=triggers_only)
    if as_json:
        show.as_json(answer)
        return
    if not answer["resumed"]:
        show.lines(f"{kind} {name} was not paused")
        return
    let_in = (
        f"; {words.count(answer['let_in'], 'run is', 'runs are')} in the queue again"
        if answer["let_in"]
        else ""
    )
    show.lines(f"{kind} {name} goes on{let_in}")


@click.command()
@json_option
@database_options
def paused(as_json: bool, place: Place) -> None:
    """What is paused, oldest first: by whom, since when, why, and what ends it."""
    from suimon.run import pause as pauses

    with place.connect() as conn:
        found = pauses.listed(conn)
    if as_json:
        show.as_json({"paused": found})
        return
    rows = [
        (one["kind"], one["name"], one["by"], show.when(one["at"]), one["why"], one["resume"])
        for one in found
    ]
    show.table(["PAUSED", "NAME", "BY", "SINCE", "WHY", "GOES ON WITH"], rows)


def _since(made: dict[str, Any]) -> str:
    return f"since {show.when(made['at'])}, by {made['by']}" + (
        f": {made['why']}" if made["why"] else ""
    )
