"""``suimon demo``: the main job on a real file, from an empty folder to a repaired report.

28,298 airports of the package ``airportsdata``, one child run each. 27 are rejected by a rule that
somebody wrote at a desk; the merge tolerates that; the rule is corrected; only the 27 run again,
and the report with them. Everything is real: PostgreSQL (embedded), a worker process, slots,
ordinary tasks.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from suimon.cli import drawing, follow, show
from suimon.core import clock, settings
from suimon.core.settings import ADDRESS_FILE
from suimon.errors import SuimonError

if TYPE_CHECKING:
    from suimon.cli.local import Database, LocalWorker
    from suimon.db.connect import Connection

_SLOTS: Final = 2
_PATIENCE_SECONDS: Final = 300.0
#: The first rule, and the correction: the shore of the Dead Sea has an airfield at -1,266 ft.
FIRST_RULE: Final = {"lowest_elevation_ft": 0, "highest_elevation_ft": 30_000}
CORRECTED: Final = {"lowest_elevation_ft": -1_500, "highest_elevation_ft": 30_000}


@click.command()
@click.option("--home", metavar="DIR", help="Below which folder.  [default: .suimon]")
@click.option("--keep/--no-keep", default=True, help="Keep database and report.  [default: keep]")
def demo(home: str | None, keep: bool) -> int:
    """Watch a real file fan out into 28,298 runs, fail in parts, merge, and be repaired."""
    from suimon.cli.local import Database, LocalWorker

    example, data = _example(), _airports_csv()
    base = Path(settings.load({}, {"home": home or os.environ.get("SUIMON_HOME")}).home)
    _remove_former(base)
    folder = base / f"demo-{clock.now():%Y%m%d-%H%M%S}"
    story = Story()
    story.say(f"a fresh folder: {folder}")
    try:
        with Database(folder) as database:
            story.say("PostgreSQL started (embedded, durable, for trying out only)")
            _migrate_and_deploy(database, example, story)
            with (folder / "worker.log").open("wb") as log:
                worker = LocalWorker.start(
                    database.url, example, slots=_SLOTS, log=log, reads=data.parent
                )
                try:
                    story.say(f"worker started: process {worker.process.pid}, {_SLOTS} slots")
                    code = _play(database, worker, folder, data, story)
                finally:
                    worker.end(patience_s=20)
    finally:
        if not keep:
            _remove(folder)
    story.say("worker and PostgreSQL stopped; nothing is left running")
    if keep:
        _where_next(base, folder, example)
    return code


class Story:
    """Tells what happens, with the seconds since the beginning."""

    def __init__(self) -> None:
        self._began_at = clock.monotonic()
        self.run_id = ""

    def say(self, text: str) -> None:
        show.lines(f"{clock.monotonic() - self._began_at:6.1f} s  {text}")

    def command(self, text: str) -> None:
        show.lines(f"\n          $ {text.replace('suimon', _program(), 1)}")


def _example() -> Path:
    """The example of the repository that this package was installed from."""
    folder = Path(__file__).resolve().parents[2] / "examples" / "airports"
    if not folder.is_dir():
        msg = "the example pipelines are not installed"
        raise SuimonError(msg, hint="Run the demo from a checkout of the repository: make demo")
    return folder


def _airports_csv() -> Path:
    found = importlib.util.find_spec("airportsdata")
    if found is None or found.origin is None:
        msg = "the demo's data is missing: the package airportsdata"
        raise SuimonError(msg, hint="make demo installs it; or: pip install airportsdata")
    return Path(found.origin).parent / "airports.csv"


def _migrate_and_deploy(database: Database, example: Path, story: Story) -> None:
    from suimon.cli.deploy import definitions, folder_of
    from suimon.db import migrate
    from suimon.run import deploy

    with database.connect("demo") as conn:
        migrate.migrate(conn)
        story.say(f"the schema is at version {migrate.schema_version()}")
        made = deploy.deploy(conn, definitions(str(example)), folder=folder_of(str(example)))
    story.say(f"deployed {', '.join(one.name for one in made)} from {example}")


def _play(database: Database, worker: LocalWorker, folder: Path, data: Path, story: Story) -> int:
    rules = folder / "rules.json"
    out = folder / "report"
    given = {"csv": str(data), "rules": str(rules.absolute()), "out": str(out.absolute())}
    _write(rules, FIRST_RULE)
    _write(folder / "input.json", given)

    def watch_worker() -> None:
        if not worker.alive:
            tail = (folder / "worker.log").read_text("utf-8", "replace")[-2000:].strip()
            msg = "the worker has ended"
            raise SuimonError(msg, detail=tail)

    with database.connect("demo") as conn:
        code = _first_act(conn, folder, given, story, watch_worker)
        if code == 0:
            code = _second_act(conn, rules, story, watch_worker)
    return code


def _first_act(
    conn: Connection, folder: Path, given: dict[str, str], story: Story, also: Callable[[], None]
) -> int:
    """The run: one child per airport, 27 of them rejected, and a report all the same."""
    from suimon.run import doors, pages, read

    story.command(f"suimon run airports --input @{folder / 'input.json'} --wait")
    started = doors.start(conn, "airports", given)
    story.run_id = started.id
    code = follow.until_end(conn, started.id, timeout_s=_PATIENCE_SECONDS, also=also)
    document = read.show(conn, started.id)
    story.say(f"the run has ended: {document['status']}")
    drawing.run(document, None)
    if code == 0:
        story.command(f"suimon runs children {started.id} --status failed --limit 3")
        fanout = pages.fanout_of(conn, started.id, None)
        page = pages.children(conn, fanout, statuses=["failed"], limit=3)
        rows = [
            (one["position"], one["item_key"], one["input"]["name"], drawing.why_of_child(one))
            for one in page.rows
        ]
        show.table(["POSITION", "KEY", "AIRPORT", "WHY"], rows)
        _show_report(document)
    return code


def _second_act(conn: Connection, rules: Path, story: Story, also: Callable[[], None]) -> int:
    """The rule is corrected; what failed runs again, and the merge and the report after it."""
    from suimon.cli.actor import actor
    from suimon.run import read, retry

    show.lines()
    story.say("land below the sea exists: the rule in rules.json now allows -1,500 ft and more")
    _write(rules, CORRECTED)
    command = f"suimon runs retry {story.run_id} --failed-children"
    story.command(f"{command} --dry-run")
    plan = retry.plan(conn, [story.run_id], failed_children=True)
    drawing.retry({**plan.to_json(), "dry_run": True})
    story.command(f"{command} --wait")
    retry.apply(conn, plan, actor=actor(), why="the rule was wrong")
    code = follow.until_end(conn, story.run_id, timeout_s=_PATIENCE_SECONDS, also=also)
    document = read.run(conn, story.run_id).to_json()
    follow.result(document)
    if code == 0:
        _show_report(document)
    show.lines()
    return code


def _show_report(document: dict[str, Any]) -> None:
    report = Path(document["output"]["report"])
    show.lines(f"\nreport: {report}")
    for line in report.read_text(encoding="utf-8").splitlines()[2:5]:
        show.lines(f"  | {line}")


def _where_next(base: Path, folder: Path, example: Path) -> None:
    near, program = _shown(folder), _program()
    rows = [
        (f"{program} dev {_shown(example)} --home {near}", "the same database and a worker again"),
        (f"{program} runs list --home {near}", "in another terminal, while that runs"),
        (f"{program} status --home {near}", "does it move?"),
        (f"{_shown(example)}/airports.py", "the pipeline that you have seen"),
        (f"{program} dev PATH --home {_shown(base)}", "your own pipelines, reloaded on change"),
    ]
    width = max(len(command) for command, _ in rows)
    show.lines("\nWhere to look next (the data is kept until the next demo):")
    for command, about in rows:
        show.lines(f"  {command:<{width}}  # {about}")


def _program() -> str:
    """How this program is called from here."""
    here = Path(sys.argv[0])
    return "suimon" if shutil.which("suimon") or here.suffix == ".py" else _shown(here)


def _shown(path: Path) -> str:
    with contextlib.suppress(ValueError):
        return str(path.absolute().relative_to(Path.cwd()))
    return str(path)


def _write(file: Path, value: object) -> None:
    """Replaced as a whole, so that no task reads half of it."""
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    fresh.replace(file)


# ------------------------------------------------------------------------------------------ folders


def _remove_former(base: Path) -> None:
    """Demos of before that nobody is looking at; a database takes some fifty megabytes."""
    for folder in base.glob("demo-*"):
        if folder.is_dir() and not (folder / ADDRESS_FILE).exists() and not _is_held(folder):
            _remove(folder)


def _places(folder: Path) -> list[Path]:
    """Where the server of this folder keeps its data; as root it may be elsewhere."""
    home = folder / "postgres"
    with contextlib.suppress(OSError):
        return [home, Path((home / "moved-to").read_text(encoding="utf-8").strip())]
    return [home]


def _is_held(folder: Path) -> bool:
    for place in _places(folder):
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(place / "lock", os.O_RDWR)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                os.close(fd)
    return False


def _remove(folder: Path) -> None:
    for place in (*_places(folder), folder):
        shutil.rmtree(place, ignore_errors=True)
    if folder.exists():
        sys.stderr.write(f"could not remove {folder}\n")
