"""Waiting for something that another process or thread does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(predicate: Callable[[], T], timeout: float, what: str) -> T:
    """Look until `predicate` gives something true, and return it.

    `what` completes the sentence "still not ... after N s". A test never sleeps to be on the safe
    side: it waits for a row, a file or a line by this function, which returns at the first look
    that finds it.
    """
    give_up_at = time.monotonic() + timeout
    pause = 0.001
    while True:
        if found := predicate():
            return found
        if time.monotonic() > give_up_at:
            msg = f"still not {what} after {timeout:g} s"
            raise AssertionError(msg)
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)
