"""What the environment and the options of a command say, as one frozen record.

Every setting is an environment variable `SUIMON_<NAME>` and, where a command has it, an option of
the same name; the option wins. All mistakes are reported at once. A variable that looks like a
misspelt setting is a mistake too: a typing error must not start a worker with defaults.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

from suimon.core import addresses, secret_names
from suimon.core.durations import seconds
from suimon.core.suggest import did_you_mean
from suimon.errors import EXIT_USAGE, SuimonError

_PREFIX = "SUIMON_"

# Variables that are read elsewhere, before or outside of a command.
OTHER_VARIABLES = ("SUIMON_PG_BIN", "SUIMON_PYTHON", "SUIMON_INSIDE_SLOT", "SUIMON_TEST_PG_BIN")


class SettingsError(SuimonError):
    """Environment or options hold values that cannot be used; `mistakes` has one line for each."""

    code: ClassVar[str] = "SUI-1003"
    exit_code: ClassVar[int] = EXIT_USAGE

    def __init__(self, mistakes: list[str], *, hint: str | None = None) -> None:
        self.mistakes = tuple(mistakes)
        if len(mistakes) == 1:
            super().__init__(mistakes[0], hint=hint)
        else:
            fact = f"{len(mistakes)} mistakes in the settings"
            super().__init__(fact, detail="; ".join(mistakes), hint=hint)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        msg = "must not be empty"
        raise ValueError(msg)
    return value


def _token(value: object) -> str:
    text = str(value)
    if not 16 <= len(text) <= 512 or not text.isascii() or not text.isprintable() or " " in text:
        msg = "must be 16 to 512 printable ASCII characters without spaces"
        raise ValueError(msg)
    return text


def _whole(low: int, high: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        try:
            number = int(str(value))
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            msg = f"must be a whole number from {low} to {high}"
            raise ValueError(msg)
        return number

    return parse


def _duration(low: float, high: float) -> Callable[[object], float]:
    def parse(value: object) -> float:
        # Text needs its unit; a number comes from a program and is in seconds.
        number = float(value) if isinstance(value, int | float) else seconds(value)
        if not low <= number <= high:
            msg = f"must be a duration from {low:g}s to {high:g}s"
            raise ValueError(msg)
        return number

    return parse


def _folders(value: object) -> str:
    text = _text(value)
    if not all(folder.startswith("/") for folder in text.split(":")):
        msg = "must be absolute folders with colons between them"
        raise ValueError(msg)
    return text


def _pool(value: object) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,99}", str(value), re.ASCII):
        msg = "must be small letters, digits, _ and -, like gpu-2"
        raise ValueError(msg)
    return str(value)


def _one_of(*words: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if value not in words:
            msg = f"must be one of {', '.join(words)}"
            raise ValueError(msg)
        return str(value)

    return parse


def _reference(value: object) -> str:
    problem = secret_names.reference(value)
    if problem is not None:
        msg = problem if problem.startswith("must") else f"must not: it {problem}"
        raise ValueError(msg)
    return str(value)


def _addresses(value: object) -> str:
    addresses.allowed(_text(value))
    return str(value)


def _setting(
    parse: Callable[[object], Any], about: str, default: Any = None, *, shown: bool = True
) -> Any:
    return field(default=default, repr=shown, metadata={"parse": parse, "about": about})


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one process. Times are in seconds."""

    database_url: str | None = _setting(_text, "PostgreSQL, as postgresql://user:password@host/db")
    listen_url: str | None = _setting(_text, "the same server past a pooler, for LISTEN")
    home: str = _setting(_text, "folder of the embedded PostgreSQL", ".suimon")
    pool: str = _setting(_pool, "pool that a worker claims for", "default")
    slots: int = _setting(_whole(1, 1000), "child processes of a worker", 2)
    async_per_slot: int = _setting(_whole(1, 10_000), "async tasks that share a slot", 1)
    heartbeat: float = _setting(_duration(0.05, 60), "between two beats of a worker", 5.0)
    sweep: float = _setting(_duration(0.1, 600), "between two safety sweeps", 45.0)
    secret_key: str | None = _setting(
        _text, "key of stored secrets: base64 of 32 bytes", shown=False
    )
    secret_key_file: str | None = _setting(_text, "file with that key in its first line, instead")
    secret_key_old: str | None = _setting(_text, "the key before, while rotating", shown=False)
    read_folders: str | None = _setting(
        _folders, "folders that paths of inputs may lead into, as /a:/b, besides PATH and triggers"
    )
    host: str = _setting(_text, "address that a server binds to", "127.0.0.1")
    port: int = _setting(_whole(0, 65_535), "its port; 0: any free one", 8700)
    api_token: str | None = _setting(
        _token, "bearer token of /api and /metrics; needed off loopback", shown=False
    )
    allow_addresses: str | None = _setting(
        _addresses, "private addresses that may be connected to: 10.0.0.0/8, host or host:port"
    )
    smtp_host: str | None = _setting(_text, "mail server for notifications by e-mail")
    smtp_port: int = _setting(_whole(1, 65_535), "its port", 587)
    smtp_security: str = _setting(
        _one_of("starttls", "ssl", "none"), "how it is spoken to", "starttls"
    )
    smtp_user: str | None = _setting(_text, "user to log in as; unset: nobody logs in")
    smtp_password: str | None = _setting(
        _reference, "where its password is: env:NAME, file:/path, secret:name", shown=False
    )
    smtp_from: str | None = _setting(_text, "address that notifications come from")
    drain_timeout: float | None = _setting(
        _duration(0, 7 * 86_400), "how long a drain waits for what runs; unset: for ever"
    )


#: What sending notifications needs; a worker hands these on to the process that it becomes.
OUTGOING = (
    "allow_addresses", "smtp_host", "smtp_port", "smtp_security", "smtp_user", "smtp_password",
    "smtp_from",
)  # fmt: skip

#: Where `suimon dev` leaves the address of its server while it runs, below its home.
ADDRESS_FILE = "address"


def address_of(found: Settings) -> str | None:
    """The database that is meant: the one given, else the one of a running `suimon dev`."""
    if found.database_url:
        return found.database_url
    address = Path(found.home) / ADDRESS_FILE
    return address.read_text(encoding="utf-8").strip() if address.exists() else None


def environment_name(name: str) -> str:
    """`SUIMON_DATABASE_URL` for `database_url`."""
    return _PREFIX + name.upper()


def described() -> list[tuple[str, str, Any]]:
    """(variable, what it is for, default) of every setting, for help and documents."""
    return [
        (environment_name(one.name), one.metadata["about"], one.default)
        for one in fields(Settings)
        if one.default is not MISSING
    ]


def load(
    environment: Mapping[str, str], options: Mapping[str, object | None] | None = None
) -> Settings:
    """The settings of `environment` with `options` over them; None among the options: not given.

    Raises SettingsError with every mistake of both.
    """
    given = {key: value for key, value in (options or {}).items() if value is not None}
    known = {one.name: one for one in fields(Settings)}
    values: dict[str, Any] = {}
    mistakes = []
    for name, one in known.items():
        variable = environment_name(name)
        source = f"--{name.replace('_', '-')}" if name in given else variable
        text = given.get(name, environment.get(variable))
        if text is None:
            continue
        try:
            values[name] = one.metadata["parse"](text)
        except (ValueError, SuimonError) as error:
            shown = "" if name.endswith("_url") or not one.repr else f', not "{text}"'
            mistakes.append(f"{source} {_reason(error)}{shown}")
    mistakes += _misspelt(environment, given, known)
    if mistakes:
        raise SettingsError(mistakes)
    return Settings(**values)


def _reason(error: Exception) -> str:
    text = str(error)
    return text if text.startswith("must") else "must be a duration such as 500ms, 30s or 5m"


def _misspelt(
    environment: Mapping[str, str], given: Mapping[str, object], known: Mapping[str, object]
) -> list[str]:
    variables = {environment_name(name) for name in known} | set(OTHER_VARIABLES)
    mistakes = []
    for variable in environment:
        name = variable.removeprefix(_PREFIX).lower()
        if variable.startswith(_PREFIX) and variable not in variables:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
            if near:  # one that resembles nothing may be the user's own, for his tasks
                meant = environment_name(near[0])
                mistakes.append(f'{variable} is no setting; did you mean "{meant}"?')
    for option in given:
        if option not in known:
            hint = did_you_mean(option, known) or "see --help"
            mistakes.append(f'"{option}" is no setting; {hint}')
    return mistakes
