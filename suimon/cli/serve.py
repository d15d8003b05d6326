"""``suimon serve``: the HTTP API, the webhooks' address and the duties, in one process of many.

Two lives like a worker's: the first knows URL, token and keys from environment and options and
replaces itself; the second has them from a descriptor, so that neither its environment nor its
command line shows any. It compares schema, version and key, deploys what is new below PATH (if
there is a PATH), and answers until SIGTERM.

It binds to loopback. Another address needs SUIMON_API_TOKEN, or it does not start.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any, Final

import click

from suimon import modules
from suimon.cli import clean, logging_setup
from suimon.cli.options import DURATION, Place
from suimon.core import settings
from suimon.core.settings import Settings, SettingsError
from suimon.store.secret_key import KeyRing

log = logging.getLogger("suimon.serve")

_SETTINGS: Final = ("host", "port", "heartbeat", "sweep")
_SECRETS: Final = ("database_url", "listen_url", "api_token")


@click.command()
@click.argument("path", type=click.Path(), required=False)
@click.option("--host", help="Address to bind.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65_535), help="0: any free one.  [default: 8700]")
@click.option("--no-duties", is_flag=True, help="Leave schedules, deliveries, rescue to others.")
@click.option(
    "--connections",
    type=click.IntRange(1, 200),
    default=10,
    show_default=True,
    help="Database connections for requests; as many are answered at once.",
)
@click.option("--grace", type=DURATION, default="10s", help="For open requests at the end.  [10s]")
@click.option("--heartbeat", type=DURATION, help="Time between two looks at the workers.")
@click.option("--sweep", type=DURATION, help="Time between two safety sweeps.")
@click.option("--access-log", is_flag=True, help="A line for each request.")
@logging_setup.log_format_option
@click.option("--db", metavar="URL", help="PostgreSQL; else SUIMON_DATABASE_URL.")
@click.option("--home", metavar="DIR", help="Folder of `suimon dev`, whose database is used.")
@click.option("--verbose", is_flag=True, help="Log more.")
@click.option("--secrets-fd", type=int, hidden=True)
def serve(path: str | None, secrets_fd: int | None, **given: Any) -> int:
    """Answer the HTTP API and webhooks; deploy what is new below PATH first, if it is given.

    Any number of these processes may stand behind a balancer. The API: docs/api.md.
    """
    if secrets_fd is None:
        _first_life(path, given)
    secrets = clean.take_over(secrets_fd) if secrets_fd is not None else {}
    environment = clean.take_environment(secrets)
    clean.hide()
    options = {name: given[name] for name in _SETTINGS}
    found = settings.load({}, {**options, **secrets})
    return _second_life(path, found, given, environment)


def _first_life(path: str | None, given: dict[str, Any]) -> None:
    """Check what can be checked, then become the process without secrets; does not return."""
    options = {name: given[name] for name in (*_SETTINGS, "home")}
    found = settings.load(os.environ, {**options, "database_url": given["db"]})
    if path is not None:
        modules.folder_of(path)
    check_exposure(found)
    KeyRing.of(os.environ)  # a key that cannot be one is told before anything starts
    clean.become(arguments(path, found, given, hand_over(found)))


def check_exposure(found: Settings) -> None:
    """Raises SettingsError for an address that others can reach, without a token."""
    from suimon.api.address import address_of

    if not address_of(found.host, found.port).loopback and found.api_token is None:
        msg = f"--host {found.host} can be reached from other machines and needs SUIMON_API_TOKEN"
        raise SettingsError([f"{msg} (make one: openssl rand -hex 32)"])


def hand_over(found: Settings) -> int:
    """The descriptor with everything that is secret, for the second life."""
    secrets = {name: getattr(found, name) for name in _SECRETS}
    return clean.hand_over(clean.with_environment({**secrets, "database_url": Place(found).url}))


def arguments(
    path: str | None, found: Settings, given: dict[str, Any], secrets_fd: int
) -> list[str]:
    """The command line of the second life: every setting, no secret."""
    made = ["serve", *([] if path is None else [str(Path(path).absolute())])]
    made += ["--secrets-fd", str(secrets_fd), "--host", found.host, "--port", str(found.port)]
    for name in ("heartbeat", "sweep"):
        made += [f"--{name}", f"{getattr(found, name) * 1000:.0f}ms"]
    made += ["--connections", str(given.get("connections", 10))]
    made += ["--grace", f"{given.get('grace', 10.0) * 1000:.0f}ms"]
    made += ["--log-format", given.get("log_format", "text")]
    for name in ("no_duties", "access_log", "verbose"):
        made += [f"--{name.replace('_', '-')}"] if given.get(name) else []
    return made


def _second_life(
    path: str | None, found: Settings, given: dict[str, Any], environment: dict[str, str]
) -> int:
    from suimon.api.server import ServeOptions, Server

    logging_setup.start(
        given["log_format"], verbose=given["verbose"], access=given["access_log"]
    )  # fmt: skip
    assert found.database_url is not None
    ring = KeyRing.of(environment)
    _prepare(found.database_url, path, ring)
    server = Server(
        ServeOptions(
            url=found.database_url,
            listen_url=found.listen_url,
            host=found.host,
            port=found.port,
            token=found.api_token,
            connections=given["connections"],
            duties=not given["no_duties"],
            heartbeat_s=found.heartbeat,
            sweep_s=found.sweep,
            grace_s=given["grace"],
            keyring=ring,
        )
    )
    return server.serve_until_told()


def _prepare(url: str, path: str | None, ring: KeyRing) -> None:
    """Compare versions and key, deploy what is new; nothing answers before all went well."""
    from suimon.cli.deploy import definitions, folder_of
    from suimon.db import connect, migrate
    from suimon.run import deploy
    from suimon.store import secret

    with connect.connect(url, name="serve-start") as conn:
        migrate.check_version(conn)
        secret.check(conn, ring)
        if path is None:
            return
        made = definitions(path, log.warning)
        for one in deploy.deploy(conn, made, only_new=True, folder=folder_of(path)):
            if one.what in ("new", "changed"):
                log.info("pipeline %s: %s", one.name, one.what)
