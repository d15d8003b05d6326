"""``suimon worker``: the entry of a worker process, from its settings to its exit code.

Two lives in one process. The first knows the URLs from environment and options and replaces
itself; the second (``--secrets-fd``) has neither in sight. It compares schema and version before
it claims anything (exit 78 otherwise), deploys what is new below PATH, and works until it is told
to drain: SIGTERM or SIGINT once to finish what runs, twice to leave at once.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
from pathlib import Path
from typing import Any

import click

from suimon import modules
from suimon.cli import clean, logging_setup
from suimon.cli.folder import private_folder
from suimon.cli.options import DURATION, Place
from suimon.core import settings
from suimon.core.settings import Settings
from suimon.store.secret_key import KeyRing

log = logging.getLogger("suimon.worker")


@click.command()
@click.argument("path", type=click.Path())
@click.option("--pool", help="The pool it claims for.  [default: default]")
@click.option("--slots", type=int, help="Child processes, each running one run at a time.")
@click.option("--async-per-slot", type=int, help="Async tasks that share a slot.")
@click.option("--memory-per-slot", type=click.IntRange(16), metavar="MB", help="Ends a slot above.")
@click.option(
    "--processes-per-slot",
    type=click.IntRange(1),
    metavar="N",
    help="Ends a slot with more below it.  [default: 256]",
)
@click.option("--drain-timeout", type=DURATION, help="How long a drain waits for what runs.")
@click.option("--heartbeat", type=DURATION, help="Time between two heartbeats.")
@click.option("--sweep", type=DURATION, help="Time between two safety sweeps.")
@click.option("--read-folders", metavar="/A:/B", help="Where paths of inputs may lead, too.")
@click.option("--env", "names", multiple=True, metavar="NAME", help="A variable for the tasks.")
@click.option("--name", help="What status calls it.  [default: HOST-PID]")
@click.option("--no-duties", is_flag=True, help="Leave timers, rescue and repair to other workers.")
@click.option("--db", metavar="URL", help="PostgreSQL; else SUIMON_DATABASE_URL.")
@click.option("--home", metavar="DIR", help="Folder of `suimon dev`, whose database is used.")
@click.option("--verbose", is_flag=True, help="Log more.")
@logging_setup.log_format_option
@click.option("--secrets-fd", type=int, hidden=True)
def worker(path: str, secrets_fd: int | None, **given: Any) -> int:
    """Claim runs of one pool and execute them in child processes, with the code below PATH.

    The child processes see PATH, HOME, LANG, TZ and what --env names: no database URL, no key.
    """
    if secrets_fd is None:
        _first_life(path, given)
    secrets = clean.take_over(secrets_fd) if secrets_fd is not None else {}
    environment = clean.take_environment(secrets)
    clean.hide()
    options = {name: given[name] for name in _SETTINGS}
    found = settings.load({}, {**options, **secrets})
    return _second_life(path, found, given, environment)


_SETTINGS = (
    "pool", "slots", "async_per_slot", "drain_timeout", "heartbeat", "sweep", "read_folders",
)  # fmt: skip


def _first_life(path: str, given: dict[str, Any]) -> None:
    """Settings of the environment become options, URLs go into a descriptor; does not return."""
    options = {name: given[name] for name in (*_SETTINGS, "home")}
    found = settings.load(os.environ, {**options, "database_url": given["db"]})
    modules.folder_of(path)
    clean.refuse_own(given["names"])
    KeyRing.of(os.environ)  # a key that cannot be one is told before anything starts
    secrets = clean.with_environment(
        {"database_url": Place(found).url, "listen_url": found.listen_url}
    )
    clean.become(arguments(path, found, given, clean.hand_over(secrets)), given["names"])


def arguments(path: str, found: Settings, given: dict[str, Any], secrets_fd: int) -> list[str]:
    """The command line of the second life: every setting, no secret."""
    made = ["worker", str(Path(path).absolute()), "--secrets-fd", str(secrets_fd)]
    for name in _SETTINGS:
        value = getattr(found, name)
        if value is not None:
            text = f"{value * 1000:.0f}ms" if isinstance(value, float) else str(value)
            made += [f"--{name.replace('_', '-')}", text]
    if given.get("memory_per_slot") is not None:
        made += ["--memory-per-slot", str(given["memory_per_slot"])]
    if given.get("processes_per_slot") is not None:
        made += ["--processes-per-slot", str(given["processes_per_slot"])]
    for name in given.get("names", ()):
        made += ["--env", name]
    if given.get("name"):
        made += ["--name", given["name"]]
    made += ["--no-duties"] if given.get("no_duties") else []
    made += ["--log-format", given.get("log_format", "text")]
    return made + (["--verbose"] if given.get("verbose") else [])


def _second_life(
    path: str, found: Settings, given: dict[str, Any], environment: dict[str, str]
) -> int:
    from suimon.worker.guardian import PROCESSES_PER_SLOT
    from suimon.worker.worker import Worker, WorkerOptions

    logging_setup.start(given["log_format"], verbose=given["verbose"])
    assert found.database_url is not None
    _prepare(found.database_url, path, KeyRing.of(environment))
    with private_folder() as folder:
        options = WorkerOptions(
            url=found.database_url,
            listen_url=found.listen_url or found.database_url,
            root=str(Path(path).absolute()),
            pool=found.pool,
            slots=found.slots,
            async_per_slot=found.async_per_slot,
            heartbeat_s=found.heartbeat,
            sweep_s=found.sweep,
            drain_timeout_s=found.drain_timeout,
            memory_per_slot_mb=given["memory_per_slot"],
            processes_per_slot=given["processes_per_slot"] or PROCESSES_PER_SLOT,
            pass_environment=tuple(given["names"]),
            folder=folder,
            name=given["name"] or f"{socket.gethostname()}-{os.getpid()}",
            duties=not given["no_duties"],
            read_folders=tuple(found.read_folders.split(":")) if found.read_folders else (),
            environment=environment,
        )
        made = Worker(options)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: made.drain())
        return made.run()


def _prepare(url: str, path: str, ring: KeyRing) -> None:
    """Compare versions and key, deploy what is new; nothing is claimed before all went well."""
    from suimon.cli.deploy import definitions, folder_of
    from suimon.db import connect, migrate
    from suimon.run import deploy
    from suimon.store import secret

    with connect.connect(url, name="worker-start") as conn:
        migrate.check_version(conn)
        secret.check(conn, ring)
        made = definitions(path, log.warning)
        for one in deploy.deploy(conn, made, only_new=True, folder=folder_of(path)):
            if one.what in ("new", "changed"):
                log.info("pipeline %s: %s", one.name, one.what)
