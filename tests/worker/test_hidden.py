"""Logs of slots that hold secrets: cut, split, flooded, and never half a secret in them."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import orjson
import pytest

from suimon.core.redact import Redactor
from suimon.worker import rawlog, slot_logs
from suimon.worker.rawlog import RawLog
from suimon.worker.slot_logs import RunLog

SECRET = "s3cret-Wert-€-of-some-length"
MARK = "[secret crm]"


def parts_of(text: str) -> list[str]:
    """Whatever of the secret could still be read: five characters in a row."""
    return [SECRET[at : at + 5] for at in range(len(SECRET) - 4) if SECRET[at : at + 5] in text]


class Sent:
    """What a run's log sends, as text by stream."""

    def __init__(self) -> None:
        self.texts: list[tuple[str, str]] = []

    def __call__(self, line: bytes) -> None:
        _, _, stream, text = line.rstrip(b"\n").split(b" ", 3)
        self.texts.append((stream.decode(), orjson.loads(text)))

    def of(self, *streams: str) -> str:
        return "".join(text for name, text in self.texts if not streams or name in streams)


def test_a_secret_in_two_prints_with_another_stream_between() -> None:
    sent = Sent()
    log = RunLog(1, sent, Redactor({"crm": SECRET}))
    log.write("stdout", f"it is {SECRET[:9]}")
    log.write("stderr", "meanwhile\n")
    log.flush()
    log.write("stdout", f"{SECRET[9:]}, is it not\n")
    log.finish()
    assert sent.of("stdout") == f"it is {MARK}, is it not\n"
    assert sent.of("stderr") == "meanwhile\n"


@pytest.mark.parametrize("before", range(slot_logs.HEAD_BYTES - 40, slot_logs.HEAD_BYTES + 5, 7))
def test_no_half_secret_where_a_log_is_cut(before: int) -> None:
    """At the end of the head, and at the beginning of what is kept of the end."""
    sent = Sent()
    log = RunLog(1, sent, Redactor({"crm": SECRET}))
    log.write("stdout", "x" * before)
    for _ in range(30_000):
        log.write("stdout", SECRET)
        log.write("stdout", ".")
    log.finish()
    assert not parts_of(sent.of())
    assert MARK in sent.of("stdout")


def test_what_looked_like_a_secret_is_not_lost() -> None:
    sent = Sent()
    log = RunLog(1, sent, Redactor({"crm": SECRET}))
    log.write("stdout", SECRET[:7])
    log.finish()
    assert sent.of("stdout") == SECRET[:7]


def test_values_that_come_later_count_from_then_on() -> None:
    hidden, sent = Redactor(), Sent()
    log = RunLog(1, sent, hidden)
    log.write("stdout", "before\n")
    hidden.add({"crm": SECRET})
    log.write("stdout", f"{SECRET}\n")
    log.finish()
    assert sent.of() == f"before\n{MARK}\n"


def test_threads_that_print_at_once_show_no_half() -> None:
    sent = Sent()
    log = RunLog(1, sent, Redactor({"crm": SECRET}))

    def prints() -> None:
        for _ in range(200):
            log.write("stdout", f"({SECRET})\n")

    threads = [threading.Thread(target=prints) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    log.finish()
    assert sent.of().count(MARK) == 800
    assert not parts_of(sent.of())


def raw(pieces: list[bytes]) -> str:
    log, texts = RawLog(Redactor({"crm": SECRET}, raw=True)), []
    for piece in pieces:
        texts += log.take("stdout", piece)
    texts += [text for stream, text in log.end() if stream == "stdout"]
    return "".join(texts)


@pytest.mark.parametrize("seed", range(10))
def test_raw_bytes_in_any_pieces(seed: int) -> None:
    rng = random.Random(seed)
    data = (
        b"\xff\xfe before " + SECRET.encode() + " ü between ".encode() + SECRET.encode() + b"\xe2"
    )
    cuts = sorted(rng.sample(range(len(data)), 6))
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    assert raw(pieces) == f"\\xff\\xfe before {MARK} ü between {MARK}\\xe2"


def test_no_half_secret_where_raw_output_is_cut() -> None:
    for size in (rawlog.HEAD_BYTES - 9, rawlog.HEAD_BYTES + 3):
        shown = raw([b"x" * size, *[SECRET.encode() + b"."] * 20_000])
        assert not parts_of(shown)
        assert MARK in shown


def test_a_log_without_secrets_is_the_same() -> None:
    make: list[Callable[[Sent], RunLog]] = [
        lambda sent: RunLog(1, sent),
        lambda sent: RunLog(1, sent, Redactor()),
    ]
    shown = []
    for one in make:
        sent = Sent()
        log = one(sent)
        log.write("stdout", f"a {SECRET} b\n")
        log.finish()
        shown.append(sent.texts)
    assert shown[0] == shown[1] == [("stdout", f"a {SECRET} b\n")]
