"""The lab and its sessions."""

from __future__ import annotations

from support.lab_fixtures import lab, sessions

__all__ = ["lab", "sessions"]
