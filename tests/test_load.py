"""Reading definitions: in a child without secrets, all mistakes at once, whatever the code does."""

from __future__ import annotations

import json
import os
import textwrap
from pathlib import Path

import pytest

from suimon.errors import DefinitionError, LoadFailed
from suimon.load import Loaded, load_path


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text).lstrip(), encoding="utf-8")
    return path


ORDERS = """
    from suimon import Pipeline, pipeline, task

    @task(retries=2)
    def post(order, tenant, ctx): ...

    @task
    def pages(shop):
        yield 1

    def helper(a): ...

    p = Pipeline("orders")
    p.spawn("each", post, p.run("pages", pages, p.input.shop), tenant="acme")

    @pipeline
    async def single(path, limit=3, **rest): ...
"""


def told(loaded: Loaded) -> str:
    return "\n".join(mistake.render() for mistake in loaded.mistakes)


def test_pipelines_and_tasks_below_a_folder_are_found(tmp_path: Path) -> None:
    """Modules are named below PATH; a pipeline imported by another module counts once."""
    write(tmp_path, "orders.py", ORDERS)
    write(tmp_path, "eu/more.py", "from orders import p, pages\nsame = p\n")
    loaded = load_path(tmp_path).check()
    assert [(p.name, p.source_file) for p in loaded.pipelines] == [
        ("orders", "orders.py"),
        ("single", "orders.py"),
    ]
    assert set(loaded.tasks) == {"orders:post", "orders:pages", "orders:single"}
    assert loaded.tasks["orders:pages"].generator
    single = loaded.tasks["orders:single"].to_json()
    assert single == {
        "generator": False,
        "async": True,
        "params": [{"name": "path", "required": True}, {"name": "limit", "required": False}],
        "rest": True,
        "first_item_param": "path",
    }


def test_one_file_is_a_path_too(tmp_path: Path) -> None:
    write(tmp_path, "other.py", "1/0")
    path = write(tmp_path, "orders.py", ORDERS)
    assert len(load_path(path).check().pipelines) == 2


def test_json_definitions_are_read_beside_python(tmp_path: Path) -> None:
    write(tmp_path, "orders.py", ORDERS)
    definition = {
        "suimon": 1,
        "pipeline": "from-json",
        "vertices": {
            "a": {"type": "TASK", "inputs": {"path": "x"}, "config": {"task": "orders:single"}}
        },
    }
    write(tmp_path, "def.json", json.dumps(definition))
    write(tmp_path, "data.json", '{"just": "data"}')
    write(tmp_path, "broken-data.json", "{")
    loaded = load_path(tmp_path).check()
    assert [p.name for p in loaded.pipelines] == ["from-json", "orders", "single"]


def test_all_mistakes_of_all_files_come_at_once(tmp_path: Path) -> None:
    write(tmp_path, "orders.py", ORDERS)
    write(tmp_path, "boom.py", "x = 1\ny = 1 / 0\n")
    write(tmp_path, "syntax.py", "def (\n")
    write(tmp_path, "leaves.py", "import sys\nsys.exit(3)\n")
    write(tmp_path, "csv.py", "")
    write(
        tmp_path,
        "wrong.py",
        """
        from orders import post, helper
        from suimon import Pipeline
        p = Pipeline("orders")
        p.run("a", post, 1)
        q = Pipeline("wrong")
        q.run("a", helper, 1)
        r = Pipeline("circle")
        r.spawn("s", "circle", [1])
        """,
    )
    write(
        tmp_path,
        "def.json",
        """{"suimon": 1, "pipeline": "j", "vertices": {
            "a": {"type": "TASK", "config": {"task": "orders:helper"}},
            "b": {"type": "TASK", "config": {"task": "orders:pots"}}}}""",
    )
    write(tmp_path, "def.yaml", "suimon: 1\npipeline: y\nvertices:\n  a: {type: TSK}\n")
    loaded = load_path(tmp_path)
    said = told(loaded)
    assert "boom.py:2: importing it raises ZeroDivisionError" in said
    assert "syntax.py:1: importing it raises SyntaxError" in said
    assert "leaves.py:2: importing it calls sys.exit(3)" in said
    assert 'csv.py: "csv" is a module of Python\'s standard library' in said
    assert 'wrong.py:4: orders: a.inputs.tenant: the task needs "tenant"' in said
    assert "wrong.py:6: wrong: a.config.task: helper is not a task" in said
    assert 'wrong.py:8: circle: s.config.pipeline: "circle" would wait for its own place' in said
    assert 'put @task on "orders:helper"' in said
    assert 'there is no task "orders:pots"' in said
    assert "def.yaml:4: y: a.type: unknown vertex type 'TSK'" in said
    assert 'def.json:3: j: b.config.task: there is no task "orders:pots"' in said
    with pytest.raises(DefinitionError):
        loaded.check()


@pytest.mark.parametrize(
    ("name", "text", "key"),
    [
        ("left.yaml", "pipeline: y\nvertices:\n  a: {type: TASK}\n", "suimon: 1"),
        ("left.json", '{"pipeline": "y", "vertices": {"a": {}}}', '"suimon": 1'),
    ],
)
def test_a_definition_without_its_key_is_told(
    tmp_path: Path, name: str, text: str, key: str
) -> None:
    """It is no mistake, since a folder may hold other files, and no silence either."""
    write(tmp_path, name, text)
    write(tmp_path, "compose.yaml", "services:\n  a:\n    vertices: 3\n")
    write(tmp_path, "data.json", '{"vertices": [1, 2]}')
    loaded = load_path(tmp_path).check()
    assert loaded.pipelines == ()
    (warning,) = loaded.warnings
    assert warning.startswith(f"{name} has vertices but not the key {key}")


def test_two_pipelines_of_one_name_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "a.py", ORDERS)
    write(tmp_path, "b.py", ORDERS)
    assert 'a pipeline "orders" is defined in a.py already' in told(load_path(tmp_path))


def test_an_annotation_that_cannot_be_understood_is_a_mistake(tmp_path: Path) -> None:
    write(
        tmp_path,
        "a.py",
        """
        from suimon import task
        @task
        def f(a: "Nowhere"): ...
        """,
    )
    assert "a.py:2: the annotations of" in told(load_path(tmp_path))


@pytest.mark.parametrize(
    "name",
    ["test_x.py", "x_test.py", "tests/x.py", ".hidden/x.py", "_private/x.py", "conftest.py",
     "env/x.py", "setup.py", "not-a-name.py"],
)  # fmt: skip
def test_what_is_no_pipeline_code_is_left_alone(tmp_path: Path, name: str) -> None:
    write(tmp_path, name, "1/0")
    write(tmp_path, "env/pyvenv.cfg", "")
    assert load_path(tmp_path).check().pipelines == ()


def test_prints_cannot_harm_the_answer(tmp_path: Path) -> None:
    """Neither print nor a write to descriptor 1, nor a program the code starts."""
    write(
        tmp_path,
        "loud.py",
        """
        import os, subprocess, sys, threading, time
        print("printed")
        os.write(1, b"{broken")
        sys.__stdout__.write("more")
        subprocess.run(["echo", "echoed"])
        threading.Thread(target=time.sleep, args=(60,)).start()
        """,
    )
    write(tmp_path, "orders.py", ORDERS)
    loaded = load_path(tmp_path, timeout=20)
    assert len(loaded.check().pipelines) == 2
    for word in ("printed", "{broken", "more", "echoed"):
        assert word in loaded.output


def test_the_child_knows_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment, open files and arguments: only PATH, HOME, LANG, TZ go through."""
    monkeypatch.setenv("SUIMON_DATABASE_URL", "postgresql://marker")
    monkeypatch.setenv("MARKER", "marker")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    out = tmp_path / "seen.txt"
    write(
        tmp_path,
        "nosy.py",
        f"""
        import os
        out = open({str(out)!r}, "w")
        for name, value in os.environ.items():
            out.write(f"env {{name}}={{value}}\\n")
        for fd in sorted(os.listdir("/proc/self/fd")):
            try:
                out.write(f"fd {{fd}} {{os.readlink('/proc/self/fd/' + fd)}}\\n")
            except OSError:
                pass
        out.write("args " + open("/proc/self/cmdline").read())
        out.close()
        """,
    )
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)  # noqa: FBT003 - positional only
    try:
        load_path(tmp_path).check()
    finally:
        os.close(reader)
        os.close(writer)
    seen = out.read_text()
    names = {line.split("=")[0][4:] for line in seen.splitlines() if line.startswith("env ")}
    assert "marker" not in seen
    assert names <= {"PATH", "HOME", "LANG", "TZ", "LC_CTYPE"}
    files = {line.split()[2] for line in seen.splitlines() if line.startswith("fd ")}
    foreign = {file for file in files if not file.startswith(("/dev/null", "pipe:", "/proc/"))}
    assert foreign == {str(out)}
    pipes = [line for line in seen.splitlines() if "pipe:" in line]
    assert len({line.split()[2] for line in pipes}) == 2  # the answer, and what is printed


@pytest.mark.parametrize(
    ("code", "said"),
    [
        pytest.param("import time\ntime.sleep(60)", "took longer than 1 s", marks=pytest.mark.slow),
        ("import os\nos._exit(7)", "left with status 7 without an answer"),
        ("import os\nos.kill(os.getpid(), 11)", "ended by signal 11"),
        ("import os\nprint('dying words', flush=True)\nos.abort()", "ended by signal 6"),
    ],
)
def test_a_child_that_gives_no_answer_is_a_clear_failure(
    tmp_path: Path, code: str, said: str
) -> None:
    write(tmp_path, "a.py", code)
    with pytest.raises(LoadFailed) as caught:
        load_path(tmp_path, timeout=1 if "sleep" in code else 20)
    assert said in caught.value.message
    if "dying" in code:
        assert "dying words" in (caught.value.detail or "")


def test_a_path_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match="there is no file or folder"):
        load_path(tmp_path / "nothing")


def test_the_working_directory_is_not_imported_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file named like a library in the current folder must not run with PATH's code."""
    here = tmp_path / "here"
    write(here, "orjson.py", "raise SystemExit('hijacked')")
    write(tmp_path, "code/orders.py", ORDERS)
    monkeypatch.chdir(here)
    assert len(load_path(tmp_path / "code").check().pipelines) == 2


def test_relative_files_begin_at_the_folder_of_path(tmp_path: Path) -> None:
    write(tmp_path, "names.txt", "from-file")
    write(
        tmp_path,
        "a.py",
        """
        from pathlib import Path
        from suimon import Pipeline, task
        @task
        def f(a): ...
        p = Pipeline(Path("names.txt").read_text())
        p.run("a", f, 1)
        """,
    )
    assert load_path(tmp_path).check().pipelines[0].name == "from-file"
