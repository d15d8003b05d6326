"""2,000 versions of files, written slowly, renamed in, re-uploaded, while nobody was there: each
has exactly one run, with inotify and with polling.
"""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest
from support.engine import Engine

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.long]

CODE = """
from suimon import File

@task
def take(path):
    with open(path) as file:
        return file.read()

p = Pipeline("take", concurrency=None)
p.on(File("in/*.txt", settle="3s", mode="MODE", interval="500ms"))
p.run("take", take, p.input.path)
"""

DONE = "select output #>> '{}' from suimon.runs where pipeline = 'take' and status = 'succeeded'"


class Sender:
    """Puts files into the inbox and remembers what each version held."""

    def __init__(self, inbox: Path) -> None:
        self.inbox = inbox
        self.sent: list[str] = []
        self._versions: Counter[str] = Counter()

    def _next(self, name: str) -> str:
        self._versions[name] += 1
        text = f"{name} version {self._versions[name]}\n" + "x" * 200
        self.sent.append(text)
        return text

    def rename(self, names: list[str]) -> None:
        """As good senders do: written under a name that is ignored, then renamed."""
        for name in names:
            made = self.inbox / f".{name}.upload"
            made.write_text(self._next(name))
            made.rename(self.inbox / f"{name}.txt")

    def slowly(self, names: list[str], writers: int = 20) -> None:
        """In pieces, many at a time, each left alone for less than `settle`."""
        texts = {name: self._next(name) for name in names}

        def write(first: int) -> None:
            for name in names[first::writers]:
                with (self.inbox / f"{name}.txt").open("w") as file:
                    for start in range(0, len(texts[name]), 80):
                        file.write(texts[name][start : start + 80])
                        file.flush()
                        threading.Event().wait(0.03)

        threads = [threading.Thread(target=write, args=(n,)) for n in range(writers)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()


@pytest.mark.parametrize("mode", ["watch", "poll"])
def test_each_version_of_two_thousand_files_has_exactly_one_run(engine: Engine, mode: str) -> None:
    """Re-uploaded is what has had its run: a version that lay there shorter than `settle` is none.

    The system is killed while files are arriving, and stays away while more are.
    """
    engine.module("m", CODE.replace("MODE", mode))
    inbox = engine.project.root / "in"
    inbox.mkdir()
    engine.deploy()
    sender = Sender(inbox)
    first = [f"first-{n}" for n in range(500)]
    sender.rename(first[:100])  # before anybody watches
    workers = [engine.worker() for _ in range(2)]

    def all_done() -> bool:
        return int(engine.one(f"select count(*) from ({DONE}) d")) >= len(sender.sent)

    sender.slowly(first[100:300])
    sender.rename(first[300:])
    engine.until(all_done, "the first 500 ran", 120)
    second = [f"second-{n}" for n in range(500)]
    sender.rename(first[:150])
    sender.slowly(second[:250])
    some = "select count(*) > 520 from suimon.deliveries"
    engine.until(lambda: engine.one(some), "some of the second have arrived", 60)
    for worker in workers:
        worker.kill9()
    sender.slowly(second[250:])
    sender.rename(first[150:300])  # their first versions had their runs
    workers = [engine.worker() for _ in range(2)]
    sender.rename([f"third-{n}" for n in range(200)])
    sender.slowly([f"fourth-{n}" for n in range(200)])
    engine.until(all_done, f"all {len(sender.sent)} ran", 240)
    sender.rename(first[300:400])
    sender.slowly(first[400:])
    sender.rename(second[:50])
    sender.slowly(second[50:100])
    assert len(sender.sent) == 2_000
    engine.until(all_done, "all 2,000 ran", 240)
    outputs = Counter(row[0] for row in engine.sql(DONE))
    assert outputs == Counter(sender.sent)
    states = "select state, count(*) from suimon.deliveries group by state"
    assert engine.sql(states) == [("delivered", 2_000)]
    assert engine.one("select count(*) from suimon.runs") == 2_000
