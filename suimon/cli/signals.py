"""``suimon signal``: a named message to a run that waits for it, or will."""

from __future__ import annotations

import click

from suimon.cli import show
from suimon.cli.actor import as_option
from suimon.cli.options import Place, database_options, json_option
from suimon.cli.run import read_input
from suimon.core import jsonsafe
from suimon.errors import EXIT_CONFLICT


@click.command()
@click.argument("run_id", metavar="RUN")
@click.argument("name")
@click.option("--data", "given", metavar="JSON|@FILE|-", help="What the waiting vertex gives.")
@as_option
@json_option
@database_options
def signal(run_id: str, name: str, given: str | None, who: str, as_json: bool, place: Place) -> int:
    """Send a run the signal NAME; one that comes early is kept, the first of a name wins."""
    data = jsonsafe.dumps(read_input(given), what="signal")
    from suimon.run import operate, read

    with place.connect() as conn:
        full = read.resolve(conn, run_id)
        kept = operate.signal(conn, full, name, data, actor=who)
    if as_json:
        show.as_json({"run": full, "name": name, "kept": kept})
    elif kept:
        show.lines(f'run {full} has the signal "{name}"')
    else:
        show.lines(f'run {full} had a signal "{name}" before; the first one stays')
    return 0 if kept else EXIT_CONFLICT
