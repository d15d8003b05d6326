"""``suimon emit``: something happened, and each pipeline that listens to it starts a run."""

from __future__ import annotations

import click

from suimon.cli import show
from suimon.cli.options import Place, database_options, json_option
from suimon.cli.run import read_input


@click.command()
@click.argument("type", metavar="TYPE")
@click.argument("payload", metavar="[JSON|@FILE|-]", required=False)
@click.option("--key", help="The same key of this type again is the same event.")
@json_option
@database_options
def emit(type: str, payload: str | None, key: str | None, as_json: bool, place: Place) -> None:  # noqa: A002
    """Tell of an event of TYPE.

    \b
    suimon emit order.paid '{"order": 17}' --key order-17
    """
    value = read_input(payload)
    from suimon.outbox import emit as events

    with place.connect() as conn:
        event = events.emit(conn, type, value, key=key)
        listeners = events.listeners(conn, type)
    if as_json:
        told = [{"pipeline": pipeline, "trigger": name} for pipeline, name in listeners]
        show.as_json({"event_id": event, "listeners": told})
        return
    show.lines(event)
    if listeners:
        show.error_lines(f"told: {', '.join(sorted({pipeline for pipeline, _ in listeners}))}")
    else:
        show.error_lines(f'no pipeline listens to "{type}"; the event is kept all the same')
