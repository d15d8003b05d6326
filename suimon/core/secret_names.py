"""How a secret is named: `env:NAME`, `file:/path`, `secret:name`. Never by its value.

A definition lies in the database and in every copy of the source, so what stands where a reference
belongs is refused unless it is one, and is not repeated in the message: it may be the secret
itself. Grants of tasks (`@task(secrets=[...])`) write a stored secret by its bare name.
"""

from __future__ import annotations

import re
from typing import Any, Final

ENV: Final = "env:"
FILE: Final = "file:"
STORED: Final = "secret:"

#: Of one task.
MAX_GRANTS: Final = 50

NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}", re.ASCII)
_REFERENCE: Final = re.compile(
    r"env:[A-Za-z_][A-Za-z0-9_]{0,199}|file:/[^\0]{1,1000}|secret:[a-z0-9][a-z0-9_-]{0,99}",
    re.ASCII,
)
#: Ways to the database: no task can be granted one, nor what begins like a setting of Suimon.
_NEVER: Final = frozenset(
    {"PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE", "PGSSLKEY", "PGSSLPASSWORD"}
)
FORMS: Final = '"env:NAME", "file:/path" or "secret:name"'


def reference(value: Any) -> str | None:
    """None for a reference; else the end of a sentence that does not repeat the value."""
    if isinstance(value, str) and _REFERENCE.fullmatch(value):
        if value.startswith(ENV) and is_own(value.removeprefix(ENV)):
            return "names a variable of Suimon or of its database connection; no task may have it"
        return None
    return f"must name a secret: {FORMS}"


def grants(value: Any) -> str | None:
    """What `secrets` of a task may hold: a list of names, each once."""
    if not isinstance(value, list) or not value:
        return 'must be a list of names of secrets, like ["crm_token"]'
    if len(value) > MAX_GRANTS:
        return f"has {len(value)} names; the limit is {MAX_GRANTS}"
    for place, one in enumerate(value):
        problem = _grant(one)
        if problem:
            return f"is wrong: [{place}] {problem}"
    if len(set(value)) < len(value):
        return "names a secret twice"
    return None


def _grant(value: Any) -> str | None:
    if isinstance(value, str):
        if value.startswith(STORED):
            return 'is written by its bare name, without "secret:"'
        if NAME.fullmatch(value):
            return None
        if value.startswith((ENV, FILE)) and _REFERENCE.fullmatch(value):
            return reference(value)
    return (
        'must name a secret: "crm_token" (lower-case letters, digits, - and _) for a stored one, '
        '"env:NAME" or "file:/path"'
    )


def is_own(name: str) -> bool:
    """Whether an environment variable is Suimon's own, or leads to its database."""
    return name.startswith("SUIMON_") or name in _NEVER


def of_grant(name: str) -> str:
    """The reference that a grant stands for."""
    return name if name.startswith((ENV, FILE)) else STORED + name
