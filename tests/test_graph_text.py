"""Definitions as text: YAML 1.2 without traps, bounded, mistakes with file, line and vertex."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suimon import graph as graphs
from suimon.errors import DefinitionError
from suimon.graph_text import MAX_VALUES, json_lines, line_of, yaml_documents
from suimon.load import load_path

HANDED = Path(__file__).parent / "data" / "handed"
HEAD = "suimon: 1\npipeline: p\n"
SMALL = HEAD + 'vertices:\n  a: {type: TASK, config: {task: "m:f"}}\n'


def values(text: str | bytes) -> list[Any]:
    return [document.value for document in yaml_documents(text, None)]


def refused(text: str | bytes, file: str | None = "p.yaml") -> str:
    with pytest.raises(DefinitionError) as caught:
        graphs.parse_yaml(text, file=file)
    return "\n".join(mistake.render() for mistake in caught.value.mistakes)


# --------------------------------------------------------------------------- what it means


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("on", "on"), ("off", "off"), ("yes", "yes"), ("no", "no"), ("y", "y"), ("NO", "NO"),
        ("12:30", "12:30"), ("190:20:30", "190:20:30"), ("2024-01-31", "2024-01-31"),
        ("010", 10), ("-007", -7), ("0o10", 8), ("0x1F", 31), ("0b11", "0b11"), ("1_000", "1_000"),
        ("+3", 3), ("1.50", 1.5), (".5", 0.5), ("5.", 5.0), ("1e3", 1000.0), ("1e", "1e"),
        ("true", True), ("False", False), ("TRUE", True), ("tRUE", "tRUE"),
        ("null", None), ("~", None), ("Null", None), ("nULL", "nULL"), ("None", "None"),
        ("=", "="), ("<<", "<<"), ("0.1.2", "0.1.2"), ("5s", "5s"), ("2s..5m", "2s..5m"),
        ('"010"', "010"), ("'true'", "true"), ('"\\u00e9"', "é"), ("m:f", "m:f"),
    ],
)  # fmt: skip
def test_a_word_means_what_yaml_1_2_says(written: str, meant: Any) -> None:
    """The core schema: no dates, no sixties, no octal surprise, no yes that is true."""
    for text in (f"a: {written}", f"{{a: [{written}]}}"):
        value = values(text)[0]["a"]
        value = value[0] if isinstance(value, list) else value
        assert (value, type(value)) == (meant, type(meant))


@pytest.mark.parametrize("key", ["on", "no", "12:30", "<<", "yes", "a b"])
def test_keys_are_the_words_that_stand_there(key: str) -> None:
    assert values(f"{key}: 1") == [{key: 1}]


@pytest.mark.parametrize("key", ["1", "true", "null", "~", "1.5", "[a]", "{a: 1}", "? [a]\n"])
def test_a_key_that_is_no_text_is_refused(key: str) -> None:
    assert "a key must be text" in refused(f"{key}: 1")


def test_several_documents_are_several_definitions() -> None:
    """An empty document, like the one after a last `---`, is none."""
    text = "---\n" + SMALL + "---\n" + SMALL.replace("pipeline: p", "pipeline: q") + "---\n"
    assert [graph["pipeline"] for graph in graphs.parse_yaml(text)] == ["p", "q"]


def test_yaml_and_json_of_one_meaning_have_one_hash() -> None:
    as_json = '{"suimon":1,"pipeline":"p","vertices":{"a":{"type":"TASK","config":{"task":"m:f"}}}}'
    (from_yaml,) = graphs.parse_yaml(SMALL)
    assert graphs.graph_hash(from_yaml) == graphs.graph_hash(graphs.parse(as_json))
    assert graphs.parse_yaml("\ufeff" + SMALL) == [from_yaml]
    assert graphs.parse_yaml(SMALL.replace("\n", "\r\n")) == [from_yaml]
    assert graphs.parse_yaml(as_json) == [from_yaml]


def test_an_alias_stands_for_a_copy() -> None:
    text = HEAD + (
        'vertices:\n  a: &a {type: TASK, config: &c {task: "m:f", retries: 2}}\n'
        "  b: *a\n  c: {type: TASK, after: [a, b], config: *c}\n"
    )
    (graph,) = graphs.parse_yaml(text)
    assert graph["vertices"]["a"] == graph["vertices"]["b"]
    assert graph["vertices"]["c"]["config"] == {"task": "m:f", "retries": 2}


# --------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            HEAD + "a: !!python/object/apply:os.system [id]",
            "p.yaml:3: the tag tag:yaml.org,2002:py",
        ),
        (HEAD + "a: !!str 5", "p.yaml:3: the tag tag:yaml.org,2002:str is not allowed"),
        (HEAD + "a: !mine 5", "p.yaml:3: the tag !mine is not allowed"),
        (HEAD + "a: ! 5", "p.yaml:3: the tag ! is not allowed"),
        (HEAD + "pipeline: q", 'p.yaml:3: the key "pipeline" stands twice'),
        (HEAD + "a: &a [*a]", "p.yaml:3: the alias *a names nothing that is complete before it"),
        (HEAD + "a: *b", "p.yaml:3: the alias *b names nothing"),
        (HEAD + "a: .inf", "p.yaml:3: .inf is no JSON number"),
        (HEAD + "a: .NaN", "p.yaml:3: .NaN is no JSON number"),
        (HEAD + "a: 1e999", "p.yaml:3: 1e999 is too large"),
        (HEAD + "a: " + "9" * 5000, "p.yaml:3: a number of 5,000 characters"),
        (HEAD + "a: 12345678901234567.89", "p.yaml:3: 12345678901234567.89 cannot be kept"),
        (HEAD + "a: +1e-400", "p.yaml:3: +1e-400 cannot be kept exactly as a number"),
        (HEAD + "a: [1, 2", "the definition is not valid YAML"),
        (HEAD + "a: 'x", "the definition is not valid YAML"),
        (HEAD + "\tb: 1", "p.yaml:3: the definition is not valid YAML"),
        (HEAD + "a: \x00", "the definition is not valid YAML"),
        (b"\xff\xfea\x00", "not valid UTF-8 at byte 0"),
        ("%YAML 1.1\n---\n" + SMALL, "another YAML than 1.2"),
        ("", "there is no definition in the text"),
        ("# nothing\n---\n", "there is no definition in the text"),
        ("just words", "a definition is a JSON object, not str"),
        ("- 1", "a definition is a JSON object, not list"),
        (HEAD + "vertices:\n  a:\n    type: TASK\n    config:", "null is not allowed here"),
    ],
)
def test_what_a_definition_may_not_hold(text: str | bytes, said: str) -> None:
    assert said in refused(text)


def test_mistakes_name_file_line_and_vertex() -> None:
    text = """# a comment
suimon: 1
pipeline: p
pool: Bad Pool
triggers:
  - type: FILE
    settle: 5x
vertices:
  first:
    type: TASK
    inputs:
      x: {deep: [1, {$ref: nowhere.y}]}
    config:
      task: "m:f"
      retries: many
  second: {type: NOTEBOOK}
---
suimon: 1
pipeline: q
vertices:
  a: {type: TASK, config: {tsk: 1}}
"""
    lines = refused(text).splitlines()
    wanted = [
        "p.yaml:4: p: pool: pool must be",
        "p.yaml:7: p: triggers[0].settle: settle is wrong",
        'p.yaml:6: p: triggers[0].path: a FILE trigger needs "path"',
        "p.yaml:15: p: first.config.retries: retries must be",
        "p.yaml:16: p: second.type: unknown vertex type 'NOTEBOOK'",
        'p.yaml:21: q: a.config.tsk: unknown key "tsk"',
        'p.yaml:21: q: a.config.task: a TASK needs "task"',
    ]
    assert len(lines) == len(wanted)
    assert all(line.startswith(want) for line, want in zip(lines, wanted, strict=True))
    sound = text.replace("many", "3").replace(
        "{type: NOTEBOOK}", '{type: TASK, config: {task: "m:f"}}'
    )
    assert "p.yaml:12: p: first.inputs.x.deep.1: there is no vertex" in refused(sound)


def test_mistakes_in_json_name_their_line_too() -> None:
    text = (
        '{\n\t"suimon": 1,\n\t"pipeline": "p",\n\t"vertices": {\n\t\t"a": {\n'
        '\t\t\t"type": "TASK",\n\t\t\t"config": {"task": "m:f",\n\t\t\t\t"retries": -1}}}}'
    )
    with pytest.raises(DefinitionError) as caught:
        graphs.parse(text, file="p.json")
    assert caught.value.mistakes[0].render().startswith("p.json:8: p: a.config.retries: ")


def test_a_line_is_that_of_the_nearest_thing_around() -> None:
    lines = json_lines('{"vertices": {\n"a": {"config": {\n"b": [1,\n2]}}}}')
    assert line_of(lines, "a", "config.b[1]") == 4
    assert line_of(lines, "a", "config.c") == 2
    assert line_of(lines, "gone", None) == 1
    assert line_of(lines, None, "$.vertices.a.config.b[0]") == 3
    assert line_of({}, "a", "x") is None


# --------------------------------------------------------------------------- bounds


BOMBS = {
    "a bomb of aliases": HEAD.encode() + (HANDED / "yaml_alias_bomb.yaml").read_bytes(),
    "fifty megabytes": b"suimon: 1\na: [" + b"x," * (25 * 1024 * 1024) + b"x]",
    "ten thousand levels": b"suimon: 1\na: " + b"[" * 10_000 + b"]" * 10_000,
    "ten thousand levels of blocks": b"suimon: 1\n" + b"- " * 10_000 + b"x",
    "ten thousand mappings": b"suimon: 1\na: " + b"{a: " * 10_000 + b"1" + b"}" * 10_000,
    "a python object": b"suimon: 1\na: !!python/object/apply:os.system ['touch executed']",
    "many values": b"suimon: 1\na: [" + b"x," * (MAX_VALUES + 1) + b"x]",
    "many documents": b"suimon: 1\n" + b"---\nx\n" * 100_000,
    "many anchors": b"suimon: 1\na: [" + b"&a [*a]," * 50_000 + b"x]",
}


@pytest.mark.parametrize("what", BOMBS)
def test_c76_a_file_that_explodes_is_refused_at_once(what: str) -> None:
    """Within two seconds, by its first hundred thousand values, its size or its depth."""
    started_at = time.monotonic()
    said = refused(BOMBS[what])
    assert time.monotonic() - started_at < 2
    assert said
    assert len(said) < 1000 or what == "many documents"


def test_c76_the_loader_refuses_it_and_stays_small(tmp_path: Path) -> None:
    """The file as it was handed over, by the door of the command line, measured from outside."""
    code = (
        "import resource, sys\nfrom suimon.load import load_path\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "for path in sys.argv[1:]: print(load_path(path).mistakes[0].render())\n"
        "children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, children - before)\n"
    )
    shutil.copy(HANDED / "yaml_alias_bomb.yaml", tmp_path)
    for name in ("fifty megabytes", "a python object", "many values"):
        (tmp_path / f"{name}.yaml").write_bytes(BOMBS[name])
    found = subprocess.run(
        [sys.executable, "-c", code, *sorted(path.name for path in tmp_path.iterdir())],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    ).stdout.splitlines()
    assert "yaml_alias_bomb.yaml:6: the text unfolds into more than 100,000 values" in found[3]
    assert "the limit is 1,048,576" in found[1]
    assert max(int(kilobytes) for kilobytes in found[-1].split()) < 100 * 1024
    assert not (tmp_path / "executed").exists()


def test_below_a_folder_only_definitions_are_read(tmp_path: Path) -> None:
    """YAML that is something else is left alone; what has the key `suimon` at its top is not."""
    (tmp_path / "compose.yml").write_text("services: {a: {image: x}}\n")
    (tmp_path / "bomb.yaml").write_bytes((HANDED / "yaml_alias_bomb.yaml").read_bytes())
    (tmp_path / "notes.yaml").write_text("a:\n  suimon: 1\n")
    assert load_path(tmp_path).mistakes == ()
    (tmp_path / "m.py").write_text("from suimon import task\n@task\ndef f(): ...\n")
    (tmp_path / "p.yml").write_text(SMALL)
    loaded = load_path(tmp_path).check()
    assert [(one.name, one.source_file) for one in loaded.pipelines] == [("p", "p.yml")]
    (tmp_path / "twice.yaml").write_text("---\n" + SMALL)
    told = load_path(tmp_path).mistakes[0].render()
    assert told == 'twice.yaml:3: p: pipeline: a pipeline "p" is defined in p.yml already'


def test_mistakes_that_only_the_code_shows_have_a_line(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("from suimon import task\n@task\ndef g(a): ...\n")
    (tmp_path / "p.yaml").write_text(SMALL + "  b: {type: TASK, config: {task: m:g}}\n")
    told = "\n".join(mistake.render() for mistake in load_path(tmp_path).mistakes)
    assert 'p.yaml:4: p: a.config.task: there is no task "m:f"' in told
    assert 'p.yaml:5: p: b.inputs.a: "m:g" needs "a"' in told


def test_a_webhook_without_a_secret_is_warned_about(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("from suimon import task\n@task\ndef f(): ...\n")
    (tmp_path / "p.yaml").write_text(SMALL)
    assert load_path(tmp_path).warnings == ()
    (tmp_path / "p.yaml").write_text(SMALL + "triggers: [{type: WEBHOOK, slug: e}]\n")
    (warning,) = load_path(tmp_path).warnings
    assert warning == "p: /webhooks/e has no secret; it is answered on loopback only"


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.text("ab:#-{}[]&*!|>'\"%@` \n", max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("ab:#&* ", max_size=3), inner, max_size=3)
    ),
)


@given(st.dictionaries(st.text("ab", min_size=1, max_size=2), plain, min_size=1, max_size=3))
def test_json_text_means_the_same_as_yaml(value: Any) -> None:
    """Every JSON text is YAML: both readers give one value."""
    assert values(json.dumps(value)) == [value]


@given(st.text("ab:-?#&*![]{}|>'\"%@`, \n\t0.", max_size=60))
def test_any_text_gives_values_or_a_mistake(text: str) -> None:
    found, mistakes = graphs.read_all(text, file="x.yaml", yaml=True)
    assert found or mistakes
    assert all(mistake.file == "x.yaml" for mistake in mistakes)
