"""`suimon quotas` and labels as people meet them."""

from __future__ import annotations

import pytest
from support.lab import Lab

from cli.conftest import Cli
from suimon.db.connect import Connection
from suimon.errors import EXIT_CONFLICT, EXIT_LIMITED, EXIT_NOT_FOUND, EXIT_USAGE
from suimon.run import quotas


@pytest.fixture
def lab(conn: Connection) -> Lab:
    made = Lab(conn)
    made.pipeline("p")
    return made


def test_set_list_and_remove(cli: Cli, lab: Lab) -> None:
    made = cli("quotas", "set", "label:tenant:acme", "--per-day", "10", "--as", "ada")
    assert made.code == 0, made.err
    lab.submit("p", labels=["tenant:acme"])
    (one,) = cli("quotas", "list", "--json").json["quotas"]
    assert (one["name"], one["per_day"], one["per_month"]) == ("label:tenant:acme", 10, None)
    assert (one["day_used"], one["day_left"], one["reserved"]) == (1, 9, 0)
    assert "label:tenant:acme\tday\t10\t1\t0\t9\t" in cli("quotas", "list").out
    args = ("--per-day", "none", "--per-month", "1,000".replace(",", ""))
    changed = cli("quotas", "set", "label:tenant:acme", *args, "--json").json
    assert (changed["per_day"], changed["per_month"], changed["version"]) == (None, 1000, 2)
    gone = cli("quotas", "set", "label:tenant:acme", "--remove")
    assert gone.out.strip() == "label:tenant:acme is removed"
    assert cli("quotas", "list", "--json").json["quotas"] == []
    shown = cli("audit", "list", "--json").json["audit"]
    assert [one["target"] for one in shown] == ["quota:label:tenant:acme"] * 3


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("all",), EXIT_USAGE, "give --per-day or --per-month"),
        (("all", "--per-day", "5", "--remove"), EXIT_USAGE, "give --per-day or --per-month"),
        (("all", "--per-day", "none"), EXIT_USAGE, "would limit nothing"),
        (("all", "--per-day", "many"), EXIT_USAGE, "neither a whole number"),
        (("some", "--per-day", "5"), EXIT_USAGE, "cannot be the name of a quota"),
        (("pipeline:q", "--remove"), EXIT_NOT_FOUND, 'did you mean "pipeline:p"'),
        (("pipeline:p", "--per-day", "5", "--expect", "9"), EXIT_CONFLICT, "changed meanwhile"),
    ],
)
def test_what_cannot_be_done_is_one_error(
    cli: Cli, lab: Lab, arguments: tuple[str, ...], code: int, said: str
) -> None:
    quotas.change(lab.conn, "pipeline:p", {"per_day": 7}, actor="test")
    answer = cli("quotas", "set", *arguments)
    assert answer.code == code, answer.err
    assert said in answer.err
    (one,) = cli("quotas", "list", "--json").json["quotas"]
    assert (one["name"], one["per_day"], one["version"]) == ("pipeline:p", 7, 1)


def test_a_start_that_a_quota_refuses_says_what_is_left_and_when_it_renews(
    cli: Cli, lab: Lab
) -> None:
    quotas.change(lab.conn, "label:tenant:acme", {"per_day": 1}, actor="test")
    first = cli("run", "p", "--label", "tenant:acme", "--label", "team:a")
    assert first.code == 0, first.err
    refused = cli("run", "p", "--label", "tenant:acme")
    assert refused.code == EXIT_LIMITED
    assert 'quota "label:tenant:acme": 1 more run asked for, 0 of 1 a day left' in refused.err
    assert "SUI-3008" in refused.err
    assert cli("run", "p").code == 0
    run = first.out.strip()
    assert "team:a, tenant:acme" in cli("runs", "show", run).out
    listed = cli("runs", "list", "--label", "tenant:acme", "--json").json["runs"]
    assert [(one["id"], one["labels"]) for one in listed] == [(run, ["team:a", "tenant:acme"])]


def test_status_and_doctor_name_a_quota_that_is_nearly_used(cli: Cli, lab: Lab) -> None:
    quotas.change(lab.conn, "pipeline:p", {"per_month": 5}, actor="test")
    lab.submit_many("p", 3)
    assert "pipeline:p" not in cli("status").out
    lab.submit("p")
    assert "pipeline:p: 4 of 5 this month" in cli("status").out
    told = [one for one in cli("doctor", "--json").json["findings"] if one["check"] == "quotas"]
    assert [(one["level"], one["hint"]) for one in told] == [
        ("warn", "Raise it: suimon quotas set pipeline:p --per-month N")
    ]


def test_a_quota_of_a_pipeline_that_is_not_there_is_set_with_a_warning(cli: Cli, lab: Lab) -> None:
    made = cli("quotas", "set", "pipeline:pp", "--per-day", "10")
    assert made.code == 0
    assert 'warning: there is no pipeline "pp"; did you mean' in made.err.replace("Did", "did")
    assert not cli("quotas", "set", "pipeline:p", "--per-day", "10").err
