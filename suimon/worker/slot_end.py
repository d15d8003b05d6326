"""How a run ends: its result as JSON, or what user code raised as an object. Without secrets.

What the slot holds is taken out of both before anything is cut: half a secret is not recognised.
"""

from __future__ import annotations

import asyncio
import errno
import traceback
from collections.abc import Callable
from typing import Any

from suimon import errors
from suimon.context import Later
from suimon.core import jsonsafe
from suimon.core.redact import Redactor
from suimon.worker import wire
from suimon.worker.slot_logs import printable
from suimon.worker.slot_run import Run

MESSAGE_CHARS = 4000
FRAMES = 40


def microseconds(started: float, ended: float) -> int:
    """Between two readings of the clock, as lines carry it."""
    return int((ended - started) * 1e6)


def encode(value: Any, hidden: Redactor) -> bytes:
    """The result as JSON text without secrets, or InvalidJson / PayloadTooLarge."""
    if value is None:
        return b"null"
    text = jsonsafe.dumps(value, what="result", limit=wire.RESULT_LIMIT_BYTES)
    return hidden.json(text) if hidden.names else text


def failure(run: Run, error: BaseException, microseconds: int, *, binding: bool = False) -> bytes:
    """The `F` line for what user code raised."""
    return wire.failure(run.token, microseconds, describe(run, error, binding=binding))


def describe(run: Run, error: BaseException, *, binding: bool = False) -> dict[str, Any]:
    """The error as an object: type, message, kind, and the traceback where one helps."""
    kind = kind_of(run, error, binding=binding)
    hide = run.desk.hidden.text
    body: dict[str, Any] = {
        "type": hide(type(error).__name__),
        "message": _message(error, hide),
        "kind": kind,
    }
    if isinstance(error, errors.SuimonError):
        body |= {
            name: hide(printable(str(value)))[:MESSAGE_CHARS]
            for name, value in error.to_json().items()
            if name not in ("type", "message") and value is not None
        }
    if isinstance(error, Later):
        body["delay_s"] = error.delay_seconds
        body["turn"] = error.waits_for_turn
    trace = _traceback(error, hide) if kind in ("error", "fatal") else ""
    if trace:
        body["traceback"] = trace
    return body


def kind_of(run: Run, error: BaseException, *, binding: bool = False) -> str:
    if isinstance(error, errors.Cancelled | asyncio.CancelledError) and run.cancelled:
        return "cancelled"
    if isinstance(error, Later):
        return "later"
    if isinstance(error, errors.Fatal | errors.SecretError):
        return "fatal"
    if isinstance(error, errors.PayloadTooLarge):
        return "too_large"
    if isinstance(error, errors.FileRefused) or (
        binding and isinstance(error, errors.InputRefused)
    ):
        return "input"  # another try reads the same
    return "error"


def _message(error: BaseException, hide: Callable[[str], str]) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide the failure
        text = "(the error has no readable text)"
    if isinstance(error, SystemExit):
        text = f"the task called sys.exit({text}); return a value or raise an error instead"
    elif isinstance(error, OSError) and error.errno == errno.ENOSPC:
        text = f"the worker's disk is full: {text}"
    return _cut(hide(printable(text)), MESSAGE_CHARS)


def _traceback(error: BaseException, hide: Callable[[str], str]) -> str:
    """The user's part of the traceback: our own frames at its top are left out."""
    trace = error.__traceback__
    while trace is not None and _is_ours(trace.tb_frame.f_globals.get("__name__", "")):
        trace = trace.tb_next
    if trace is None:
        return ""
    try:
        lines = traceback.format_exception(type(error), error, trace, limit=-FRAMES)
    except Exception:  # noqa: BLE001 - as in _message
        return ""
    return _cut(hide(printable("".join(lines))), wire.TRACEBACK_CHARS)


def _is_ours(module: str) -> bool:
    return module.startswith(("suimon.worker.", "suimon.core.")) or module == "__main__"


def _cut(text: str, limit: int) -> str:
    """Beginning and end of a long text, `limit` characters with the mark between."""
    if len(text) <= limit:
        return text
    mark = "\n... (cut) ...\n"
    head = limit // 4
    return text[:head] + mark + text[-(limit - head - len(mark)) :]
