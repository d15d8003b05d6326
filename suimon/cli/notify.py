"""``suimon notify``: who is told when something needs people, and what was told.

Exit code 1 of ``test``: the notice did not arrive; its reason is shown.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from suimon.cli import show
from suimon.cli.actor import as_option
from suimon.cli.options import DURATION, Place, database_options, json_option
from suimon.core import clock
from suimon.errors import EXIT_NEGATIVE

if TYPE_CHECKING:
    from suimon.db.connect import Connection

_LOOK_SECONDS: Final = 0.1
STATE: Final = click.Choice(["waiting", "sent", "dead"])


@click.group()
def notify() -> None:
    """Webhooks and e-mail for failed runs, pauses, dead letters, pools without a worker."""


@notify.command()
@click.argument("name")
@click.option("--webhook", metavar="URL", help="Signed as the Standard Webhooks say.")
@click.option("--secret", metavar="REF", help="Signs it: env:NAME, file:/path or secret:name.")
@click.option("--email", metavar="ADDRESS,...", help="By the mail server of SUIMON_SMTP_HOST.")
@click.option("--on", "kinds", multiple=True, metavar="KIND", help="Only this; repeatable: run.*")
@as_option
@json_option
@database_options
def add(
    name: str,
    webhook: str | None,
    secret: str | None,
    email: str | None,
    kinds: Sequence[str],
    who: str,
    as_json: bool,
    place: Place,
) -> None:
    """Tell NAME of what needs people from now on.

    \b
    suimon notify add ops --webhook https://hooks.example.com/suimon --secret env:NOTIFY_SECRET
    suimon notify add night --email night@example.com --on run.failed --on pool.no_worker
    """
    from suimon.outbox import notify as channels

    with place.connect() as conn:
        channels.add(
            conn, name, webhook=webhook, email=email, secret=secret, kinds=kinds or ("*",),
            actor=who,
        )  # fmt: skip
        found = channels.one(conn, name)
    if as_json:
        show.as_json(found)
    else:
        show.lines(f'channel "{name}" is told of {", ".join(found["kinds"])}')
        show.lines(f"try it: suimon notify test {name}")


@notify.command("list")
@json_option
@database_options
def list_(as_json: bool, place: Place) -> None:
    """The channels."""
    from suimon.outbox import notify as channels

    with place.connect() as conn:
        found = channels.listed(conn)
    if as_json:
        show.as_json({"channels": found})
        return
    rows = [
        (
            one["name"],
            one["kind"],
            one["target"],
            ", ".join(one["kinds"]),
            "enabled" if one["enabled"] else f"disabled: {one['note']}",
            one["waiting"],
            one["dead"],
        )
        for one in found
    ]
    show.table(["NAME", "KIND", "TARGET", "ON", "STATE", "WAITING", "DEAD"], rows)


@notify.command("show")
@click.argument("name")
@json_option
@database_options
def show_(name: str, as_json: bool, place: Place) -> None:
    """One channel."""
    from suimon.outbox import notify as channels

    with place.connect() as conn:
        found = channels.one(conn, name)
    if as_json:
        show.as_json(found)
    else:
        show.pairs({**found, "kinds": ", ".join(found["kinds"])})


@notify.command()
@click.argument("name")
@click.option("--wait", type=DURATION, default="15s", help="For the answer.  [default: 15s]")
@json_option
@database_options
def test(name: str, wait: float, as_json: bool, place: Place) -> int:
    """Send NAME a notice, and say whether it arrived. A worker or a server has to run."""
    from suimon.outbox import notify as channels

    with place.connect() as conn:
        notice = channels.test(conn, name)
        found = _until_tried(conn, notice, wait)
    if as_json:
        show.as_json(found)
    elif found["state"] == "sent":
        show.lines(f"notice {notice} was sent")
    else:
        why = found["why"] or "nobody has tried to send it: does a worker or a server run?"
        show.error_lines(f"notice {notice} did not arrive: {why}")
    return 0 if found["state"] == "sent" else EXIT_NEGATIVE


def _until_tried(conn: Connection, notice: str, wait: float) -> dict[str, Any]:
    from suimon.outbox import notify as channels

    give_up_at = clock.monotonic() + wait
    while True:  # bounded by give_up_at
        found = channels.log(conn, notice=notice)[0]
        tried = found["state"] != "waiting" or found["why"] is not None
        if tried or clock.monotonic() >= give_up_at:
            return found
        time.sleep(_LOOK_SECONDS)


@notify.command()
@click.argument("name")
@as_option
@json_option
@database_options
def enable(name: str, who: str, as_json: bool, place: Place) -> None:
    """Tell NAME again, of what happens from now on; what waited for it is sent."""
    from suimon.outbox import notify as channels

    with place.connect() as conn:
        _said(as_json, name, "enabled", changed=channels.enable(conn, name, actor=who))


@notify.command()
@click.argument("name")
@as_option
@json_option
@database_options
def disable(name: str, who: str, as_json: bool, place: Place) -> None:
    """Tell NAME nothing until it is enabled again."""
    from suimon.outbox import notify as channels

    with place.connect() as conn:
        _said(as_json, name, "disabled", changed=channels.disable(conn, name, actor=who))


@notify.command()
@click.argument("name")
@as_option
@json_option
@database_options
def remove(name: str, who: str, as_json: bool, place: Place) -> None:
    """Forget NAME, with its notices."""
    from suimon.outbox import notify as channels

    with place.connect() as conn:
        channels.remove(conn, name, actor=who)
    _said(as_json, name, "removed", changed=True)


def _said(as_json: bool, name: str, state: str, changed: bool) -> None:
    if as_json:
        show.as_json({"name": name, "state": state, "changed": changed})
    else:
        show.lines(f'channel "{name}" {"is" if changed else "was already"} {state}')


@notify.command()
@click.option("--channel", metavar="NAME", help="Of this channel only.")
@click.option("--state", type=STATE, help="In this state only.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--before", metavar="ID", help="Older than this notice: the next page.")
@json_option
@database_options
def log(
    channel: str | None,
    state: str | None,
    limit: int,
    before: str | None,
    as_json: bool,
    place: Place,
) -> None:
    """What was told and what came of it, newest first."""
    from suimon.outbox import notify as channels

    start = None if before is None else _uuid(before)
    with place.connect() as conn:
        found = channels.log(conn, channel=channel, state=state, before=start, limit=limit)
    last = found[-1]["id"] if len(found) == limit else None
    if as_json:
        show.as_json({"notices": found, "next": last})
        return
    rows = [
        (
            one["id"],
            one["channel"],
            one["kind"],
            one["state"],
            show.when(one["created_at"]),
            one["tries"],
            one["subject"],
            show.first_line(one["why"]),
        )
        for one in found
    ]
    columns = ["ID", "CHANNEL", "KIND", "STATUS", "CREATED", "TRIES", "SUBJECT", "WHY"]
    show.table(columns, rows, footer=f"{limit} shown; more: --before {last}" if last else None)


@notify.command()
@click.argument("notice", metavar="ID")
@as_option
@json_option
@database_options
def again(notice: str, who: str, as_json: bool, place: Place) -> None:
    """Send a notice again that is dead or was sent."""
    from suimon.outbox import notify as channels

    full = _uuid(notice)
    with place.connect() as conn:
        channels.again(conn, full, actor=who)
    if as_json:
        show.as_json({"id": full, "state": "waiting"})
    else:
        show.lines(f"notice {full} is sent again")


def _uuid(text: str) -> str:
    import uuid

    from suimon.errors import InputRefused

    try:
        return str(uuid.UUID(text))
    except ValueError:
        msg = f'"{text}" is no id of a notice'
        raise InputRefused(msg, path="id", hint="See: suimon notify log") from None
