"""Quotas as tests set and read them."""

from __future__ import annotations

from typing import Any

from suimon.db.connect import Connection
from suimon.run import quotas
from support.lab import Lab


def quota(conn: Connection, name: str = "all", **limits: int | None) -> dict[str, Any]:
    return quotas.change(conn, name, limits, actor="mia", why="a test")


def used(conn: Connection, name: str = "all") -> tuple[int, int]:
    """(used this day, of it reserved), after what is over has been given back."""
    found = quotas.show(conn, name)
    return found["day_used"], found["reserved"]


def counter(lab: Lab, name: str = "all") -> int:
    """The number itself: nothing is given back by looking."""
    return int(lab.one("select day_used from suimon.quotas where name = %s", name))
