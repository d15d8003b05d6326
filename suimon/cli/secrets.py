"""``suimon secrets``: values go in and never come out; everything else about them is shown.

A value comes from a prompt, from standard input or from a file, never from an argument: the command
line of a process is read by everybody on the machine and kept by the shell.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from suimon.cli import show
from suimon.cli.actor import audited
from suimon.cli.options import Place, database_options, json_option
from suimon.core import secret_names, words
from suimon.core.redact import SHORTEST
from suimon.errors import (
    EXIT_NEGATIVE,
    EXIT_PARTLY,
    Conflict,
    InputRefused,
    SecretError,
    SecretMissing,
    SecretTooShort,
)

if TYPE_CHECKING:
    from suimon.db.connect import Connection
    from suimon.store.secret_key import KeyRing

_SHOWN: Final = 20


@click.group()
def secrets() -> None:
    """Stored secrets: set, list, remove, rotate, who uses them."""


@secrets.command("set")
@click.argument("name")
@click.argument("rest", nargs=-1, metavar="")
@click.option("--from-file", type=click.Path(dir_okay=False), metavar="F", help="Its content.")
@audited
@json_option
@database_options
def set_(
    name: str,
    rest: tuple[str, ...],
    from_file: str | None,
    who: str,
    reason: str,
    as_json: bool,
    place: Place,
) -> None:
    """Store a value under NAME: asked for twice, or from standard input, or from a file.

    One line end at its end is left out. Runs that begin a second later have the new value.
    """
    from suimon.db.connect import retrying, transaction
    from suimon.run import audit
    from suimon.store import secret

    if rest:
        msg = "a value is never given as an argument: others can read the command line"
        raise InputRefused(msg, path="value", hint=f"suimon secrets set {name} < FILE")
    ring = _ring()
    ring.needed()
    value = _value(name, from_file)
    with place.connect() as conn:

        def act() -> int:
            with transaction(conn):
                version = secret.put(conn, ring, name, value, by=audit.checked(who))
                note = {"version": version}
                audit.note(conn, "secret set", [name], actor=who, why=reason, detail=note)
                return version

        version = retrying(act)
    if as_json:
        show.as_json({"name": name, "version": version})
    else:
        show.lines(f"secret {name}: version {version} is stored")


def _value(name: str, from_file: str | None) -> str:
    """The text; what is too short to be hidden in a log is refused."""
    from suimon.store import secret

    if from_file is not None:
        with Path(from_file).open("rb") as file:
            raw = file.read(secret.VALUE_BYTES + 1)
    elif sys.stdin.isatty():
        text = click.prompt(f"Value of {name}", hide_input=True, confirmation_prompt=True, err=True)
        raw = str(text).encode()
    else:
        raw = sys.stdin.buffer.read(secret.VALUE_BYTES + 1)
    value = secret.checked(raw, f'"{name}"')
    if len(value) < SHORTEST:
        msg = f"the value has fewer than {SHORTEST} characters and could not be taken out of logs"
        raise SecretTooShort(msg)
    return value


@secrets.command("list")
@json_option
@database_options
def list_(as_json: bool, place: Place) -> None:
    """Names, versions, who set them and when, and how many places refer to each."""
    from suimon.store import secret, secret_uses

    with place.connect() as conn:
        found = list(secret.listed(conn))
        counts: dict[str, int] = {}
        for use in secret_uses.uses(conn):
            counts[use.reference] = counts.get(use.reference, 0) + 1
    if as_json:
        listed = [
            {
                "name": one.name,
                "version": one.version,
                "key": one.key_id,
                "set_by": one.set_by,
                "set_at": one.set_at,
                "uses": counts.get(secret_names.STORED + one.name, 0),
            }
            for one in found
        ]
        show.as_json({"secrets": listed})
        return
    rows = [
        (
            one.name,
            one.version,
            one.key_id,
            one.set_by,
            show.when(one.set_at),
            counts.get(secret_names.STORED + one.name, 0),
        )
        for one in found
    ]
    show.table(["NAME", "VERSION", "KEY", "SET BY", "SET AT", "USES"], rows)


@secrets.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Also while pipelines refer to it.")
@audited
@json_option
@database_options
def remove(name: str, force: bool, who: str, reason: str, as_json: bool, place: Place) -> None:
    """Forget a secret. It is refused while a pipeline refers to it."""
    from suimon.db.connect import retrying, transaction
    from suimon.run import audit
    from suimon.store import secret, secret_uses

    with place.connect() as conn:
        uses = list(secret_uses.uses(conn, secret_names.STORED + name))
        if uses and not force:
            listed = "; ".join(str(one) for one in uses[:_SHOWN])
            msg = f'the secret "{name}" is used in {words.count(len(uses), "place")}'
            raise Conflict(msg, detail=listed, hint="Deploy without it first, or --force.")

        def act() -> bool:
            with transaction(conn):
                gone = secret.remove(conn, name)
                if gone:
                    note = {"uses": len(uses)}
                    audit.note(conn, "secret remove", [name], actor=who, why=reason, detail=note)
                return gone

        if not retrying(act):
            msg = f'there is no secret "{name}"'
            raise SecretMissing(msg, hint="suimon secrets list")
    if as_json:
        show.as_json({"name": name, "removed": True})
    else:
        show.lines(f"secret {name} is gone")


@secrets.command()
@audited
@json_option
@database_options
def rotate(who: str, reason: str, as_json: bool, place: Place) -> int:
    """Encrypt all values anew under SUIMON_SECRET_KEY, from SUIMON_SECRET_KEY_OLD.

    Every worker and server needs both keys before. Broken off, it goes on when called again.
    """
    from suimon.db.connect import retrying, transaction
    from suimon.run import audit
    from suimon.store import secret

    ring = _ring()
    key = ring.needed()
    with place.connect() as conn:

        def begin() -> bool:
            with transaction(conn):
                began = secret.begin_rotation(conn, ring)
                if began:
                    note = {"key": key.id}
                    audit.note(
                        conn, "secret key rotate", [key.id], actor=who, why=reason, detail=note
                    )
                return began

        began = retrying(begin)
        done = sum(secret.rotate(conn, ring))
        left = secret.left_over(conn, ring)
    if as_json:
        show.as_json({"key": key.id, "encrypted": done, "left": left, "began": began})
    elif began or done:
        show.lines(f"key {key.id} is the current one; {done:,} values were encrypted anew")
        show.lines("SUIMON_SECRET_KEY_OLD is not needed any more")
    else:
        show.lines(f"nothing to do: key {key.id} is the current one, and all values are under it")
    return EXIT_PARTLY if left else 0


@secrets.command("where-used")
@click.argument("reference", metavar="NAME")
@json_option
@database_options
def where_used(reference: str, as_json: bool, place: Place) -> None:
    """The triggers and tasks that refer to NAME (or to env:NAME, file:/path)."""
    from suimon.store import secret_uses

    full = reference if secret_names.reference(reference) is None else None
    with place.connect() as conn:
        found = list(secret_uses.uses(conn, full or secret_names.of_grant(reference)))
    if as_json:
        show.as_json({"uses": [one.to_json() for one in found]})
        return
    rows = [(one.pipeline, one.where, one.reference) for one in found]
    show.table(["PIPELINE", "WHERE", "REFERENCE"], rows)
    if not found:
        show.error_lines(f"nothing that is deployed refers to {reference}")


@secrets.command()
@json_option
@database_options
def check(as_json: bool, place: Place) -> int:
    """Is the key the right one, can every value be read, does every reference lead somewhere?

    env: and file: are judged as this process sees them; workers may see others.
    """
    from suimon.store import secret

    ring = _ring()
    problems: list[dict[str, Any]] = []
    with place.connect() as conn:
        count = sum(1 for _ in secret.listed(conn))
        try:
            secret.check(conn, ring)
            if count:
                ring.needed()
        except SecretError as error:
            problems.append({"what": "key", "problem": error.message, "hint": error.hint})
        else:
            for name, why in secret.unreadable(conn, ring).items():
                problems.append({"what": name, "problem": why})
            problems += _dangling(conn, ring)
    if as_json:
        show.as_json({"secrets": count, "problems": problems})
    elif problems:
        rows = [(one["what"], one["problem"], one.get("hint")) for one in problems]
        show.table(["WHAT", "PROBLEM", "WHAT TO DO"], rows)
    else:
        show.lines(f"{count} stored secrets can be read; every reference leads to a value")
    return EXIT_NEGATIVE if problems else 0


def _dangling(conn: Connection, ring: KeyRing) -> list[dict[str, Any]]:
    """References of current graphs that lead nowhere, each once."""
    from suimon.store import secret, secret_uses

    problems = []
    for one in {use.reference: use for use in secret_uses.uses(conn)}.values():
        try:
            secret.resolve(conn, ring, one.reference)
        except SecretError as error:
            hint = error.hint
            if not one.reference.startswith("secret:"):
                hint = "As this shell sees it; what counts is where the worker or server runs."
            problems.append({"what": str(one), "problem": error.message, "hint": hint})
    return problems


def _ring() -> KeyRing:
    from suimon.store.secret_key import KeyRing

    return KeyRing.of(os.environ)
