"""C69: signature headers with letters that no signature has."""

from __future__ import annotations

import statistics
import time

import pytest
from support.engine import Engine
from support.hooks import Answer, post
from support.servers import EngineServer

from suimon.core import clock, signatures

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

SECRET = "whsec_c2VjcmV0LW9mLWEtdGVzdA=="
CODE = """
from suimon import Webhook

@pipeline(concurrency=None, on=Webhook("signed", secret="env:HOOK_SECRET"))
def signed(body, **rest):
    return body
"""


def test_c69_signature_header_with_non_ascii_characters(engine: Engine) -> None:
    """**Do** send signatures: missing, empty, right, wrong, too short, 1 MB long, with an accent,
    in Japanese bytes, twice. **Must** accept only the right one; all others get the same text,
    take about the same time, start nothing, and are counted and logged without the secret.
    """
    engine.module("m", CODE)
    engine.deploy()
    server = EngineServer(engine, environment={"HOOK_SECRET": SECRET})
    body = b'{"n": 1}'
    how = signatures.scheme({"slug": "signed"})

    def right(name: str) -> dict[str, str]:
        now = int(clock.now().timestamp())
        return signatures.sign(how, SECRET, body, delivery_id=name, timestamp=now)

    def send(name: str, *values: str | bytes) -> Answer:
        made = right(name)
        made.pop("webhook-signature")
        headers = [*made.items(), *(("webhook-signature", value) for value in values)]
        return post(server.port, "signed", body, headers)

    good = right("x")["webhook-signature"]
    wrong = "v1," + "A" * (len(good) - 4) + "="
    faults: dict[str, tuple[str | bytes, ...]] = {
        "missing": (),
        "empty": ("",),
        "wrong": (wrong,),
        "too short": (good[:10],),
        "long": ("v1," + "A" * 1_000_000,),
        "accent": ("v1,é",),
        "Japanese": ("v1,署名".encode(),),
        "twice": ("right", wrong),
        "twice the other way": (wrong, "right"),
    }

    def try_fault(case: str, turn: int) -> Answer:
        name = f"{case.replace(' ', '-')}-{turn}"
        real = right(name)["webhook-signature"]
        return send(name, *(real if value == "right" else value for value in faults[case]))

    answers = {case: try_fault(case, 0) for case in faults}
    assert {answer.status for answer in answers.values()} == {401}
    assert len({answer.body for answer in answers.values()}) == 1
    assert b"Traceback" not in answers["accent"].body
    accepted = send("good", right("good")["webhook-signature"])
    assert accepted.status == 202
    assert engine.one("select count(*) from suimon.runs") == 1

    times: dict[str, list[float]] = {case: [] for case in faults}
    for turn in range(1, 12):
        for case in faults:
            began = time.perf_counter()
            assert try_fault(case, turn).status == 401
            times[case].append(time.perf_counter() - began)
    medians = [statistics.median(took) for took in times.values()]
    assert max(medians) - min(medians) < 0.25, times  # nothing that a stranger could measure

    refused = engine.sql(
        "select coalesce((detail ->> 'count')::int, 1), why, detail::text from suimon.deliveries"
        " where state = 'refused' and code = 'signature'"
    )
    assert sum(row[0] for row in refused) == engine.one(
        "select count from suimon.refusals where code = 'signature'"
    )
    assert SECRET not in str(refused)
    assert good not in str(refused)
    assert SECRET not in server.process.log
