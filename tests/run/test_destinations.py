"""Destinations as people change them: declarations, edits, holds; and who may overtake whom."""

from __future__ import annotations

from typing import Any

import pytest
from support.lab import Lab

from suimon.core import reasons
from suimon.db.connect import Connection
from suimon.errors import Conflict, InputRefused, NotThere
from suimon.run import audit, deploy, destinations, pause


def declare(conn: Connection, **given: Any) -> list[tuple[str, str]]:
    return destinations.declare(conn, [destinations.Declared("crm", given)])


def limits(conn: Connection) -> tuple[Any, Any, Any]:
    found = destinations.show(conn, "crm")
    return found["rate"], found["burst"], found["concurrency"]


def test_a_changed_declaration_moves_the_limits_until_somebody_edits_them(conn: Connection) -> None:
    assert declare(conn, rate="20/s") == [("crm", "new")]
    assert declare(conn, rate="20/s") == []
    assert declare(conn, rate="40/s", concurrency=3) == [("crm", "changed")]
    assert limits(conn) == ("40/s", 10, 3)
    destinations.change(conn, "crm", {"rate": "10/s", "concurrency": None}, actor="mia", why="slow")
    assert limits(conn) == ("10/s", 3, None)
    assert declare(conn, rate="60/s", baseUrl="http://crm.example") == [("crm", "changed")]
    assert limits(conn) == ("10/s", 3, None)
    found = destinations.show(conn, "crm")
    assert found["base_url"] == "http://crm.example"  # the address is the code's
    assert found["declared"] == {"rate": "60/s", "baseUrl": "http://crm.example"}
    assert found["edited"]
    (record,) = audit.listed(conn, action="limits")
    assert record["target"] == "destination:crm"
    assert record["detail"]["from"] == {"rate": "40/s", "burst": 10, "concurrency": 3}
    assert record["detail"]["why"] == "slow"


def test_a_worker_that_starts_with_old_code_moves_nothing_back(conn: Connection) -> None:
    declare(conn, rate="20/s")
    found = [destinations.Declared("crm", {"rate": "5/s"}), destinations.Declared("new", {})]
    assert destinations.declare(conn, found, only_new=True) == [("new", "new")]
    assert limits(conn)[0] == "20/s"


def test_destinations_are_deployed_with_the_pipelines(lab: Lab) -> None:
    graph = {
        "suimon": 1,
        "pipeline": "p",
        "vertices": {"t": {"type": "TASK", "config": {"task": "m:f", "destination": "crm"}}},
    }
    made = deploy.Definition("p", "0" * 64, graph, {"crm": {"concurrency": 2}})
    deploy.deploy(lab.conn, [made])
    assert [one["name"] for one in destinations.listed(lab.conn)] == ["crm"]


def test_an_edit_names_the_version_that_it_replaces(conn: Connection) -> None:
    declare(conn, rate="20/s")
    version = destinations.show(conn, "crm")["version"]
    destinations.change(conn, "crm", {"rate": "30/s"}, actor="mia", expected=version)
    with pytest.raises(Conflict, match="have changed meanwhile"):
        destinations.change(conn, "crm", {"rate": "40/s"}, actor="ben", expected=version)
    assert limits(conn)[0] == "30/s"


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"rate": "fast"}, "a rate is written like"),
        ({"concurrency": 0}, "cannot be 0"),
        ({"burst": 1, "rate": "500/s"}, "less than can be kept to"),
        ({"speed": 1}, 'no limit "speed"'),
    ],
)
def test_a_wrong_edit_changes_nothing(conn: Connection, wanted: dict[str, Any], said: str) -> None:
    declare(conn, rate="20/s", concurrency=2)
    with pytest.raises(InputRefused, match=said):
        destinations.change(conn, "crm", wanted, actor="mia")
    assert limits(conn) == ("20/s", 5, 2)
    assert not audit.listed(conn, action="limits")


def test_a_hold_is_for_a_time_or_until_it_is_released(conn: Connection) -> None:
    declare(conn)
    held = destinations.hold(conn, "crm", seconds=60, actor="mia", why="they migrate")
    assert (held["held"], held["held_by"], held["held_why"]) == (True, "mia", "they migrate")
    assert held["held_until"] is not None
    assert destinations.hold(conn, "crm", seconds=None, actor="mia")["held_until"] is None
    assert destinations.release(conn, "crm", actor="ben")["changed"]
    assert not destinations.release(conn, "crm", actor="ben")["changed"]
    assert not destinations.show(conn, "crm")["held"]
    assert [one["action"] for one in audit.listed(conn)] == ["release", "hold", "hold"]


def test_a_pause_of_a_destination_is_shown_with_it(conn: Connection) -> None:
    declare(conn)
    pause.pause(conn, "destination:crm", "mia")
    assert destinations.show(conn, "crm")["paused_by"] == "mia"


def test_an_unknown_destination_is_told_with_the_nearest_one(conn: Connection) -> None:
    declare(conn)
    for act in (
        lambda: destinations.show(conn, "crn"),
        lambda: destinations.change(conn, "crn", {"rate": "1/s"}, actor="mia"),
        lambda: destinations.hold(conn, "crn", seconds=1, actor="mia"),
        lambda: destinations.release(conn, "crn", actor="mia"),
    ):
        with pytest.raises(NotThere) as caught:
            act()
        assert 'did you mean "crm"' in (caught.value.hint or "")


def test_the_reasons_are_in_the_closed_list() -> None:
    assert "suimon limits show crm" in reasons.explain("limit:crm")
    assert "nobody may call" in reasons.explain("held:crm")
