"""Requests of any kind against every route of the document: no 5xx while the database is up.

Bounded: a few examples for each route, right and wrong ones, with and without names that exist. The
answers have the form that the document promises.
"""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from support.lab import Lab
from support.serving import ServeProcess

from suimon.api import app

pytestmark = pytest.mark.slow

EXAMPLES = 6
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
DOCUMENT = app.make(app.Options("postgresql:///nowhere")).app.openapi()
OPERATIONS = {
    found.ok().label: found.ok()
    for found in schemathesis.openapi.from_dict(DOCUMENT).get_all_operations()
}


def ended_run(lab: Lab) -> str:
    """A run that is over: nobody waits for it, and nothing follows it for long."""
    run = lab.submit("free")
    worker = lab.worker()
    lab.end(worker, lab.claim_run(worker, run), "failed")
    return run


NAMES = ("run_id", "name", "vertex", "trigger")
ASKED = [(label, False) for label in sorted(OPERATIONS)] + [
    (label, True)
    for label, operation in sorted(OPERATIONS.items())
    if any(f"{{{name}}}" in operation.path for name in NAMES)
]


@pytest.mark.parametrize(("label", "known"), ASKED)
def test_no_request_is_a_server_error(
    server: ServeProcess, lab: Lab, label: str, known: bool
) -> None:
    operation = OPERATIONS[label]
    names: dict[str, Any] = dict(zip(NAMES, (ended_run(lab), "free", "t", 1), strict=True))
    wanted = {key: value for key, value in names.items() if f"{{{key}}}" in operation.path}
    cases = operation.as_strategy(
        GenerationMode.POSITIVE, path_parameters=wanted if known else None
    ) | operation.as_strategy(GenerationMode.NEGATIVE)

    @given(case=cases)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: Any) -> None:
        if "follow" in (case.query or {}):
            case.query.pop("follow")  # a stream that waits for more; it has its own test
        answer = case.call(base_url=server.base, timeout=60)
        case.validate_response(answer, checks=CHECKS)
        if answer.status_code >= 400:
            assert answer.headers["content-type"][0].startswith("application/problem+json")
            assert answer.json()["status"] == answer.status_code

    ask()
    assert server.running
    assert "a defect" not in server.log
