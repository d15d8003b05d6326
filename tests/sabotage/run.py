"""Apply each sabotage to a copy of the tree and see that its tests turn red: `make sabotage`.

The copy has an environment of its own, because slots and guardians import the package they are
installed with. First all chosen tests run on the untouched copy: a red one there proves nothing.
Bounded: each run of tests has `TEST_SECONDS`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from sabotages import SABOTAGES, Sabotage

ROOT = Path(__file__).resolve().parents[2]
TEST_SECONDS = 600
SKIPPED = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".*_cache", ".suimon", ".hypo*")


def tests(copy: Path, chosen: str) -> tuple[int, str]:
    """pytest's exit code on the copy, and its last line."""
    environment = {**os.environ, "SUIMON_EXAMPLES": "60"}
    command = [str(copy / ".venv/bin/python"), "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *chosen.split()], cwd=copy, env=environment, capture_output=True, text=True,
        timeout=TEST_SECONDS, check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    return done.returncode, lines[-1] if lines else done.stderr[-200:]


def try_one(copy: Path, sabotage: Sabotage) -> bool:
    """True if the tests noticed."""
    file = copy / sabotage.file
    true_text = file.read_text(encoding="utf-8")
    if true_text.count(sabotage.old) != 1:
        print(f"NO FIT   {sabotage.name}: not exactly once in {sabotage.file}")
        return False
    file.write_text(true_text.replace(sabotage.old, sabotage.new), encoding="utf-8")
    try:
        code, line = tests(copy, sabotage.tests)
    finally:
        file.write_text(true_text, encoding="utf-8")
    print(f"{'noticed ' if code == 1 else 'MISSED  '} {sabotage.name}: {line}", flush=True)
    return code == 1


def main(names: list[str]) -> int:
    wanted = [s for s in SABOTAGES if not names or any(n in s.name for n in names)]
    with tempfile.TemporaryDirectory(prefix="suimon-sabotage-") as folder:
        Path(folder).chmod(0o755)
        copy = Path(folder) / "tree"
        shutil.copytree(ROOT, copy, ignore=SKIPPED)
        subprocess.run(["make", "--silent", "setup"], cwd=copy, check=True)
        every = " ".join(sorted({t for s in wanted for t in s.tests.split()}))
        code, line = tests(copy, every)
        print(f"untouched: {line}", flush=True)
        if code != 0:
            return 1
        missed = [s.name for s in wanted if not try_one(copy, s)]
    print(f"{len(wanted) - len(missed)} of {len(wanted)} sabotages were noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
