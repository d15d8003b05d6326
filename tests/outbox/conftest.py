"""Tests of what is told to pipelines, people and other programs; most on the engine's functions."""

from __future__ import annotations

from support.engine_fixtures import engine
from support.lab_fixtures import lab, sessions

__all__ = ["engine", "lab", "sessions"]
