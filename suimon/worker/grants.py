"""Secrets for runs: resolved by the worker for one try, sent to its slot over the pipe.

A task is given what its decorator grants and nothing else. Values live in the worker's memory for a
second (children of one fan-out ask for the same ones), in the slot until it is replaced; they are
in no argument, environment or file. What cannot be had fails the try for good, with the name and
what to do: a retry after `suimon secrets set` finds it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from suimon.core import clock, secret_names
from suimon.core.redact import SHORTEST
from suimon.db.connect import Connection
from suimon.errors import SecretTooShort, SuimonError
from suimon.store import secret
from suimon.store.secret_key import KeyRing

if TYPE_CHECKING:
    from suimon.worker.held import Held
    from suimon.worker.worker import Worker

#: A value that was resolved so shortly before is given again.
FRESH_SECONDS: Final = 1.0
#: Values that are remembered at most.
REMEMBERED: Final = 1000


class Grants:
    """The secrets of one worker's runs. Main thread only; the desk's connection reads."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._ring = KeyRing.of(worker.options.environment)
        self._known: dict[str, tuple[float, str]] = {}
        self._asking: dict[tuple[str, ...], list[tuple[Held, Callable[[], None]]]] = {}

    def give(self, held: Held, then: Callable[[], None]) -> None:
        """Have the run's secrets, then go on; or the try has failed."""
        assert held.program is not None
        names = held.program.secrets
        now = clock.monotonic()
        known = {name: self._known[name] for name in names if name in self._known}
        if len(known) == len(names) and all(now - at < FRESH_SECONDS for at, _ in known.values()):
            held.secrets = {name: value for name, (_, value) in known.items()}
            then()
            return
        waiting = self._asking.setdefault(names, [])
        waiting.append((held, then))
        if len(waiting) == 1:
            work = functools.partial(_resolve, ring=self._ring, names=names)
            self._worker.desk.ask(
                work,
                functools.partial(self._answered, names),
                functools.partial(self._refused, names),
            )

    def _answered(self, names: tuple[str, ...], values: dict[str, str]) -> None:
        if len(self._known) > REMEMBERED:
            self._known.clear()
        now = clock.monotonic()
        self._known |= {name: (now, value) for name, value in values.items()}
        for held, then in self._asking.pop(names):
            if not held.gone:
                held.secrets = values
                then()

    def _refused(self, names: tuple[str, ...], error: Exception) -> None:
        for held, _ in self._asking.pop(names):
            if held.gone:
                continue
            if isinstance(error, SuimonError):
                self._worker.results.failed_try(held, 0, {**error.to_json(), "kind": "fatal"})
            else:
                self._worker.failed(held, error)


def _resolve(conn: Connection, *, ring: KeyRing, names: tuple[str, ...]) -> dict[str, str]:
    references = {secret_names.of_grant(name): name for name in names}
    found = secret.resolve_all(conn, ring, references)
    for reference, value in found.items():
        if len(value) < SHORTEST:
            msg = f'the secret "{references[reference]}" has fewer than {SHORTEST} characters'
            raise SecretTooShort(msg, hint="It could not be taken out of logs; use a longer one.")
    return {references[reference]: value for reference, value in found.items()}
