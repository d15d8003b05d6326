"""Doors without processes: a lab, and a pipeline with one trigger of a kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from support.lab import Lab
from support.lab_fixtures import lab, sessions

from suimon.db.connect import Connection
from suimon.triggers import fire
from suimon.triggers.fire import Arrival, Trigger

if TYPE_CHECKING:
    from .file_desk import Desk

__all__ = ["desk", "doors", "lab", "sessions"]

MakeDesk = Callable[..., "Desk"]


class Doors(Lab):
    """A lab whose pipelines have triggers."""

    def door(self, pipeline: str, trigger: dict[str, Any], **keys: Any) -> Trigger:
        """Deploy a pipeline with this one trigger; returns the trigger's row."""
        self.pipeline(pipeline, triggers=[trigger], **keys)
        found = [one for one in fire.live(self.conn, [trigger["type"]]) if one.pipeline == pipeline]
        assert len(found) == 1
        return found[0]

    def deliveries(self, trigger: Trigger, *columns: str) -> list[tuple[Any, ...]]:
        """These columns of the trigger's deliveries, in the order of their arrival."""
        named = ", ".join(columns or ("state",))
        where = f"select {named} from suimon.deliveries where trigger_id = %s order by seq"
        return self.conn.execute(where, (trigger.id,)).fetchall()  # type: ignore[arg-type]

    def queued(self, pipeline: str) -> list[Any]:
        """The inputs of its queued runs, oldest first."""
        rows = self.conn.execute(
            "select input from suimon.runs where pipeline = %s and status = 'queued' order by id",
            (pipeline,),
        )
        return [row[0] for row in rows]


def arrivals(*names: str) -> list[Arrival]:
    return [Arrival(orjson.dumps({"name": n}), f"thing {n}", key=f"k:{n}") for n in names]


@pytest.fixture
def doors(conn: Connection) -> Doors:
    return Doors(conn)


@pytest.fixture
def desk(doors: Doors, tmp_path: Path) -> Iterator[MakeDesk]:
    """`desk(settle="5s")` makes one FILE trigger on `tmp_path/in` and somebody who looks."""
    from .file_desk import Desk

    made: list[Desk] = []

    def make(pattern: str = "*.csv", inbox: str = "in", **spec: Any) -> Desk:
        made.append(Desk(doors, tmp_path / inbox, pattern, **spec))
        return made[-1]

    yield make
    for each in made:
        each.close()
