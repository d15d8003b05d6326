"""Real workers, slots and guardians in every test here."""

from __future__ import annotations

from support.engine_fixtures import engine, own_engine, own_server

__all__ = ["engine", "own_engine", "own_server"]
