"""Reading definitions: user code is imported in a child process that knows no secret.

`load_path` is for a process that may hold the database URL. It starts `python -m suimon.load PATH`
with a clean environment, waits a bounded time and gets one JSON document back. Nothing the code
prints can reach that document: in the child, standard output is moved aside before the first
import and everything printed goes to standard error, of which the parent keeps the end.

What is not promised: that importing user code does no harm. It runs with the rights of whoever
started Suimon; it only is not *given* anything, in its environment, files or arguments.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from suimon import modules
from suimon.core import clock, jsonsafe
from suimon.errors import DefinitionError, LoadFailed, Mistake
from suimon.graph_set import TaskInfo
from suimon.graph_triggers import open_doors

TIMEOUT_SECONDS: Final = 60.0
MAX_DOCUMENT_BYTES: Final = 64 * 1024 * 1024
_KEPT_OUTPUT_BYTES: Final = 8 * 1024
_READ_BYTES: Final = 64 * 1024
_LAST_READS: Final = 4
_ENVIRONMENT: Final = ("PATH", "HOME", "LANG", "TZ")


@dataclass(frozen=True, slots=True)
class LoadedPipeline:
    """One pipeline: its canonical graph, the graph's hash, and the file it came from."""

    name: str
    hash: str
    graph: dict[str, Any]
    source_file: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """All that stands below PATH. `output` is the end of what the code printed."""

    pipelines: tuple[LoadedPipeline, ...]
    tasks: Mapping[str, TaskInfo]
    mistakes: tuple[Mistake, ...]
    output: str = ""
    #: By name, as a definition writes them; deployed beside the graphs.
    destinations: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    #: Files that look like definitions and are not read as such.
    left_out: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is no mistake and still should be known before it is relied on."""
        return self.left_out + tuple(
            f"{one.name}: /webhooks/{slug} has no secret; it is answered on loopback only"
            for one in self.pipelines
            for slug in open_doors(one.graph)
        )

    def check(self) -> Loaded:
        """Raise DefinitionError with all mistakes, or give back the same object."""
        if self.mistakes:
            raise DefinitionError(self.mistakes)
        return self


def load_path(path: str | os.PathLike[str], timeout: float = TIMEOUT_SECONDS) -> Loaded:
    """Read PATH in a child process. Raises LoadFailed when the child gives no answer."""
    modules.folder_of(path)  # it is there, and something that holds definitions
    # -P: the working directory is not put on the module path of a process that imports by name
    command = [sys.executable, "-P", "-m", "suimon.load", str(Path(path).absolute())]
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        close_fds=True,
        start_new_session=True,
    )
    try:
        document, printed = _gather(child, os.fspath(path), timeout)
    finally:
        _end(child)
    output = printed.decode("utf-8", "replace")
    if child.returncode != 0 or not document:
        raise _no_answer(child.returncode, os.fspath(path), output)
    return _from_json(orjson.loads(document), output)


def _gather(child: subprocess.Popen[bytes], path: str, timeout: float) -> tuple[bytes, bytes]:
    """The document and the end of what was printed, until the document's pipe is closed."""
    assert child.stdout is not None
    assert child.stderr is not None
    document, printed = bytearray(), bytearray()
    deadline = clock.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ, document)
        selector.register(child.stderr, selectors.EVENT_READ, printed)
        while child.stdout in {key.fileobj for key in selector.get_map().values()}:
            left = deadline - clock.monotonic()
            ready = selector.select(left) if left > 0 else []
            if not ready:
                msg = f'reading "{path}" took longer than {timeout:g} s'
                hint = 'code that runs at import time belongs below `if __name__ == "__main__":`'
                raise LoadFailed(msg, detail=_tail(printed), hint=hint)
            for key, _ in ready:
                piece = os.read(key.fd, _READ_BYTES)
                if not piece:
                    selector.unregister(key.fileobj)
                key.data.extend(piece)
            del printed[:-_KEPT_OUTPUT_BYTES]
            if len(document) > MAX_DOCUMENT_BYTES:
                msg = f'the definitions below "{path}" are larger than 64 MiB'
                raise LoadFailed(msg)
        for _ in range(_LAST_READS):  # what was printed before the answer may still lie there
            for key, _events in selector.select(0):
                printed.extend(os.read(key.fd, _READ_BYTES))
    del printed[:-_KEPT_OUTPUT_BYTES]
    return bytes(document), bytes(printed)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child if it still runs, and whatever it started in its session."""
    try:
        child.wait(timeout=1)
    except subprocess.TimeoutExpired:
        child.kill()
    with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody is left
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    for stream in (child.stdout, child.stderr):
        if stream is not None:
            stream.close()


def _tail(printed: bytes | bytearray) -> str | None:
    text = bytes(printed[-2000:]).decode("utf-8", "replace").strip()
    return f"the code printed: {text}" if text else None


def _no_answer(status: int, path: str, output: str) -> LoadFailed:
    ended = f"ended by signal {-status}" if status < 0 else f"left with status {status}"
    msg = f'the process that reads "{path}" {ended} without an answer'
    hint = "import the modules by hand to see what ends the process"
    return LoadFailed(msg, detail=_tail(output.encode()), hint=hint)


def _from_json(document: Mapping[str, Any], output: str) -> Loaded:
    failed = document.get("failed")
    if failed is not None:
        raise LoadFailed(failed["message"], detail=failed.get("detail"), hint=failed.get("hint"))
    return Loaded(
        pipelines=tuple(LoadedPipeline(**parts) for parts in document["pipelines"]),
        tasks={name: TaskInfo.from_json(parts) for name, parts in document["tasks"].items()},
        mistakes=tuple(Mistake.from_json(parts) for parts in document["mistakes"]),
        output=output,
        destinations=document["destinations"],
        left_out=tuple(document["warnings"]),
    )


def main(arguments: list[str]) -> None:
    """The child: `python -m suimon.load PATH` writes the document to standard output and leaves."""
    answer = os.dup(1)  # not inheritable: what the code starts cannot write there either
    os.dup2(2, 1)
    # the command line's own import of this module must stay light; the child needs the builder
    from suimon.load_child import read

    found = read(arguments[0])
    try:
        document = orjson.dumps(found, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # the name of a file that is no UTF-8
        document = orjson.dumps(jsonsafe.escaped(found), option=orjson.OPT_SORT_KEYS)
    with contextlib.suppress(Exception):  # the code may have closed or replaced them
        sys.stdout.flush()
        sys.stderr.flush()
    with os.fdopen(answer, "wb") as stream:
        stream.write(document + b"\n")
    os._exit(0)  # threads that the code has started must not keep the process alive


if __name__ == "__main__":
    main(sys.argv[1:])
