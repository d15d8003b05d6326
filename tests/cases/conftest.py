"""Real workers, slots and guardians; where the engine alone is meant, its acts by hand."""

from __future__ import annotations

from support.engine_fixtures import engine, own_engine, own_server
from support.lab_fixtures import lab, sessions

__all__ = ["engine", "lab", "own_engine", "own_server", "sessions"]
