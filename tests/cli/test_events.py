"""emit, deliveries and notify on the command line, with a real worker where something must run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.receivers import hook
from support.wait import wait_until

from cli.conftest import Cli, StartWorker
from suimon.db.connect import Connection

CODE = """
from suimon import Event, pipeline

@pipeline(concurrency=None, on=Event("order.*"))
def orders(payload: dict, type: str) -> int:
    return payload["n"] * 2

@pipeline(concurrency=None, on=Event("stock.*"))
def stock(payload: dict) -> int:
    return payload["n"]
"""


@pytest.fixture
def listening(deployed: Path, cli: Cli) -> Path:
    (deployed / "listening.py").write_text(CODE, encoding="utf-8")
    assert cli("deploy", str(deployed)).code == 0
    return deployed


def dead(conn: Connection, n: int, code: str = "SUI-3003") -> list[str]:
    """So many dead letters of the pipeline `orders`; their ids, oldest first."""
    rows = conn.execute(
        "insert into suimon.deliveries (id, trigger_id, state, source, input, code, why, ended_at)"
        " select suimon.uuid7(), t.id, 'dead', 'x', '{}', %s, 'row ' || i || ' is bad', now()"
        " from suimon.triggers t, generate_series(1, %s) i where t.pipeline = 'orders'"
        " returning id::text",
        (code, n),
    ).fetchall()
    return [row[0] for row in rows]


def states(conn: Connection) -> dict[str, int]:
    rows = conn.execute("select state, count(*) from suimon.deliveries group by 1").fetchall()
    return dict(rows)


def test_an_event_starts_those_who_listen(
    cli: Cli, listening: Path, worker: StartWorker, conn: Connection
) -> None:
    told = cli("emit", "order.paid", '{"n": 21}', "--key", "17", "--json")
    assert told.code == 0
    assert told.json["listeners"] == [{"pipeline": "orders", "trigger": "event:order.*"}]
    again = cli("emit", "order.paid", "-", "--key", "17", stdin=b'{"n": 1}')
    assert (again.out.strip(), again.err) == (told.json["event_id"], "told: orders\n")
    worker(path=listening)
    ask = "select output from suimon.runs where pipeline = 'orders' and status = 'succeeded'"
    wait_until(lambda: conn.execute(ask).fetchall() == [(42,)], 60, "one run with its result")
    listed = cli("deliveries", "list", "--json").json["deliveries"]
    assert [one["state"] for one in listed] == ["delivered"]
    new = cli("deliveries", "again", listed[0]["id"], "--as", "ann").out.strip()
    wait_until(lambda: len(conn.execute(ask).fetchall()) == 2, 60, "a second run")
    shown = cli("deliveries", "show", new, "--json").json
    assert (shown["state"], shown["input"]["payload"]) == ("delivered", {"n": 21})
    lines = dict(line.split(None, 1) for line in cli("deliveries", "show", new).out.splitlines())
    assert lines["duplicate"] == "no"
    assert re.fullmatch(r"\S+\.\d{3}\+00:00", lines["arrived_at"]), "milliseconds, as elsewhere"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["emit", "no type"], 2),
        (["emit", "a", "{"], 2),
        (["emit", "a", '{"x": NaN}'], 2),
        (["emit", "a", "--key", ""], 2),
        (["deliveries", "show", "00000000"], 3),
        (["deliveries", "show", "zz"], 2),
        (["deliveries", "requeue"], 2),
        (["deliveries", "requeue", "00000000", "--all"], 2),
        (["deliveries", "requeue", "--all", "--input", "{}"], 2),
        (["deliveries", "discard", "00000000"], 3),
        (["notify", "show", "nobody"], 3),
        (["notify", "add", "a"], 2),
        (["notify", "add", "a", "--webhook", "https://a.example/", "--secret", "hunter2"], 2),
        (["notify", "add", "a", "--webhook", "file:///etc/passwd", "--secret", "env:A"], 4),
        (["notify", "add", "a", "--email", "a@example.com", "--on", "lunch"], 2),
        (["notify", "again", "zz"], 2),
    ],
)
def test_bad_input_is_one_clear_error(cli: Cli, arguments: list[str], code: int) -> None:
    answer = cli(*arguments)
    assert (answer.code, answer.out) == (code, "")
    assert answer.err.startswith(("error: ", "Usage:"))
    assert "Traceback" not in answer.err
    assert "hunter2" not in answer.err


def test_dead_letters_are_listed_by_cause_and_requeued(
    cli: Cli, listening: Path, conn: Connection
) -> None:
    ids = dead(conn, 3) + dead(conn, 2, "OTHER")
    groups = cli("deliveries", "list", "--groups", "--json").json["groups"]
    assert [(one["count"], one["code"], one["cause"]) for one in groups] == [
        (3, "SUI-3003", "row # is bad"), (2, "OTHER", "row # is bad"),
    ]  # fmt: skip
    looked = cli("deliveries", "requeue", "--group", "OTHER", "--dry-run", "--json").json
    assert (looked["dead"], looked["requeued"]) == (2, 0)
    assert states(conn) == {"dead": 5}
    done = cli("deliveries", "requeue", "--group", "OTHER", "--as", "ann", "--why", "mended")
    assert (done.code, done.out) == (0, "2 dead letters\n2 requeued\n")
    given = '{"payload": {"n": 1}, "type": "order.x"}'
    edited = cli("deliveries", "requeue", ids[0], "--input", given, "--json")
    assert edited.json["requeued"] == 1
    assert cli("deliveries", "discard", ids[1], ids[2]).out == "2 discarded\n"
    assert cli("deliveries", "restore", ids[1]).out == "1 restored\n"
    assert states(conn) == {"waiting": 3, "dead": 1, "discarded": 1}
    assert cli("deliveries", "requeue", ids[0]).code == 5
    listed = cli("deliveries", "list", "--state", "dead", "--pipeline", "orders", "--since", "1h")
    assert ids[1] in listed.out
    acts = cli("audit", "list", "--json").json["audit"]
    assert {one["action"] for one in acts} >= {"requeue", "discard", "restore"}
    assert any(one["detail"].get("why") == "mended" for one in acts)


@pytest.mark.long
def test_a_worker_sends_what_failed_to_a_webhook(
    cli: Cli, deployed: Path, worker: StartWorker
) -> None:
    with hook() as receiver:
        env = {"HOOK": "whsec_c2VjcmV0", "SUIMON_ALLOW_ADDRESSES": f"127.0.0.1:{receiver.port}"}
        worker(env=env)
        added = cli("notify", "add", "ops", "--webhook", receiver.url, "--secret", "env:HOOK")
        assert added.code == 0, added.err
        tested = cli("notify", "test", "ops", "--json")
        assert (tested.code, tested.json["state"]) == (0, "sent")
        run = cli("run", "broken", "--input", '{"n": 1}').out.strip()

        def told() -> list[dict[str, Any]]:
            sent = cli("notify", "log", "--state", "sent", "--json").json["notices"]
            return [one for one in sent if one["kind"] == "run.failed"]

        (notice,) = wait_until(told, 100, "a notice that was sent")
        assert notice["payload"]["run_id"] == run
        assert [call.headers["webhook-id"] for call in receiver.calls].count(notice["id"]) == 1
    assert cli("notify", "disable", "ops").out == 'channel "ops" is disabled\n'
    assert cli("notify", "test", "ops").code == 5
    assert cli("notify", "remove", "ops").code == 0
    assert cli("notify", "list", "--json").json["channels"] == []


def test_a_test_without_anybody_who_sends_says_so(cli: Cli, conn: Connection) -> None:
    assert cli("notify", "add", "mail", "--email", "a@example.com").code == 0
    answer = cli("notify", "test", "mail", "--wait", "200ms")
    assert answer.code == 1
    assert "does a worker or a server run?" in answer.err
