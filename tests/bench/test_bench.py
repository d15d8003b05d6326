"""The benchmark is a command that people run: it does the work, checks it, and says so when it
cannot. No test asks for a speed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def bench(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=ROOT, env={**os.environ, "SUIMON_DATABASE_URL": url}, text=True,
        capture_output=True, timeout=100, check=False,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.acceptance
def test_a_fan_out_is_measured_and_its_results_are_read_back(server_url: str) -> None:
    """A real worker runs it to its end; the figures are complete and stand on standard output."""
    done = bench(server_url, "fanout", "drain", "--quick", "--children", "300", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["machine"]["cores"]
    assert told["machine"]["PostgreSQL"]
    for name, label in (("fanout", "whole fan-out"), ("drain", "drained")):
        scenario = told["scenarios"][name]
        assert scenario["problem"] is None
        assert label in [one["label"] for one in scenario["figures"]]
        assert name in done.stderr, "progress goes to standard error"


def test_a_scenario_that_does_not_exist_is_told_with_those_that_do() -> None:
    done = bench("postgresql://nobody@localhost:1/nothing", "fanuot")
    assert done.returncode == 2
    assert "fanout" in done.stderr
    assert not done.stdout
