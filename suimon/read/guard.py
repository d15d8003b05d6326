"""The last guard around the readers: what a library did not expect of a file is a refused file.

Readers say what they know to be wrong in their own words. A file can still be broken in a way that
a library meets with an error of its own; that is the file's fault, and it stays with the file. What
is not: memory that is gone, and a disk or share that cannot be read just now.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from suimon.errors import FileRefused, SuimonError
from suimon.read.checks import Numbered

_DETAIL_CHARACTERS = 500


@contextmanager
def guard(name: str) -> Iterator[None]:
    """Around what opens a file and reads its header."""
    try:
        yield
    except Exception as error:
        if _passes(error):
            raise
        raise _refused(name, error, None) from None


def guarded(rows: Numbered, name: str) -> Numbered:
    """The rows, to the first at which the reader fails."""
    last = 0
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except Exception as error:
            if _passes(error):
                raise
            raise _refused(name, error, last) from None
        last = row[0]
        yield row


def _passes(error: Exception) -> bool:
    of_the_machine = isinstance(error, OSError) and error.errno is not None
    return of_the_machine or isinstance(error, SuimonError | MemoryError)


def _refused(name: str, error: Exception, last: int | None) -> FileRefused:
    place = "" if last is None else f" after row {last}"
    msg = f'"{name}" cannot be read{place}: it is damaged, or not what its format says'
    detail = f"{type(error).__name__}: {error}"[:_DETAIL_CHARACTERS]
    hint = "ask the sender for the file again, or name its format and encoding"
    return FileRefused(msg, path=name, row=last, detail=detail, hint=hint)
