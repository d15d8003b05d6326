"""``suimon``: finds the command, runs it, and turns every error into one clear text and an exit
code.

Commands are imported when they are called for: ``suimon --help`` needs neither a database driver
nor a table library. Exit codes are the table of ``suimon/errors.py``; a defect of Suimon itself is
the only thing that shows a traceback.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import sys
from typing import Any, Final

import click

from suimon.errors import (
    EXIT_INTERRUPTED,
    EXIT_NEGATIVE,
    EXIT_USAGE,
    DatabaseUnavailable,
    FileRefused,
    InputRefused,
    SuimonError,
)

#: command -> (module below suimon.cli, its object, the line that --help shows)
COMMANDS: Final[dict[str, tuple[str, str, str]]] = {
    "demo": ("demo", "demo", "Watch a real file fan out, fail in parts, merge, and be repaired."),
    "dev": ("dev", "dev", "A database, a worker and your pipelines, reloaded on change."),
    "deploy": ("deploy", "deploy", "Make the pipelines below PATH what new runs use."),
    "run": ("run", "run", "Start a run of a pipeline."),
    "runs": ("runs", "runs", "List, show, explain, retry, cancel, rerun runs."),
    "pipelines": ("pipelines", "pipelines", "Check, list and show pipelines."),
    "worker": ("worker", "worker", "Claim runs of one pool and execute them in child processes."),
    "serve": ("serve", "serve", "The HTTP API, webhooks and duties; any number of processes."),
    "emit": ("emit", "emit", "Tell of an event; pipelines that listen start."),
    "deliveries": ("deliveries", "deliveries", "What arrived; dead letters: requeue, discard."),
    "notify": ("notify", "notify", "Who is told when something fails: webhooks and e-mail."),
    "limits": ("limits", "limits", "Destinations: how often, how many at once; hold, release."),
    "quotas": ("quotas", "quotas", "Runs per day and month: all, of a pipeline, with a label."),
    "pools": ("pools", "pools", "Who serves which pool, and how much of it may run at once."),
    "approvals": ("approvals", "approvals", "What waits for a person; approve, reject."),
    "signal": ("signals", "signal", "Send a run a named message."),
    "pause": ("pauses", "pause", "Let nothing of a pipeline, trigger or pool start."),
    "resume": ("pauses", "resume", "Let it go on, with all that waited for it."),
    "paused": ("pauses", "paused", "What is paused, by whom, since when, why."),
    "status": ("status", "status", "Does it move? Pools, workers, and what is wrong."),
    "doctor": ("doctor", "doctor", "What is wrong with database, server and queue."),
    "triggers": ("triggers", "triggers", "What starts runs by itself; why a file was taken."),
    "storage": ("storage", "storage", "Where the bytes are; how full the store is, its marks."),
    "prune": ("storage", "prune", "Remove finished runs that need not be kept."),
    "secrets": ("secrets", "secrets", "Stored secrets: set, list, remove, rotate, who uses them."),
    "audit": ("audit", "audit", "Who did what by hand, when and why."),
    "db": ("database", "db", "Migrate the database, or open it."),
}


class LazyGroup(click.Group):
    """A group that imports a command only when it is run or asked for its own help."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command = getattr(importlib.import_module(f"suimon.cli.{module}"), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            from suimon.core.suggest import did_you_mean

            hint = did_you_mean(args[0], COMMANDS)
            ctx.fail(f'No such command "{args[0]}".' + (f" {hint}" if hint else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, _, about) in COMMANDS.items()])


def _version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        from importlib import metadata

        click.echo(f"suimon {metadata.version('suimon')}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version)
def cli() -> None:
    """Durable pipelines on PostgreSQL alone.

    The database is the one of --db or SUIMON_DATABASE_URL, or the one that `suimon dev` runs in
    this folder. Try it: suimon demo
    """


def main() -> None:
    """The entry of the program."""
    arguments = sys.argv[1:]
    sys.exit(run(arguments))


def run(arguments: list[str]) -> int:
    """Run one command; returns the exit code."""
    as_json = "--json" in arguments
    _print_any_name()
    try:
        answer = cli.main(args=arguments, prog_name="suimon", standalone_mode=False)
    except SuimonError as error:
        _tell(error, as_json=as_json)
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        sys.stderr.write(f"{error.format_message()}\n")
        return EXIT_USAGE
    except click.ClickException as error:
        _tell_usage(error, as_json=as_json)
        return EXIT_USAGE if isinstance(error, click.UsageError) else EXIT_NEGATIVE
    except (click.Abort, KeyboardInterrupt):
        sys.stderr.write("interrupted\n")
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_INTERRUPTED
    except Exception as error:
        unclear = _no_text(error, arguments)
        if unclear is not None:
            _tell_usage(click.UsageError(unclear), as_json=as_json)
            return EXIT_USAGE
        known = _known(error, arguments)
        if known is None:
            raise
        _tell(known, as_json=as_json)
        return known.exit_code
    return answer if isinstance(answer, int) else 0


def _print_any_name() -> None:
    """A file's name may be any bytes, and is shown escaped; an act never fails in telling of it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _no_text(error: Exception, arguments: list[str]) -> str | None:
    """What a person gave that is no UTF-8, where that is what went wrong; None: it is not.

    Asked afterwards: a file may have any name, and most commands do not say which argument is one.
    """
    wrong = isinstance(error, UnicodeEncodeError) or "surrogates not allowed" in str(error)
    if not wrong:
        return None
    inside = getattr(error, "object", "")
    odd = [place for place, one in enumerate(arguments) if not _is_text(one)]
    odd.sort(key=lambda place: arguments[place] not in inside)  # the one it stumbled over first
    for place in odd:
        before = arguments[place - 1] if place else ""
        name = f"{before} " if before.startswith("--") and "=" not in before else ""
        shown = os.fsencode(arguments[place]).decode("utf-8", "backslashreplace")
        return f'{name}"{shown}" is no UTF-8, so it can be no name and no text here.'
    for name, value in os.environ.items():
        if name.startswith(("SUIMON_", "PG")) and not _is_text(value):
            return f"The variable {name} is no UTF-8."
    return None


def _known(error: Exception, arguments: list[str]) -> SuimonError | None:
    """What the database driver and the system raise, in our words; None: a defect."""
    psycopg: Any = sys.modules.get("psycopg")
    if psycopg is not None and isinstance(error, psycopg.DataError):
        text = str(error).strip().splitlines()
        msg = "a value that was given cannot be one here: it is too large, or of another kind"
        hint = "No number goes beyond 9,223,372,036,854,775,807, no text holds NUL."
        return InputRefused(msg, detail=text[0] if text else None, hint=hint)
    if psycopg is not None and isinstance(error, psycopg.OperationalError):
        text = str(error).strip().splitlines()
        detail = text[0] if text else None
        msg = "the connection to the database was lost"
        return DatabaseUnavailable(msg, detail=detail, hint="What was asked may be asked again.")
    if isinstance(error, OSError) and error.strerror:
        place = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""
        which = f' "{place}"' if place else ""
        msg = f"the system refused{which}: {error.strerror}"
        if place and _was_given(place, arguments):
            return FileRefused(msg, path=place, hint="Look at the path that was given.")
        return SuimonError(msg)
    return None


def _was_given(path: str, arguments: list[str]) -> bool:
    """Whether a person named this path or one above it: alone, as `@FILE`, as `--option=FILE`."""
    for one in arguments:
        named = one.partition("=")[2] if one.startswith("--") else one.removeprefix("@")
        whole = os.path.abspath(named)  # noqa: PTH100 (any text)
        if named and (path == named or f"{path}/".startswith(f"{whole}/")):
            return True
    return False


def _tell(error: SuimonError, *, as_json: bool) -> None:
    if as_json:
        from suimon.core import jsonsafe

        problem = {"title": type(error).__name__, "exit_code": error.exit_code, **error.to_json()}
        sys.stderr.write(json.dumps(jsonsafe.escaped(problem), ensure_ascii=True) + "\n")
    else:
        text = f"error: {error.render()}\n"
        sys.stderr.write(text.encode("utf-8", "backslashreplace").decode())


def _tell_usage(error: click.ClickException, *, as_json: bool) -> None:
    if as_json:
        from suimon.core import jsonsafe

        problem = {"title": "Usage", "code": "SUI-0002", "message": error.format_message()}
        sys.stderr.write(json.dumps(jsonsafe.escaped({**problem, "exit_code": EXIT_USAGE})) + "\n")
        return
    shown = error.format_message()
    sys.stderr.write(f"error: {shown}\n")
    context = getattr(error, "ctx", None)
    if context is not None:
        sys.stderr.write(f"  hint: {context.command_path} --help\n")


if __name__ == "__main__":
    main()
