"""``suimon dev``: a database, one worker and your pipelines, for one person on one machine.

It looks once a second at the files below PATH. When one changes, the code is read in a clean child
process: mistakes are printed and the old code goes on; without mistakes the pipelines are deployed
and a new worker starts while the old one finishes what it runs. Ctrl-C ends all of it; the data
stays.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Final

import click

from suimon import modules
from suimon.cli import show
from suimon.core import clock, settings, words
from suimon.errors import SuimonError

_LOOK_SECONDS: Final = 1.0
_DRAIN_SECONDS: Final = 600.0
#: A worker that ends sooner than this after its start is not started again before a change.
_YOUNG_SECONDS: Final = 5.0
_ENDINGS: Final = (".py", ".json")


@click.command()
@click.argument("path", default=".", type=click.Path(exists=True, path_type=Path))
@click.option("--home", metavar="DIR", help="Folder of the data.  [default: .suimon]")
@click.option("--slots", type=int, help="Child processes of the worker.")
@click.option("--db", metavar="URL", help="Use this server; else SUIMON_DATABASE_URL, if set.")
@click.option(
    "--port", type=click.IntRange(1, 65_535), help="Of the API; taken: the next free one."
)
@click.option("--no-serve", is_flag=True, help="Without the HTTP API and webhooks.")
def dev(
    path: Path,
    home: str | None,
    slots: int | None,
    db: str | None,
    port: int | None,
    no_serve: bool,
) -> int:
    """A database, a worker, the HTTP API and the pipelines below PATH, reloaded on change.

    The database is an embedded PostgreSQL, for trying out only; or your server's.
    """
    options = {"home": home, "slots": slots, "database_url": db, "port": port}
    found = settings.load(os.environ, options)
    modules.folder_of(path)
    from suimon.cli.local import Database

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    database = Database(Path(found.home), url=found.database_url)
    with database:
        session = Session(path.absolute(), database, found, serves=not no_serve)
        try:
            session.begin()
            session.watch()
        except KeyboardInterrupt:
            session.say("stopping; what runs is finished first (Ctrl-C again: at once)")
        finally:
            session.end()
    session.say("stopped; the data stays")
    return 0


class Session:
    """One life of ``suimon dev``."""

    def __init__(
        self, path: Path, database: object, found: settings.Settings, *, serves: bool
    ) -> None:
        from suimon.cli.local import Database, LocalServer, LocalWorker

        assert isinstance(database, Database)
        self._path, self._database, self._found = path, database, found
        self._worker: LocalWorker | None = None
        self._draining: list[LocalWorker] = []
        self._serves = serves
        self._api: LocalServer | None = None
        self._port = 0
        self._started_at = clock.monotonic()
        self._began_at = clock.monotonic()
        self._seen: dict[Path, tuple[int, int]] = {}
        self._waits = False

    def say(self, text: str) -> None:
        sys.stderr.write(f"{clock.monotonic() - self._began_at:6.1f} s  {text}\n")
        sys.stderr.flush()

    def begin(self) -> None:
        """Migrate, deploy, start the worker, and say where to look."""
        from suimon.db import migrate

        server = self._database.server
        self.say(f"PostgreSQL runs in {self._database.home}" if server else "database: yours")
        with self._database.connect("dev") as conn:
            migrate.migrate(conn)
        self.say(f"the schema is at version {migrate.schema_version()}")
        self._seen = self._look()
        if self._serves:
            self._start_server()
        if self._deploy():
            self._start_worker()
        home = "" if self._found.home == settings.Settings().home else f" --home {self._found.home}"
        where = home if server else ""
        self.say(f"ready. In another terminal: suimon pipelines list{where}")
        self.say(f"                            suimon run PIPELINE --wait{where}")
        self.say("Ctrl-C stops everything")

    def watch(self) -> None:
        """Until Ctrl-C: reload on change, keep server and worker alive."""
        while True:
            time.sleep(_LOOK_SECONDS)
            server = self._database.server
            if server is not None and server.ensure_running():
                self.say("PostgreSQL had died and was started again")
            self._draining = [one for one in self._draining if one.alive]
            if self._api is not None and not self._api.alive:
                self._api = None
                self.say("the HTTP server ended; it is started again with the next `suimon dev`")
            seen = self._look()
            if seen != self._seen:
                self._tell_changes(seen)
                self._seen, self._waits = seen, False
                if self._deploy():
                    self._start_worker()
            elif self._worker is not None and not self._worker.alive and not self._waits:
                self._worker_died()

    def end(self) -> None:
        """Drain the workers; a second Ctrl-C makes them leave at once."""
        workers = [one for one in (self._worker, *self._draining) if one is not None]
        try:
            for one in workers:
                one.drain()
            for one in workers:
                one.process.wait(_DRAIN_SECONDS)
        except (KeyboardInterrupt, TimeoutError):
            self.say("leaving now")
        finally:
            for one in workers:
                one.end(patience_s=1.0)
            if self._api is not None:
                self._api.end(patience_s=2.0)

    # ------------------------------------------------------------------ inside

    def _look(self) -> dict[Path, tuple[int, int]]:
        """Time and size of each file that may hold a definition."""
        from suimon.modules import files_below

        found = {}
        for file in files_below(self._path, _ENDINGS):
            try:
                about = file.stat()
            except OSError:  # gone between the listing and now
                continue
            found[file] = (about.st_mtime_ns, about.st_size)
        return found

    def _tell_changes(self, seen: dict[Path, tuple[int, int]]) -> None:
        changed = sorted({f for f, _ in seen.items() ^ self._seen.items()})
        names = ", ".join(file.name for file in changed[:3])
        self.say(f"changed: {names}" + (" ..." if len(changed) > 3 else ""))

    def _deploy(self) -> bool:
        """Read and deploy; False: there are mistakes, which are printed."""
        from suimon.cli.deploy import definitions, folder_of
        from suimon.run import deploy

        try:
            made = definitions(str(self._path))
            with self._database.connect("dev") as conn:
                answers = deploy.deploy(conn, made, folder=folder_of(str(self._path)))
        except SuimonError as error:
            self.say("not deployed; the code before goes on" if self._worker else "not deployed")
            sys.stderr.write(f"error: {error.render()}\n")
            return False
        moved = [f"{one.name} ({one.what})" for one in answers if one.what != "unchanged"]
        names = [one.name for one in answers]
        self.say(f"deployed: {', '.join(moved) or ', '.join(names) or 'no pipeline yet'}")
        return True

    def _start_worker(self) -> None:
        from suimon.cli.local import LocalWorker

        if self._worker is not None:
            self._worker.drain()
            self._draining.append(self._worker)
        self._started_at = clock.monotonic()
        self._worker = LocalWorker.start(
            self._database.url,
            self._path,
            slots=self._found.slots,
            listen_url=self._found.listen_url if self._database.server is None else None,
        )
        self.say(
            f"worker: process {self._worker.process.pid}, {words.count(self._found.slots, 'slot')}"
        )

    def _start_server(self) -> None:
        """The HTTP API, at the usual port or the next free one; it says where it listens."""
        from suimon.cli.local import LocalServer, free_port

        self._port = free_port(self._found.port)
        token = self._found.api_token
        self._api = LocalServer.start(self._database.url, port=self._port, token=token)
        self.say(f"API: http://127.0.0.1:{self._port}/api/v1 (docs/api.md)")

    def _worker_died(self) -> None:
        assert self._worker is not None
        lived = clock.monotonic() - self._started_at
        self.say(f"the worker ended ({self._worker.process.returncode}) after {show.span(lived)}")
        if lived < _YOUNG_SECONDS:
            self._waits = True
            self.say("it is started again after the next change")
        else:
            self._start_worker()
