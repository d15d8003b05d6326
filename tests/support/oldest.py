"""Prints the folder of the oldest PostgreSQL on the system, or nothing. For the Makefile."""

from __future__ import annotations

from support.database import oldest_bin

if __name__ == "__main__":
    print(oldest_bin() or "")
