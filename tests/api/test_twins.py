"""Everything that the command line can do has its twin over HTTP, or a reason why it has none."""

from __future__ import annotations

from collections.abc import Iterator

import click

from suimon.api import app
from suimon.cli.main import cli

RUN = "/api/v1/runs/{run_id}"
#: command -> its twin.
TWINS: dict[str, tuple[str, str]] = {
    "run": ("POST", "/api/v1/runs"),
    "runs list": ("GET", "/api/v1/runs"),
    "runs show": ("GET", f"{RUN}/details"),
    "runs why": ("GET", f"{RUN}/why"),
    "runs children": ("GET", f"{RUN}/children"),
    "runs logs": ("GET", f"{RUN}/logs"),
    "runs artifacts": ("GET", f"{RUN}/artifacts"),
    "runs artifact": ("GET", f"{RUN}/artifact"),
    "runs retry": ("POST", f"{RUN}/retry"),
    "runs cancel": ("POST", f"{RUN}/cancel"),
    "runs rerun": ("POST", f"{RUN}/rerun"),
    "runs skip": ("POST", f"{RUN}/skip"),
    "runs limit": ("PUT", f"{RUN}/spawns/{{vertex}}/concurrency"),
    "runs priority": ("PUT", f"{RUN}/priority"),
    "deploy": ("POST", "/api/v1/deployments"),
    "pipelines check": ("POST", "/api/v1/deployments"),
    "pipelines list": ("GET", "/api/v1/pipelines"),
    "pipelines show": ("GET", "/api/v1/pipelines/{name}"),
    "pipelines graph": ("GET", "/api/v1/pipelines/{name}/graph"),
    "pipelines limits": ("PATCH", "/api/v1/pipelines/{name}/limits"),
    "pipelines set-pool": ("PUT", "/api/v1/pipelines/{name}/pool"),
    "pools list": ("GET", "/api/v1/pools"),
    "pools show": ("GET", "/api/v1/pools/{name}"),
    "pools set-cap": ("PUT", "/api/v1/pools/{name}/cap"),
    "approvals list": ("GET", "/api/v1/approvals"),
    "approvals approve": ("POST", "/api/v1/approvals/{run_id}/{vertex}/approve"),
    "approvals reject": ("POST", "/api/v1/approvals/{run_id}/{vertex}/reject"),
    "signal": ("POST", f"{RUN}/signals/{{name}}"),
    "emit": ("POST", "/api/v1/events"),
    "deliveries list": ("GET", "/api/v1/deliveries"),
    "deliveries show": ("GET", "/api/v1/deliveries/{delivery}"),
    "deliveries again": ("POST", "/api/v1/deliveries/{delivery}/again"),
    "deliveries requeue": ("POST", "/api/v1/dead-letters/requeue"),
    "deliveries discard": ("POST", "/api/v1/dead-letters/discard"),
    "deliveries restore": ("POST", "/api/v1/dead-letters/restore"),
    "triggers list": ("GET", "/api/v1/triggers"),
    "triggers show": ("GET", "/api/v1/triggers/{trigger}"),
    "triggers next": ("GET", "/api/v1/schedules"),
    "triggers run": ("POST", "/api/v1/triggers/{trigger}/run"),
    "triggers explain": ("POST", "/api/v1/files/explain"),
    "triggers again": ("POST", "/api/v1/files/again"),
    "pause": ("POST", "/api/v1/pauses"),
    "resume": ("POST", "/api/v1/pauses/resume"),
    "paused": ("GET", "/api/v1/pauses"),
    "limits list": ("GET", "/api/v1/destinations"),
    "limits show": ("GET", "/api/v1/destinations/{name}"),
    "limits set": ("PATCH", "/api/v1/destinations/{name}"),
    "limits hold": ("POST", "/api/v1/destinations/{name}/hold"),
    "limits release": ("POST", "/api/v1/destinations/{name}/release"),
    "quotas list": ("GET", "/api/v1/quotas"),
    "quotas set": ("PATCH", "/api/v1/quotas/{name}"),
    "notify add": ("POST", "/api/v1/channels"),
    "notify list": ("GET", "/api/v1/channels"),
    "notify show": ("GET", "/api/v1/channels/{name}"),
    "notify remove": ("DELETE", "/api/v1/channels/{name}"),
    "notify enable": ("POST", "/api/v1/channels/{name}/{act}"),
    "notify disable": ("POST", "/api/v1/channels/{name}/{act}"),
    "notify test": ("POST", "/api/v1/channels/{name}/{act}"),
    "notify log": ("GET", "/api/v1/notices"),
    "notify again": ("POST", "/api/v1/notices/{notice}/again"),
    "secrets list": ("GET", "/api/v1/secrets"),
    "secrets set": ("PUT", "/api/v1/secrets/{name}"),
    "secrets remove": ("DELETE", "/api/v1/secrets/{name}"),
    "secrets where-used": ("GET", "/api/v1/secrets/{name}/uses"),
    "status": ("GET", "/api/v1/status"),
    "doctor": ("GET", "/api/v1/doctor"),
    "storage": ("GET", "/api/v1/storage"),
    "storage show": ("GET", "/api/v1/storage"),
    "storage set": ("PATCH", "/api/v1/storage"),
    "storage objects": ("PUT", "/api/v1/storage/objects"),
    "prune": ("POST", "/api/v1/prune"),
    "audit list": ("GET", "/api/v1/audit"),
    "db status": ("GET", "/api/v1/migrations"),
}
#: What belongs to a machine and not to the database.
LOCAL: dict[str, str] = {
    "demo": "starts a database, a worker and a browser's worth of output here",
    "dev": "starts a database, a worker and a server here",
    "worker": "is a process of its own",
    "serve": "is the process that would have to be asked",
    "db migrate": "comes before any server of this version answers",
    "db shell": "opens a terminal",
    "secrets rotate": "needs the old and the new key, which only its operator holds together",
    "secrets check": "judges the environment and the files of the process that asks",
}


def commands(group: click.Group, before: str = "") -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        if isinstance(found, click.Group):
            yield from commands(found, f"{before}{name} ")
            if found.invoke_without_command:
                yield f"{before}{name}"
        elif found is not None and not found.hidden:
            yield f"{before}{name}"


def test_every_command_has_its_twin_or_a_reason() -> None:
    known = set(commands(cli))
    assert known - set(TWINS) - set(LOCAL) == set()
    assert (set(TWINS) | set(LOCAL)) - known == set()


def test_every_twin_exists() -> None:
    paths = app.make(app.Options("postgresql:///nowhere")).app.openapi()["paths"]
    missing = [twin for twin in TWINS.values() if twin[0].lower() not in paths.get(twin[1], {})]
    assert missing == []


def test_the_document_is_openapi_3_1_and_names_nobodys_page() -> None:
    made = app.make(app.Options("postgresql:///nowhere")).app
    document = made.openapi()
    assert document["openapi"].startswith("3.1.")
    operations = [one for path in document["paths"].values() for one in path.values()]
    assert all("summary" in one and "description" in one for one in operations)
    assert all("default" in one["responses"] for one in operations if one["tags"] != ["health"])
    assert made.docs_url is None
    assert made.redoc_url is None
