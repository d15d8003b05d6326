"""The eight pipelines run to their end, as they are built in Python and as they stand in YAML.

Their tasks and both forms lie in `tests/data/eight`; two workers serve them, one for the GPU pool.
"""

from __future__ import annotations

import base64
import datetime as dt
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.counting_server import CountingServer
from support.engine import Engine

from suimon.db.connect import transaction
from suimon.run import approvals
from suimon.store import secret
from suimon.store.secret_key import KeyRing

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

DATA = Path(__file__).parents[1] / "data" / "eight"


def approve(engine: Engine, run: str, *, approved: bool, comment: str | None = None) -> None:
    def asked() -> bool:
        return bool(engine.sql("select 1 from suimon.approvals where run_id = %s", run))

    engine.until(asked, "the question to be asked")
    approvals.decide(engine.conn, run, "manager", approve=approved, by="mia", comment=comment)


def ended(engine: Engine, run: str, status: str = "succeeded") -> Any:
    return engine.wait(run, status).output


def skipped(engine: Engine, run: str) -> list[str]:
    rows = engine.sql(
        "select vertex from suimon.steps where run_id = %s and status = 'skipped' order by 1", run
    )
    return [row[0] for row in rows]


def stock(folder: Path) -> None:
    """Two files of orders: 3 due in January 2023, 67 in June."""
    folder.mkdir(parents=True)
    for month, count in ((1, 3), (6, 67)):
        due = pa.array([dt.datetime(2023, month, 1)] * count)  # noqa: DTZ001  (as files have it)
        pq.write_table(pa.table({"due": due}), folder / f"{month}.parquet")


TOKEN = "shop-token-5d1f0a"
KEY = base64.b64encode(bytes(range(32))).decode()


def place(engine: Engine, form: str, far: CountingServer) -> dict[str, str]:
    """The code of one form, with the address of the server; gives the worker's environment."""
    for part in ("tasks", form):
        shutil.copytree(DATA / part, engine.project.root, dirs_exist_ok=True)
    for file in engine.project.root.iterdir():
        if file.suffix in (".py", ".yaml"):
            file.write_text(file.read_text().replace("http://far.example", far.url))
    environment = {"SUIMON_ALLOW_ADDRESSES": "127.0.0.1", "SUIMON_SECRET_KEY": KEY}
    with transaction(engine.conn):
        secret.put(engine.conn, KeyRing.of(environment), "shop_token", TOKEN, by="test")
    return environment


@pytest.mark.parametrize("form", ["python", "yaml"])
def test_the_eight_run_to_their_end(engine: Engine, form: str) -> None:
    running = '{"state": "running", "percent": 50}'
    done = '{"state": "done", "url": "https://video.example/moon"}'
    answers = {
        "/orders": (200, '{"id": 7}'),
        "/refunds": (200, '{"paid": true}'),
        "/jobs": (200, '{"job": "j1"}'),
    }
    with CountingServer(
        answers=answers, script={"/jobs/j1": [running, done]}, bodies={'"amount":-1': 422},
        keep_headers=True,
    ) as far:  # fmt: skip
        environment = place(engine, form, far)
        the_eight(engine, environment)
        calls = far.calls()
    paths = [call.path for call in calls]
    counts = {path: paths.count(path) for path in sorted(set(paths))}
    assert counts == {
        "/alarms": 1, "/jobs": 1, "/jobs/j1": 2, "/orders": 39, "/refunds": 3, "/refusals": 1,
    }  # fmt: skip
    for call in calls:
        theirs = call.path in ("/refunds", "/refusals", "/alarms")
        assert (call.headers.get("authorization") == f"Bearer {TOKEN}") is theirs
    keys = [call.headers["idempotency-key"] for call in calls if call.method == "POST"]
    assert len(set(keys)) == len(keys)


def the_eight(engine: Engine, environment: dict[str, str]) -> None:
    engine.deploy()
    inbox = engine.project.root / "arrived"
    (inbox / "scans").mkdir(parents=True)
    lines = [f"{number:04},{number}" for number in range(39)]
    (inbox / "orders.csv").write_text("\n".join(["order_id,quantity", *lines, "0039,many", ""]))
    for name in ("b.png", "a.png", "notes.txt"):
        (inbox / "scans" / name).write_text(name)
    stock(engine.project.root / "lake" / "stock")
    engine.worker(slots=2, environment=environment)
    engine.worker(slots=1, pool="gpu")

    orders = engine.submit("import_orders", {"path": str(inbox / "orders.csv")})
    scans = engine.submit("scans", {"folder": str(inbox / "scans")})
    small = engine.submit("refund", {"body": {"order": "o1", "amount": 5}})
    large = engine.submit("refund", {"body": {"order": "o2", "amount": 500}})
    no = engine.submit("refund", {"body": {"order": "o3", "amount": 501}})
    broken = engine.submit("refund", {"body": {"order": "o4", "amount": -1}})
    busy = engine.submit("nightly_stock", {"scheduled_at": "2024-01-01T00:00:00Z"})
    quiet = engine.submit("nightly_stock", {"scheduled_at": "2023-03-01T00:00:00Z"})
    ledger = engine.submit("ledger", {"path": str(inbox / "orders.csv"), "event_id": "e1"})
    render = engine.submit("render", {"payload": {"prompt": "moon"}})
    month = engine.submit("month_end", {"scheduled_at": "2024-02-01T06:00:00+09:00"})
    approve(engine, large, approved=True)
    approve(engine, no, approved=False, comment="too much")

    report = ended(engine, orders)
    assert report["not_posted"] == ["0039,failed"]
    assert (report["total"], report["succeeded"]) == (40, 39)
    book = ended(engine, scans)
    assert [row["name"] for row in book["rows"]] == ["a.png", "b.png"]
    assert ended(engine, small)["json"] == {"paid": True}
    assert ended(engine, large)["status"] == 200
    assert skipped(engine, large) == ["alarm", "refused"]
    assert ended(engine, no) is None
    assert skipped(engine, no) == ["alarm", "paid"]
    ended(engine, broken, "failed")
    error = engine.run(broken).error
    assert (error["type"], error["status"]) == ("CallRefused", "422")
    assert error["message"] == "POST /refunds was answered with 422"
    assert ended(engine, busy) == {"alarm": {"text": "many late", "late": 70}, "calm": None}
    assert ended(engine, quiet) == {"alarm": None, "calm": {"text": "all well", "late": 3}}
    assert ended(engine, ledger) == 41
    assert ended(engine, render) == "https://video.example/moon"
    closed = ended(engine, month)
    (archived,) = engine.sql("select id::text from suimon.runs where pipeline = 'archive_month'")
    assert ended(engine, archived[0]) == {"archived": "2024-02-01T06:00:00+09:00"}
    assert closed == {"run_id": archived[0]}
