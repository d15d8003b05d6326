"""A process without secrets in its environment and command line.

``/proc/PID/environ`` and ``/proc/PID/cmdline`` show for ever what a process *started* with;
deleting a variable changes nothing. So a worker that was given its URLs in either replaces itself
(``execve``) by the same program with a clean environment, and with the URLs, and the environment
that it had, in an anonymous file in memory whose descriptor it inherits, reads once and closes. So
references such as ``env:HOOK_SECRET`` and the key of stored secrets are known to it alone. It also
asks the kernel to keep its memory and its ``/proc`` entries from other processes of the same
account: its slots run somebody's code.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Final, NoReturn

from suimon.core import secret_names, settings
from suimon.core.settings import SettingsError
from suimon.errors import SuimonError
from suimon.store import secret_key

#: What a worker keeps of its environment; ``--env`` names more, for its slots.
KEPT: Final = ("PATH", "HOME", "LANG", "TZ", "TMPDIR")
KEPT_PREFIXES: Final = ("LC_", "PYTHON")
#: The longest text that is read from the descriptor: the kernel bounds an environment likewise.
LIMIT_BYTES: Final = 8 * 1024 * 1024
_ENVIRONMENT: Final = "environment"
_PR_SET_DUMPABLE: Final = 4
#: A variable that a shell could set.
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def environment(names: Iterable[str] = ()) -> dict[str, str]:
    """This process's environment reduced to what is named here and in ``names``."""
    chosen = {*KEPT, *names}
    return {
        name: value
        for name, value in os.environ.items()
        if name in chosen or name.startswith(KEPT_PREFIXES)
    }


def with_environment(secrets: dict[str, str | None]) -> dict[str, str | None]:
    """The secrets, and beside them what this process may resolve ``env:NAME`` with, and what it
    needs to send notifications.
    """
    outgoing = [settings.environment_name(name) for name in settings.OUTGOING]
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in (*secret_key.VARIABLES, *outgoing) or not secret_names.is_own(name)
    }
    return {**secrets, _ENVIRONMENT: json.dumps(kept)}


def take_environment(secrets: dict[str, str | None]) -> dict[str, str]:
    """What ``with_environment`` put beside them; it is taken out."""
    text = secrets.pop(_ENVIRONMENT, None)
    found = json.loads(text) if text else {}
    assert isinstance(found, dict)
    return found


def refuse_own(names: Iterable[str]) -> None:
    """``--env`` is for the tasks' variables; the engine's own would show them the database. What is
    no name is refused: `NAME=VALUE` would give the tasks nothing, without a word.
    """
    for name in names:
        if not _NAME.fullmatch(name):
            msg = f'--env "{name}" is no name of a variable'
            hint = "The value comes from the environment: NAME=VALUE suimon worker PATH --env NAME"
            raise SettingsError([msg], hint=hint)
        if secret_names.is_own(name):
            msg = f"--env {name} would show it to every task"
            raise SettingsError([msg], hint="Name variables of your own.")


def hand_over(secrets: dict[str, str | None]) -> int:
    """A descriptor from which a program started by us can read the secrets, once."""
    fd = os.memfd_create("suimon", 0)  # inherited: the caller passes it on, or becomes the program
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(json.dumps(secrets).encode())
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def take_over(fd: int) -> dict[str, str | None]:
    """The secrets, out of the descriptor, which is closed."""
    try:
        os.lseek(fd, 0, os.SEEK_SET)
        with os.fdopen(os.dup(fd), "rb") as file:
            text = file.read(LIMIT_BYTES)
        os.ftruncate(fd, 0)
        found = json.loads(text)
    except (OSError, ValueError):
        msg = f"descriptor {fd} does not hold what was promised"
        raise SuimonError(msg, hint="--secrets-fd is for Suimon itself.") from None
    finally:
        with contextlib.suppress(OSError):
            os.close(fd)
    assert isinstance(found, dict)
    return found


def command(arguments: Sequence[str]) -> list[str]:
    """``suimon`` with these arguments, run by this very Python."""
    return [sys.executable, "-P", "-m", "suimon.cli.main", *arguments]


def become(arguments: Sequence[str], names: Iterable[str] = ()) -> NoReturn:
    """Replace this process by ``suimon`` with these arguments and a clean environment."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, command(arguments), environment(names))  # noqa: S606


def hide() -> None:
    """Keep memory and /proc entries from other processes of this account, where the kernel can."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
