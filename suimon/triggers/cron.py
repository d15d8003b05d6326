"""Placeholder: replaced by the schedules."""

from __future__ import annotations

from suimon.db.connect import Connection


def due(conn: Connection) -> float | None:
    return None
