"""Labels of runs: ``tenant:acme``, by which quotas count them and people find them.

A label is a key, a colon and a value, in visible ASCII without spaces. A run has those of its
pipeline and those it is started with; what is spawned below it counts for them too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

#: Labels that a definition, and that a start may give.
MOST: Final = 10
CHARACTERS: Final = 100

# (``suimon.labels_fit`` has the same in SQL)
_LABEL: Final = re.compile(r"[a-z][a-z0-9_-]*:[!-~]+")


def is_label(value: Any) -> bool:
    """
    >>> is_label("tenant:acme"), is_label("acme"), is_label("tenant:a b")
    (True, False, False)
    """
    return (
        isinstance(value, str) and len(value) <= CHARACTERS and _LABEL.fullmatch(value) is not None
    )


def fault(values: Any) -> str | None:
    """What is wrong with a list of labels; None: nothing."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        return f"must be a list of labels like tenant:acme, not {values!r}"
    if len(values) > MOST:
        return f"must be at most {MOST} labels, not {len(values)}"
    for value in values:
        if not is_label(value):
            return (
                f"must be labels like tenant:acme (key:value, at most {CHARACTERS} visible "
                f"characters, no spaces), not {value!r}"
            )
    return None


def canonical(values: Sequence[str]) -> list[str]:
    """Each once, in order."""
    return sorted(set(values))
