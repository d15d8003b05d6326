"""What processes that run for long write to standard error: lines for people, or JSON for programs.

A JSON line has ``at``, ``level``, ``logger`` and ``message``, the fields that a record brings
along, and the traceback of an error as one text. No line holds a URL's password, a token or a
query.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any, Final, Literal

import click
import orjson

Form = Literal["text", "json"]
_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"

log_format_option = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Lines for people, or one JSON object each.",
)


class JsonLines(logging.Formatter):
    """One object a record."""

    def format(self, record: logging.LogRecord) -> str:
        parts: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields = getattr(record, "fields", None)
        if isinstance(fields, dict):
            parts |= {name: value for name, value in fields.items() if name not in parts}
        if record.exc_info:
            parts["error"] = self.formatException(record.exc_info)
        return orjson.dumps(parts, default=str).decode()


def start(form: str, *, verbose: bool, access: bool = False) -> None:
    """Log to standard error. ``access``: a line for each request, too."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if form == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])
    logging.getLogger("suimon.access").setLevel(logging.INFO if access else logging.WARNING)
    for name in ("asyncio", "uvicorn.error", "watchfiles.main"):  # their daily news are nobody's
        logging.getLogger(name).setLevel(logging.WARNING)
    # (it warns of what it ignores while a connection breaks; who held that says it in our words)
    logging.getLogger("psycopg").setLevel(logging.ERROR)
