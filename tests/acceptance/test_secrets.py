"""User code sees no database URL, no key, nothing of its worker's environment; and no process that
holds the URL imports user code.
"""

from __future__ import annotations

import os
import subprocess
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from support.engine import COMMAND, Engine

pytestmark = pytest.mark.acceptance

MARKER = "marker-3f9c1e"
KEY = "a2V5IG9mIHRoaXJ0eS10d28gYnl0ZXMsIG5vIG1vcmU="

LOOKS = '''
def text(name):
    try:
        with open(name, "rb") as file:
            return file.read(1_000_000).replace(bytes(1), b" ").decode("utf-8", "backslashreplace")
    except OSError as error:
        return "unreadable: " + str(error)

def links(folder):
    found = []
    for name in os.listdir(folder):
        try:
            found.append(os.readlink(folder + "/" + name))
        except OSError as error:
            found.append("unreadable: " + str(error))
    return found

def parent_of(pid):
    return int(text("/proc/%d/stat" % pid).rsplit(") ", 1)[1].split()[1])

@pipeline(concurrency=None)
def looks():
    """Everything a process can read about itself and the two above it."""
    seen = {"environ": dict(os.environ), "folder": [os.getcwd(), os.listdir()]}
    pid = os.getpid()
    for who in ("slot", "guardian", "worker"):
        base = "/proc/%d/" % pid
        seen[who] = {name: text(base + name) for name in ("environ", "cmdline", "status")}
        seen[who]["fd"] = links(base + "fd")
        pid = parent_of(pid)
    own = "/proc/self/"
    seen["self"] = {name: text(own + name) for name in ("environ", "cmdline", "maps", "mountinfo")}
    return seen
'''

IMPORTED = """
note("imports", os.getpid(), os.getppid(), json.dumps(dict(os.environ)).replace(" ", ""))

def parent_of(pid):
    with open("/proc/%d/stat" % pid) as file:
        return int(file.read().rsplit(") ", 1)[1].split()[1])

def links(folder):
    return [os.readlink(folder + "/" + name) for name in os.listdir(folder)
            if os.path.lexists(folder + "/" + name)]

with open("/proc/self/environ", "rb") as file:
    note("started-with", file.read().replace(bytes(1), b" ").decode().replace(" ", "|"))
note("sockets", os.getpid(), len([link for link in links("/proc/self/fd") if "socket" in link]))
"""


def secrets_of(engine: Engine) -> list[str]:
    """What must not be seen: the URL, its password, the marker, the key."""
    password = unquote(urlsplit(engine.url).password or "")
    assert password
    return [engine.url, password, MARKER, KEY, "SUIMON_DATABASE_URL"]


def check_unseen(engine: Engine, seen: Any) -> None:
    shown = str(seen)
    for secret in secrets_of(engine):
        assert secret not in shown, f"{secret[:20]}... was seen in {around(shown, secret)}"


def around(text: str, secret: str) -> str:
    place = text.index(secret)
    return text[max(0, place - 80) : place + 20]


def test_c63_environment_of_the_engine_visible_to_step_code(engine: Engine) -> None:
    """**Set up** an engine started with its database address, a key and a marker in the
    environment. **Do** print environment, command line, open files of the step and of the
    processes above it, the working folder. **Must** show none of them; only the documented
    variables; no inherited open file or socket of the engine.
    """
    engine.module("m", LOOKS)
    engine.deploy()
    worker = engine.command_worker(
        slots=1, env={"MARKER": MARKER, "SUIMON_SECRET_KEY": KEY, "GRANTED": "yes"}
    )
    seen = engine.wait(engine.submit("looks")).output
    check_unseen(engine, seen)
    documented = {"PATH", "HOME", "LANG", "TZ", "TMPDIR", "SUIMON_INSIDE_SLOT", "LC_CTYPE"}
    extra = {name for name in seen["environ"] if not name.startswith("PYTHON")} - documented
    assert not extra, extra
    assert "worker" in seen["worker"]["cmdline"]
    opened = seen["slot"]["fd"]
    assert not [link for link in opened if "socket" in link], opened
    assert str(worker.pid) not in seen["slot"]["cmdline"]


def test_a_variable_named_by_the_operator_is_passed_on(engine: Engine) -> None:
    engine.module("m", LOOKS)
    engine.deploy()
    engine.command_worker("--env", "GRANTED", slots=1, env={"GRANTED": "yes", "MARKER": MARKER})
    seen = engine.wait(engine.submit("looks")).output
    assert seen["environ"]["GRANTED"] == "yes"
    check_unseen(engine, seen)


def test_no_process_with_the_url_imports_user_code(engine: Engine) -> None:
    """A module writes down what the process that imports it has: deploy, worker and slots."""
    engine.module("m", LOOKS)
    engine.module("noted", IMPORTED)
    env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    env |= {"SUIMON_DATABASE_URL": engine.url, "MARKER": MARKER, "SUIMON_SECRET_KEY": KEY}
    done = subprocess.run(
        [*COMMAND, "deploy", str(engine.project.root)],
        env=env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    by_deploy = len(engine.project.lines("imports"))
    assert by_deploy >= 1
    worker = engine.command_worker(slots=2, env={"MARKER": MARKER, "SUIMON_SECRET_KEY": KEY})
    engine.wait(engine.submit("looks"))
    imports = engine.project.lines("imports")
    assert len(imports) >= by_deploy + 2, "the slots import it"
    check_unseen(engine, imports)
    check_unseen(engine, engine.project.lines("started-with"))
    assert str(worker.pid) not in {line[0] for line in imports}
    sockets = engine.project.lines("sockets")
    assert {line[1] for line in sockets} == {"0"}, "an inherited socket"


def test_dev_imports_user_code_in_children_only(engine: Engine) -> None:
    engine.module("m", LOOKS)
    engine.module("noted", IMPORTED)
    env = {"MARKER": MARKER, "SUIMON_SECRET_KEY": KEY}
    dev = engine.command("dev", str(engine.project.root), env=env)
    imports = engine.noted("imports", 2)
    check_unseen(engine, imports)
    check_unseen(engine, engine.project.lines("started-with"))
    assert str(dev.pid) not in {line[0] for line in imports}
    dev.term()
    dev.wait()
