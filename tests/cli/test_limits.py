"""`suimon limits` as people meet it."""

from __future__ import annotations

import pytest

from cli.conftest import Cli
from suimon.db.connect import Connection
from suimon.errors import EXIT_CONFLICT, EXIT_NOT_FOUND, EXIT_USAGE
from suimon.run import destinations


@pytest.fixture
def crm(conn: Connection) -> None:
    given = {"rate": "20/s", "concurrency": 8, "auth": "secret:crm_token"}
    destinations.declare(conn, [destinations.Declared("crm", given)])


def test_list_show_set_hold_and_release(cli: Cli, crm: None) -> None:
    (one,) = cli("limits", "list", "--json").json["destinations"]
    assert (one["name"], one["rate"], one["burst"], one["concurrency"]) == ("crm", "20/s", 5, 8)
    assert "crm\t20/s\t5\t8\t0\t0" in cli("limits", "list").out
    changed = cli("limits", "set", "crm", "--rate", "10/s", "--concurrency", "none", "--as", "ada")
    assert changed.code == 0
    shown = cli("limits", "show", "crm", "--json").json
    assert (shown["rate"], shown["concurrency"], shown["edited"]) == ("10/s", None, True)
    assert "secret:crm_token" in cli("limits", "show", "crm").out
    held = cli("limits", "hold", "crm", "--for", "10m", "--why", "they migrate", "--as", "ada")
    assert "by ada: they migrate" in held.out
    assert cli("limits", "hold", "crm", "--json").json["held_until"] is None
    assert cli("limits", "release", "crm", "--json").json["changed"]
    shown = cli("audit", "list", "--json").json["audit"]
    acts = [one["action"] for one in shown if one["target"] == "destination:crm"]
    assert acts == ["release", "hold", "hold", "limits"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("show", "crn"), EXIT_NOT_FOUND, 'did you mean "crm"'),
        (("hold", "crn"), EXIT_NOT_FOUND, "there is no destination"),
        (("set", "crm"), EXIT_USAGE, "give --rate, --burst or --concurrency"),
        (("set", "crm", "--rate", "often"), EXIT_USAGE, "a rate is written like"),
        (("set", "crm", "--concurrency", "0"), EXIT_USAGE, "neither a whole number"),
        (("set", "crm", "--rate", "5/s", "--expect", "9"), EXIT_CONFLICT, "changed meanwhile"),
    ],
)
def test_what_cannot_be_done_is_one_error(
    cli: Cli, crm: None, arguments: tuple[str, ...], code: int, said: str
) -> None:
    answer = cli("limits", *arguments)
    assert answer.code == code, answer.err
    assert said in answer.err
    assert cli("limits", "show", "crm", "--json").json["rate"] == "20/s"
