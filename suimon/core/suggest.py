"""`did you mean "retries"?`: one way to suggest a name, used by every message."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A hint naming the nearest known name, or nothing when none is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f'did you mean "{near[0]}"?' if near else None


def one_of(name: str, known: Iterable[str]) -> str | None:
    """The nearest name if there is one, else all of them (at most 20); None: there is none."""
    names = sorted(known)
    if not names:
        return None
    near = did_you_mean(name, names)
    if near:
        return near
    shown = ", ".join(names[:20])
    return f"known: {shown}" + (", ..." if len(names) > 20 else "")
