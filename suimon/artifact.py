"""A file that a task publishes: written here, stored in parts, seen when its step has ended well.

The file is the task's own until the `with` block ends; then it goes to the worker part by part.
What a try wrote is visible only if that very try ended its step, so a failed or repeated try leaves
nothing half done.
"""

from __future__ import annotations

import base64
import tempfile
from typing import IO, TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from suimon.context import Host

ARTIFACT_PART_BYTES = 1024 * 1024
ARTIFACT_BYTES = 256 * ARTIFACT_PART_BYTES


class Artifact:
    """A file that is being written; used as a context manager. `ref` names it afterwards."""

    def __init__(self, host: Host, name: str, *, run_id: str, vertex: str, binary: bool) -> None:
        self._host, self._name, self._binary = host, name, binary
        self.ref: dict[str, Any] = {"artifact": name, "run_id": run_id, "vertex": vertex}
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (closed by __exit__)

    def write(self, data: str | bytes) -> int:
        """Text (written as UTF-8), or bytes if it was opened with `binary=True`."""
        if isinstance(data, str) == self._binary:
            wanted = "bytes" if self._binary else "text"
            msg = f'artifact "{self._name}" takes {wanted}, not {type(data).__name__}'
            raise TypeError(msg)
        return self._file.write(data.encode() if isinstance(data, str) else data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._file:
            if kind is None:
                self._send()

    def _send(self) -> None:
        size = self._file.tell()
        if size > ARTIFACT_BYTES:
            msg = f'artifact "{self._name}" has {size} bytes, more than {ARTIFACT_BYTES}'
            raise ValueError(msg)
        self._file.seek(0)
        for part in range(max(1, -(-size // ARTIFACT_PART_BYTES))):
            body = base64.b64encode(self._file.read(ARTIFACT_PART_BYTES)).decode()
            last = (part + 1) * ARTIFACT_PART_BYTES >= size
            self._host.ask(
                {
                    "op": "artifact_part",
                    "name": self._name,
                    "part": part,
                    "data": body,
                    "last": last,
                }
            )
        self.ref["size"] = size
