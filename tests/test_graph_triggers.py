"""Triggers as data: their fields, and the input that a run started by each of them has."""

from __future__ import annotations

from typing import Any

import pytest

from suimon import graph as graphs
from suimon.graph_triggers import FIELDS, INPUT


def told(*triggers: Any, **changes: Any) -> str:
    task = {"type": "TASK", "config": {"task": "m:f"}}
    raw = {"suimon": 1, "pipeline": "p", "vertices": {"a": task}, "triggers": list(triggers)}
    return "\n".join(mistake.render() for mistake in graphs.check({**raw, **changes}))


GOOD = [
    {"type": "FILE", "path": "in/*.csv", "settle": "5s", "order": "name", "mode": "auto"},
    {
        "type": "FILE",
        "path": "scans/*/READY",
        "dedupe": "content",
        "interval": "10s",
        "recursive": True,
        "ignore": ["*.bak"],
        "empty": "take",
        "followLinks": True,
        "done": "done/",
        "failed": "failed/",
    },
    {"type": "FILE", "path": "s3://bucket/in/*.csv", "mode": "poll"},
    {"type": "CRON", "cron": "*/5 8-18 * * MON-FRI", "tz": "Asia/Tokyo", "catchUp": "none"},
    {"type": "CRON", "cron": "@daily", "gap": "skip", "fold": "both"},
    {"type": "CRON", "cron": "0 9 * * 1#2", "tz": "Europe/Berlin", "jitter": "5m"},
    {"type": "EVERY", "every": "7d", "anchor": "2024-01-01T00:00:00+09:00"},
    {"type": "EVERY", "every": "1s", "catchUp": "all", "jitter": "500ms"},
    {"type": "EVENT", "event": "order.paid"},
    {"type": "WEBHOOK", "slug": "refunds", "secret": "file:/run/secrets/hook"},
    {"type": "WEBHOOK", "slug": "a", "preset": "gitlab", "secret": ["secret:new", "secret:old"]},
    {
        "type": "WEBHOOK",
        "slug": "a",
        "preset": "generic",
        "header": "X-Mac",
        "encoding": "base64",
        "algorithm": "sha512",
        "prefix": "v=",
        "timestampHeader": "X-At",
        "tolerance": "1m",
        "template": "{id}.{timestamp}.{body}",
        "keyHeader": "X-Id",
        "expects": "json",
        "maxBody": 4096,
    },
]


@pytest.mark.parametrize("trigger", GOOD, ids=lambda trigger: trigger["type"])
def test_a_trigger_is_stored_as_it_was_written(trigger: dict[str, Any]) -> None:
    assert told(trigger) == ""


@pytest.mark.parametrize(
    ("trigger", "said"),
    [
        ({"type": "CRONE"}, "unknown trigger type 'CRONE'; this version has CRON"),
        ({"type": "cron"}, 'did you mean "CRON"?'),
        ("FILE", "unknown trigger type 'FILE'"),
        ({}, "unknown trigger type None"),
        ({"type": ["CRON"]}, "unknown trigger type ['CRON']"),
        ({"type": "FILE"}, 'a FILE trigger needs "path"'),
        ({"type": "FILE", "path": "a", "setle": "1s"}, 'did you mean "settle"?'),
        ({"type": "FILE", "path": "a", "settle": "5"}, "is no duration"),
        ({"type": "FILE", "path": "a/*/../b"}, 'cannot go up with ".." behind a pattern'),
        ({"type": "FILE", "path": "ftp://a/*"}, "must be a path or the URL of a store"),
        ({"type": "FILE", "path": "s3:a/*"}, "must be a path or the URL of a store"),
        ({"type": "FILE", "path": "a", "ignore": "*.x"}, "must be a list of at most 100 patterns"),
        ({"type": "FILE", "path": "a", "dedupe": "name"}, 'one of "version", "content"'),
        ({"type": "FILE", "path": "s3://a/*", "done": "done"}, "not for stores"),
        ({"type": "FILE", "path": "s3://a/*", "mode": "watch"}, "tells nobody what arrives"),
        ({"type": "CRON", "cron": "1 2 3"}, "must be five fields"),
        ({"type": "CRON", "cron": "@noon"}, "must be five fields"),
        ({"type": "CRON", "cron": "* * * * *", "tz": "Mars/Base"}, "must be a time zone"),
        ({"type": "CRON", "cron": "* * * * *", "tz": "../../etc/passwd"}, "must be a time zone"),
        ({"type": "CRON", "cron": "* * * * *", "tz": 3}, "must be a time zone"),
        ({"type": "CRON", "cron": "* * * * *", "tz": "localtime"}, "must be a time zone"),
        ({"type": "CRON", "cron": "* * * * *", "tz": "posixrules"}, "must be a time zone"),
        ({"type": "CRON", "cron": "61 * * * *"}, "cron cannot be read: bad minute"),
        ({"type": "CRON", "cron": "0 0 * * 8"}, "cron cannot be read: bad day-of-week"),
        ({"type": "CRON", "cron": "0 0 30 2 *"}, "cron never comes"),
        ({"type": "CRON", "cron": "* * * * *", "jitter": "13h"}, "must be at most 12h"),
        ({"type": "CRON", "cron": "* * * * *", "catchUp": "some"}, 'one of "last", "all", "none"'),
        ({"type": "EVERY", "every": "7d", "anchor": "2024-01-01"}, "must be an instant"),
        ({"type": "EVERY", "every": "7d", "anchor": "0001-01-01T00:00:00Z"}, "between the years"),
        ({"type": "EVERY", "every": "999ms"}, "must be at least 1s"),
        ({"type": "EVERY", "every": "1m", "jitter": "2m"}, "longer than the rhythm"),
        ({"type": "EVENT", "event": "order.%"}, "must be a type of event like order.paid"),
        ({"type": "EVENT", "event": ""}, "must be a type of event like order.paid"),
        ({"type": "WEBHOOK", "slug": "A b"}, "must be lower-case letters"),
        ({"type": "WEBHOOK", "slug": "a", "secret": "hunter2"}, "must name a secret"),
        ({"type": "WEBHOOK", "slug": "a", "preset": "hub"}, 'one of "standard"'),
        ({"type": "WEBHOOK", "slug": "a", "secret": ["env:A", "pw"]}, "must name a secret"),
        ({"type": "WEBHOOK", "slug": "a", "secret": ["env:A"]}, "a list of two different ones"),
        ({"type": "WEBHOOK", "slug": "a", "secret": ["env:A"] * 2}, "a list of two different ones"),
        ({"type": "WEBHOOK", "slug": "a", "secret": ["env:A", 3]}, "must name a secret"),
        ({"type": "WEBHOOK", "slug": "a", "keyHeader": "X Id"}, "must be the name of a header"),
        ({"type": "WEBHOOK", "slug": "a", "maxBody": 16777217}, "from 1 to 16777216"),
        ({"type": "WEBHOOK", "slug": "a", "expects": "yaml"}, 'one of "any"'),
        ({"type": "WEBHOOK", "slug": "a", "header": "X-A"}, 'belongs to the preset "generic"'),
        (
            {"type": "WEBHOOK", "slug": "a", "preset": "generic", "template": "{timestamp}{body}"},
            'add "timestampHeader"',
        ),
        (
            {
                "type": "WEBHOOK",
                "slug": "a",
                "preset": "generic",
                "template": "{body}",
                "timestampHeader": "X-T",
            },
            "anybody could change it",
        ),
        (
            {"type": "WEBHOOK", "slug": "a", "preset": "generic", "template": "{x}"},
            "must have {body} once",
        ),
    ],
)
def test_a_wrong_trigger_says_what_is_wrong(trigger: Any, said: str) -> None:
    text = told(trigger)
    assert said in text
    assert "triggers[0]" in text


def test_a_literal_secret_is_not_repeated_in_the_message() -> None:
    assert "hunter2" not in told({"type": "WEBHOOK", "slug": "a", "secret": "hunter2"})


def reads(path: str, **parts: Any) -> dict[str, Any]:
    vertex = {"type": "TASK", "inputs": {"x": {"$ref": path}}, "config": {"task": "m:f"}, **parts}
    return {"vertices": {"a": vertex}}


@pytest.mark.parametrize(
    ("trigger", "path"),
    [
        ({"type": "CRON", "cron": "* * * * *"}, "path"),
        ({"type": "EVERY", "every": "1d"}, "folder"),
        ({"type": "FILE", "path": "a"}, "scheduled_at"),
        ({"type": "EVENT", "event": "e"}, "body"),
        ({"type": "WEBHOOK", "slug": "w"}, "payload"),
    ],
)
def test_a_vertex_cannot_read_what_a_door_does_not_bring(trigger: Any, path: str) -> None:
    """A cron start has no file: told when it is written, not when it runs at night."""
    text = told(trigger, **reads(f"input.{path}"))
    assert f"p: a: a run started by an {trigger['type']}" in text or (
        f"p: a: a run started by a {trigger['type']}" in text
    )
    assert f'has no input "{path}"' in text
    assert told(trigger, **reads(f"input.{INPUT[trigger['type']][0]}")) == ""
    assert told(**reads(f"input.{path}")) == ""


def test_conditions_outputs_and_lanes_read_the_input_too() -> None:
    cron = {"type": "CRON", "cron": "* * * * *"}
    condition = told(cron, **reads("input", when={"$ref": "input.go"}))
    assert 'a: a run started by a CRON trigger has no input "go"' in condition
    assert 'no input "file"' in told(cron, output={"$ref": "input.file"})
    lane = told(cron, concurrency={"limit": 1, "per": "customer.id"})
    assert 'concurrency: a run started by a CRON trigger has no input "customer"' in lane


def test_every_type_has_fields_and_an_input() -> None:
    assert set(FIELDS) == set(INPUT)


def test_more_triggers_than_anybody_needs_are_refused() -> None:
    assert "101 triggers; the limit is 100" in told(*[GOOD[0]] * 101)


def test_two_triggers_that_the_database_cannot_tell_apart_are_refused() -> None:
    hook = {"type": "WEBHOOK", "slug": "a"}
    assert "the same slug as triggers[0]" in told(hook, {**hook, "preset": "github"})
    daily = {"type": "CRON", "cron": "0 2 * * *"}
    assert "triggers[2]: the same cron and tz as triggers[1]" in told(
        hook, daily, {**daily, "tz": "UTC"}
    )
    assert told(hook, {**hook, "slug": "b"}, daily, {**daily, "tz": "Asia/Tokyo"}) == ""
