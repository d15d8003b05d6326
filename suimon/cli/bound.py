"""A limit on the command line: a whole number from 1 on, or the word none."""

from __future__ import annotations

from typing import Any

import click


class Bound(click.ParamType[Any]):
    """A whole number from 1 (or another one) on, or the word none."""

    name = "number|none"

    def __init__(self, least: int = 1) -> None:
        self.least = least

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        if value in ("none", "unlimited"):
            return "none"
        if not str(value).isascii() or not str(value).isdigit() or int(value) < self.least:
            msg = f'"{value}" is neither a whole number from {self.least} on nor none'
            self.fail(msg, param, ctx)
        return int(value)


BOUND = Bound()
