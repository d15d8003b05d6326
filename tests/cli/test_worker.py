"""The worker's entry: no secret in sight, the right version or none, and a clean way out."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.wait import wait_until

from suimon.db.connect import Connection
from suimon.worker import processes

from .conftest import Cli, StartWorker, environment

MARKER = "MARKER_c0ffee_d0_not_show"

SPY = '''
"""A task that looks wherever it can."""

import os
from pathlib import Path

from suimon import pipeline


@pipeline(concurrency=None)
def spy() -> dict:
    found = {"environment": dict(os.environ), "files": os.listdir("/proc/self/fd")}
    seen = []
    pid = os.getpid()
    for _ in range(3):  # itself, the guardian, the worker
        for name in ("environ", "cmdline"):
            try:
                text = Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
                text = text.replace("\\0", "\\n")
            except OSError:
                text = "unreadable"
            seen.append([pid, name, text])
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()[1])
    links = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            pass
    return {**found, "seen": seen, "links": links}


try:
    Path(__file__).with_name("at-import").open("a").write(repr(dict(os.environ)) + "\\n")
except OSError:
    pass
'''


@pytest.fixture
def spy(tmp_path: Path) -> Path:
    folder = tmp_path / "spy"
    folder.mkdir()
    (folder / "spy.py").write_text(SPY, encoding="utf-8")
    return folder


def test_nothing_secret_is_in_sight_of_a_task(
    cli: Cli, worker: StartWorker, spy: Path, conn: Connection
) -> None:
    """C63: environment, open files, the parents' environment and command lines hold no URL."""
    assert cli("deploy", str(spy)).code == 0
    given = {"PGPASSWORD": MARKER, "AWS_SECRET_ACCESS_KEY": MARKER, "SUIMON_LISTEN_URL": cli.url}
    process = worker("--slots", "1", env=given, path=spy)
    answer = cli("run", "spy", "--wait", "--json")
    assert answer.code == 0, answer
    text = answer.out + (spy / "at-import").read_text()
    assert cli.url is not None
    password = cli.url.split(":")[2].split("@")[0]
    for secret in (MARKER, cli.url, password, "SUIMON_DATABASE_URL", "SUIMON_LISTEN_URL"):
        assert secret not in text
    for pid in (process.pid, *processes.descendants(process.pid)):
        for name in ("environ", "cmdline"):
            shown = Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
            assert MARKER not in shown
            assert password not in shown
            assert "SUIMON_DATABASE_URL" not in shown


def test_a_url_given_as_an_option_leaves_the_command_line(
    cli: Cli, deployed: Path, conn: Connection
) -> None:
    """--db may be used: the process that works does not show it."""
    assert cli.url is not None
    url, cli.url = cli.url, None
    with cli.started("worker", str(deployed), "--db", url) as process:
        rows = "select pid from suimon.workers where not dead"
        wait_until(lambda: conn.execute(rows).fetchall(), 60, "a worker that is known")
        assert conn.execute(rows).fetchall() == [(process.pid,)]
        shown = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode()
        assert url not in shown
        assert "--db" not in shown


def test_only_named_variables_reach_a_task(cli: Cli, worker: StartWorker) -> None:
    """--env NAME passes that one; all others stay outside."""
    worker("--slots", "1", "--env", "GREETING", env={"GREETING": "hello", "OTHER": "secret"})
    answer = cli("run", "told", "--input", '{"names": ["GREETING", "OTHER"]}', "--wait", "--json")
    assert answer.json["output"] == {"GREETING": "hello", "OTHER": None}


@pytest.mark.parametrize(
    "change",
    [
        "update suimon.meta set package_version = '0.0.0'",
        "update suimon.migrations set sha256 = 'other'",
        "insert into suimon.migrations (number, name, sha256) values (2, 'later', 'x')",
    ],
)
def test_c78_a_worker_of_another_version_claims_nothing(
    cli: Cli, deployed: Path, conn: Connection, change: str
) -> None:
    """C78: it leaves with 78, which systemd does not restart, and the run waits."""
    run = cli("run", "free", "--input", '{"n": 1}').out.strip()
    conn.execute(change)  # type: ignore[call-overload]
    answer = cli("worker", str(deployed))
    assert answer.code == 78
    assert "SUI-1002" in answer.err
    assert conn.execute("select count(*) from suimon.workers").fetchone() == (0,)
    row = conn.execute("select status::text, claim_no from suimon.runs where id = %s", [run])
    assert row.fetchone() == ("queued", 0)


def test_the_shipped_unit_does_not_restart_a_worker_of_another_version() -> None:
    """78 stands in RestartPreventExitStatus, and the slots are left to their guardian first."""
    unit = Path(__file__).parents[2] / "deploy" / "suimon-worker.service"
    lines = unit.read_text(encoding="utf-8").splitlines()
    assert "RestartPreventExitStatus=78" in lines
    assert "KillMode=mixed" in lines
    assert any(line.startswith("EnvironmentFile=") for line in lines)


def test_sigterm_finishes_what_runs_and_leaves_nothing(
    cli: Cli, worker: StartWorker, conn: Connection, tmp_path: Path
) -> None:
    """The run ends well after the signal; exit 0; no process and no folder is left."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    process = worker("--slots", "1", env={"TMPDIR": str(temporary)})
    assert list(temporary.iterdir())
    below = processes.descendants(process.pid)
    given = ["--input", f'{{"folder": "{tmp_path}"}}']
    run = cli("run", "gate", *given).out.strip()
    wait_until((tmp_path / "begun").exists, 60, "begun")
    process.send_signal(signal.SIGTERM)
    rows = "select draining from suimon.workers where not dead"
    wait_until(lambda: conn.execute(rows).fetchone() == (True,), 60, "draining")
    (tmp_path / "open").touch()
    assert process.wait(60) == 0
    assert cli("runs", "show", run, "--json").json["status"] == "succeeded"
    assert not [pid for pid in below if Path(f"/proc/{pid}").exists()]
    assert list(temporary.iterdir()) == []


def test_a_second_sigterm_gives_back_what_runs(
    cli: Cli, worker: StartWorker, conn: Connection, tmp_path: Path
) -> None:
    """The run is queued again, uncounted; the worker leaves at once."""
    process = worker("--slots", "1")
    run = cli("run", "gate", "--input", f'{{"folder": "{tmp_path}"}}').out.strip()
    wait_until((tmp_path / "begun").exists, 60, "begun")
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    wait_until(
        lambda: process.poll() is not None or process.send_signal(signal.SIGTERM), 60, "gone"
    )
    shown = cli("runs", "show", run, "--json").json
    assert (shown["status"], shown["interruptions"]) == ("queued", 0)


def test_the_folder_of_a_killed_worker_is_removed_by_the_next(
    worker: StartWorker, tmp_path: Path
) -> None:
    """Nothing piles up in TMPDIR; the folder of a worker that lives is left alone."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    first = worker("--slots", "1", env={"TMPDIR": str(temporary)})
    (killed,) = temporary.iterdir()
    first.kill()
    first.wait()
    assert killed.exists()
    worker("--slots", "1", env={"TMPDIR": str(temporary)})
    (second,) = temporary.iterdir()
    assert second != killed
    worker("--slots", "1", env={"TMPDIR": str(temporary)})
    assert len(list(temporary.iterdir())) == 2
    assert second.exists()


def _tiny_disk(folder: Path) -> bool:
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


@pytest.mark.needs_root
def test_c12_a_worker_on_a_tiny_disk_works_and_on_a_full_one_says_so(
    cli: Cli, worker: StartWorker, deployed: Path, tmp_path: Path
) -> None:
    """C12: 16 MB of temporary space are enough; without a byte left there is one clear error."""
    small = tmp_path / "small"
    small.mkdir()
    if os.geteuid() != 0 or not _tiny_disk(small):
        pytest.skip("mounting a small disk needs root and the right to mount")
    try:
        process = worker("--slots", "1", env={"TMPDIR": str(small)})
        assert cli("run", "free", "--input", '{"n": 1}', "--wait").code == 0
        _fill(small)
        assert cli("run", "free", "--input", '{"n": 2}', "--wait").code == 0
        process.terminate()
        assert process.wait(60) == 0
        _use_up_names(small)
        answer = cli("worker", str(deployed), env={"TMPDIR": str(small)})
        assert answer.code == 1
        assert "TMPDIR" in answer.err
        assert "Traceback" not in answer.err
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def _fill(folder: Path) -> None:
    """Until not a byte is left."""
    with contextlib.suppress(OSError), (folder / "filler").open("wb", buffering=0) as stream:
        while True:
            stream.write(b"x" * 4096)


def _use_up_names(folder: Path) -> None:
    """Not even a folder can be made any more."""
    subprocess.run(
        ["mount", "-o", "remount,size=16m,nr_inodes=2", str(folder)],
        check=False, capture_output=True,
    )  # fmt: skip
    try:
        for number in range(10_000):
            (folder / f"d{number}").mkdir()
    except OSError:
        return
    pytest.skip("this system does not count names on tmpfs")


def test_the_shipped_python_starts_without_the_working_folder_on_its_path() -> None:
    """A file `json.py` in the folder where a worker is started is not the worker's json."""
    from suimon.cli import clean

    assert clean.command(["worker"])[:4] == [sys.executable, "-P", "-m", "suimon.cli.main"]


def test_a_path_that_is_not_there_is_told_before_anything(cli: Cli) -> None:
    """Exit 1 and the path."""
    answer = cli("worker", "nowhere")
    assert answer.code == 1
    assert "nowhere" in answer.err


def test_the_environment_keeps_what_python_and_the_clock_need() -> None:
    """PATH, HOME, LANG, LC_*, TZ, TMPDIR, PYTHON* and what was named; nothing else."""
    from suimon.cli import clean

    kept = clean.environment(["MINE"])
    allowed = ("PATH", "HOME", "LANG", "TZ", "TMPDIR", "MINE")
    assert all(n in allowed or n.startswith(("LC_", "PYTHON")) for n in kept)
    assert kept["PATH"] == environment(None)["PATH"]
