"""Numbers in sentences: `1 run is`, `12 runs are`."""

from __future__ import annotations


def count(number: int, one: str, many: str | None = None, *, more: bool = False) -> str:
    """The number with its word; ``many`` where it is not ``one`` with an s; ``more``: at least.

    >>> count(1, "run"), count(1204, "run"), count(1, "child is", "children are")
    ('1 run', '1,204 runs', '1 child is')
    """
    return f"{number:,}{'+' if more else ''} {pick(number, one, many, more=more)}"


def pick(number: int, one: str, many: str | None = None, *, more: bool = False) -> str:
    """The word alone.

    >>> pick(1, "waits", "wait"), pick(0, "waits", "wait")
    ('waits', 'wait')
    """
    return one if number == 1 and not more else many or f"{one}s"
