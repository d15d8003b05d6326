"""Who asks and why: ``--as`` and ``--why`` of every command that changes something by hand."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def actor() -> str:
    """The user of the operating system, for the audit record."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name
        return "cli"


def as_option(function: F) -> F:
    """``--as NAME``; the function gets ``who``."""
    about = "Who asks, for the record; else the user of this machine."
    return click.option("--as", "who", metavar="NAME", default=actor, help=about)(function)


def audited(function: F) -> F:
    """``--as`` and ``--why``; the function gets ``who`` and ``reason``."""
    why = click.option("--why", "reason", default="", help="Kept in the audit record.")
    return as_option(why(function))
