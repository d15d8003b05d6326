"""``suimon runs logs``: what a run has logged and printed, by try; ``-f`` follows it to its end."""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from suimon.cli import show
from suimon.cli.options import Place, database_options, json_option

STREAMS: Final = ("log", "stdout", "stderr", "note")


@click.command()
@click.argument("run_id", metavar="ID")
@click.option("-f", "--follow", "following", is_flag=True, help="Go on until the run has ended.")
@click.option("--try", "number", type=click.IntRange(1), help="Of this try only.")
@click.option("--stream", type=click.Choice(STREAMS), help="Of this stream only.")
@json_option
@database_options
def logs(
    run_id: str,
    following: bool,
    number: int | None,
    stream: str | None,
    as_json: bool,
    place: Place,
) -> None:
    """What a run has logged and printed, oldest first; each try after the first says so."""
    from suimon.run import logs as reading
    from suimon.run import read

    with place.connect() as conn:
        full = read.resolve(conn, run_id)
        tries = reading.tries(conn, full)
        claims = None if number is None else reading.claims_of(full, tries, number)
        found = reading.pieces(conn, full, follow=following, claims=claims, stream=stream)
        if as_json and not following:
            show.as_json({"tries": tries, "logs": list(found)})
            return
        heads = _Heads(None if claims is not None else tries)
        for piece in found:
            if as_json:
                show.as_json(piece)
            else:
                if heads.missing(piece["claim_no"]):
                    tries = reading.tries(conn, full)
                heads.write(piece, tries)
            sys.stdout.flush()
        if not as_json:
            heads.end()


class _Heads:
    """Writes pieces so that lines stay lines, with a line between two tries."""

    def __init__(self, tries: list[dict[str, Any]] | None) -> None:
        self._named = tries is not None
        self._several = tries is not None and len(tries) > 1
        self._claim: int | None = None
        self._stream: str | None = None
        self._open = False

    def missing(self, claim: int) -> bool:
        """Whether a line about this claim is due."""
        return self._named and claim != self._claim and (self._several or self._claim is not None)

    def write(self, piece: dict[str, Any], tries: list[dict[str, Any]]) -> None:
        if self.missing(piece["claim_no"]):
            self.end()
            show.lines(_head(piece["claim_no"], tries))
        self._claim = piece["claim_no"]
        if piece["stream"] != self._stream:
            self.end()
            self._stream = piece["stream"]
        text = piece["text"]
        click.echo(text, nl=False)
        self._open = bool(text) and not text.endswith("\n")

    def end(self) -> None:
        """A line that was left open ends."""
        if self._open:
            click.echo()
            self._open = False


def _head(claim: int, tries: list[dict[str, Any]]) -> str:
    one = next((t for t in tries if t["claim_no"] == claim), None)
    if one is None or one["attempt"] is None:
        return f"--- claim {claim}"
    parts = [f"--- try {one['attempt']}"]
    parts += [f"of {one['vertex']}"] if one["vertex"] else []
    parts += [str(one["how"])] if one["how"] else []
    parts += [f"on {one['worker']}"] if one["worker"] else []
    return ", ".join(parts)
