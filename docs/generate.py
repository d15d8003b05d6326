"""Writes the documents, and the parts of documents, that are made from the source: `make docs`.

    docs/states.md       from suimon/core/states.py
    docs/reasons.md      from suimon/core/reasons.py
    docs/errors.md       from the error classes and suimon/core/failures.py
    docs/operations.md   the tables between <!-- made: NAME --> and <!-- end -->
    docs/api.md          the same, from the routes of suimon/api

`python docs/generate.py --check` writes nothing and exits with 1 if something is out of date; a
test asks the same.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from suimon import errors
from suimon.api import app, problems
from suimon.core import failures, reasons, settings
from suimon.core.states import EDGES, TERMINAL, RunStatus
from suimon.errors import SuimonError

DOCS = Path(__file__).resolve().parent
MADE = "<!-- Made by docs/generate.py from {source}: change that, then `make docs`. -->"


def states() -> str:
    """The seven states and sixteen edges, as a diagram and as a table."""
    lines = [
        MADE.format(source="suimon/core/states.py"),
        "",
        "# States of a run",
        "",
        f"{len(RunStatus)} states and {len(EDGES)} edges. The database holds the same edges in",
        "`suimon.run_edges` and refuses every other one, whoever writes.",
        "",
        "```mermaid",
        "stateDiagram-v2",
        "    [*] --> queued",
        *(f"    {old} --> {new}" for old, new in EDGES),
        "```",
        "",
        "| from | to | what makes it happen |",
        "| --- | --- | --- |",
        *(f"| `{old}` | `{new}` | {why} |" for (old, new), why in EDGES.items()),
        "",
        f"Ended are {listed(sorted(TERMINAL))}: such a run",
        "stays as it is until an operator retries it, or something below it.",
        "",
        "Why a run does not run is another question: [reasons](reasons.md).",
    ]
    return "\n".join(lines) + "\n"


def reason_table() -> str:
    """Every reason why a run does not run: what is so, who holds it, what ends it."""
    lines = [
        MADE.format(source="suimon/core/reasons.py"),
        "",
        "# Why a run does not run",
        "",
        "`suimon runs why ID` says it in one sentence: what is so, who holds the run since when,",
        "and what ends it; with `--json` these are `text`, `held_by`, `since` and `ends`. The list",
        "is closed. `NAME` stands for who holds it: `limit:crm`, `no_worker:gpu`. A *stored*",
        "reason is written when the engine parks a run, a *derived* one is worked out when",
        "somebody looks.",
        "",
        "`suimon runs list --waiting` counts by reason, `suimon runs list --reason limit:crm`",
        "lists the runs (`--reason limit`: of all destinations), the metric is",
        "`suimon_runs_held`.",
        "",
        "| reason | what is so | held by | until | |",
        "| --- | --- | --- | --- | --- |",
        *(reason(word, one) for word, one in reasons.REASONS.items()),
    ]
    return "\n".join(lines) + "\n"


def reason(word: str, one: reasons.Reason) -> str:
    shown = f"{word}:NAME" if one.named else word
    told = reasons.of(shown)
    kind = "stored" if one.stored else "derived"
    return f"| `{shown}` | {told.says} | {told.held_by} | {told.ends} | {kind} |"


def listed(words: list[str]) -> str:
    quoted = [f"`{word}`" for word in words]
    return f"{', '.join(quoted[:-1])} and {quoted[-1]}"


def error_classes(root: type[SuimonError] = SuimonError) -> Iterator[type[SuimonError]]:
    """All error classes by code, without the base classes that nobody raises."""
    found = {root}
    waiting = [root]
    while waiting:
        below = waiting.pop().__subclasses__()
        found |= set(below)
        waiting += below
    raised = [one for one in found if not one.code.endswith("000") and "code" in vars(one)]
    return iter(sorted(raised, key=lambda one: one.code))


def error_table() -> str:
    """Codes, names and exit codes."""
    stored = failures.STORED.items()
    lines = [
        MADE.format(source="suimon/errors, suimon/api/refusals.py and core/failures.py"),
        "",
        "# Errors",
        "",
        "An error has a fact (one line), a detail (what was found) and a hint (what to do). Codes",
        "are stable; texts may change. With `--json` a command prints the error as one object with",
        "`code`, `message`, `detail`, `hint` and the fields named here.",
        "",
        "## Raised by commands, the client and the HTTP API",
        "",
        "Over HTTP an error is a problem document (`docs/api.md`) with the status named here.",
        "",
        "| code | name | exit code | HTTP | what it means | fields |",
        "| --- | --- | ---: | ---: | --- | --- |",
        *(class_row(one) for one in error_classes()),
        "| `SUI-0002` | Usage | 2 |  | A command was called in a way that it does not have. |  |",
        "",
        "## Stored in a run",
        "",
        "A run's `error` is an object with `type` and `message`. What a task raised has the type",
        "of the exception. These are the engine's own:",
        "",
        "| type | code | what it means |",
        "| --- | --- | --- |",
        *(f"| `{name}` | {quoted(one.code)} | {one.about} |" for name, one in stored),
        "",
        "## Exit codes",
        "",
        "The same for every command.",
        "",
        "| exit code | name |",
        "| ---: | --- |",
        "| 0 | done, or the run that was waited for has succeeded |",
        *(f"| {number} | {text} |" for number, text in EXITS.items()),
    ]
    return "\n".join(lines) + "\n"


def class_row(one: type[SuimonError]) -> str:
    about = (one.__doc__ or "").strip().splitlines()[0]
    fields = ", ".join(f"`{name}`" for name in one.fields)
    status = problems.STATUS[next(kind for kind in one.__mro__ if kind in problems.STATUS)]
    shown = status if status != 500 else ""
    return f"| `{one.code}` | {one.__name__} | {one.exit_code} | {shown} | {about} | {fields} |"


def quoted(code: str | None) -> str:
    return f"`{code}`" if code else ""


#: What the numbers of suimon/errors say; a test compares the numbers.
EXITS = {
    errors.EXIT_NEGATIVE: "the answer is no: a run failed, a definition is wrong",
    errors.EXIT_USAGE: "called wrongly, or given something that cannot be used",
    errors.EXIT_NOT_FOUND: "there is no such pipeline or run",
    errors.EXIT_FORBIDDEN: "not allowed",
    errors.EXIT_CONFLICT: "the state is not the one that the request needs",
    errors.EXIT_UNREACHABLE: "the database cannot be reached",
    errors.EXIT_GAVE_UP: "the time to wait is over; the run goes on",
    errors.EXIT_PARTLY: "some of it was done, some was not",
    errors.EXIT_CANCELLED: "the run that was waited for was cancelled",
    errors.EXIT_LIMITED: "a limit was reached and nothing was stored; ask again later",
    errors.EXIT_VERSION: "schema and package are of different versions",
    errors.EXIT_INTERRUPTED: "interrupted by Ctrl-C",
}


def environment() -> str:
    """The settings, as every command reads them."""
    lines = ["| variable | what it is for | default |", "| --- | --- | --- |"]
    for name, about, default in settings.described():
        shown = "" if default is None else f"`{seconds(default)}`"
        lines.append(f"| `{name}` | {about} | {shown} |")
    return "\n".join(lines)


def seconds(value: object) -> str:
    return f"{value:g}s" if isinstance(value, float) else str(value)


def routes() -> str:
    """Every address of the API with its methods, what they do and what they take."""
    document = app.make(app.Options("postgresql:///nowhere")).app.openapi()
    lines = ["| method | address | what it does | what it takes |", "| --- | --- | --- | --- |"]
    for path, methods in document["paths"].items():
        for method, about in methods.items():
            text = " ".join(about["description"].split())
            taken = _taken(document, about)
            lines.append(f"| `{method.upper()}` | `{path}` | {text} | {taken} |")
    return "\n".join(lines)


def _taken(document: dict[str, Any], about: dict[str, Any]) -> str:
    """The fields of its body, then its query; what it has to be given is in bold."""
    body = about.get("requestBody", {}).get("content", {}).get("application/json", {})
    schema = body.get("schema", {})
    references = [one["$ref"] for one in (schema, *schema.get("anyOf", [])) if "$ref" in one]
    name = references[0].rpartition("/")[2] if references else ""
    shape = document["components"]["schemas"].get(name, {})
    must = shape.get("required", [])
    names = [f"**{one}**" if one in must else one for one in shape.get("properties", {})]
    asked = [
        f"**?{one['name']}**" if one.get("required") else f"?{one['name']}"
        for one in about.get("parameters", [])
        if one["in"] == "query"
    ]
    return ", ".join(names + asked)


PARTS = {"environment": environment, "routes": routes}


def with_parts(text: str) -> str:
    """The document with everything between its marks made anew."""
    for name, make in PARTS.items():
        begin, end = f"<!-- made: {name} -->\n", "<!-- end -->"
        before, found, rest = text.partition(begin)
        if found:
            _, closed, after = rest.partition(end)
            assert closed, f"{begin.strip()} has no {end} behind it"
            text = f"{before}{begin}{make()}\n{end}{after}"
    return text


def documents() -> dict[Path, str]:
    """Every document that is made, or has made parts, as it should be."""
    made = {
        DOCS / "states.md": states(),
        DOCS / "reasons.md": reason_table(),
        DOCS / "errors.md": error_table(),
    }
    for path in sorted(DOCS.glob("*.md")):
        if path not in made:
            text = path.read_text(encoding="utf-8")
            if "<!-- made: " in text:
                made[path] = with_parts(text)
    return made


def main(arguments: list[str]) -> int:
    stale = [
        path
        for path, text in documents().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    for path in stale:
        if "--check" not in arguments:
            path.write_text(documents()[path], encoding="utf-8")
        sys.stdout.write(f"docs/{path.name}\n")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
