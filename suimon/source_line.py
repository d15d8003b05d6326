"""Where a person's code stands: file and line of a call, for messages about it."""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import Any, Final

_PACKAGE: Final = os.path.dirname(os.path.abspath(__file__)) + os.sep  # noqa: PTH100, PTH120


def caller() -> tuple[str, int]:
    """File and line of the nearest frame outside this package."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the one way to ask who calls
    # (a dataclass's own __init__ stands in "<string>")
    while frame is not None and frame.f_code.co_filename.startswith((_PACKAGE, "<string>")):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame else ("", 0)


def shown(value: Any) -> str:
    """A function by its name, anything else by the beginning of its repr."""
    return getattr(value, "__qualname__", None) or repr(value)[:80]
