"""What requests may hold, and what answers look like; the OpenAPI document is made from it.

Unknown fields are refused, and nothing is converted: ``"5"`` is no number. Answers are written as
the service functions give them, with the names of ``--json``; the shapes here promise the fields
that programs may rely on, and names may be added to them.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from suimon.api.answers import MOST, PAGE
from suimon.core import labels as labelling
from suimon.run import acts, audit
from suimon.run.limits import MOST as HIGHEST

Status = Literal["queued", "running", "waiting", "succeeded", "failed", "timed_out", "cancelled"]
Stream = Literal["log", "stdout", "stderr", "note"]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Text = Annotated[str, Field(max_length=1000)]
Cursor = Annotated[str | None, Field(max_length=1000)]
Limit = Annotated[int, Field(ge=1, le=MOST)]
#: The highest position, claim and number of a piece: what an `int` of PostgreSQL holds.
HIGHEST_INT: Final = 2**31 - 1
#: The highest number of a row, as a JSON number that every language holds.
HIGHEST_ID: Final = 2**53 - 1


def _printable(name: str) -> str:
    if not name.strip() or not name.isprintable():
        msg = "must be printable text"
        raise ValueError(msg)
    return name


class Asked(BaseModel):
    """A body: strict, without unknown fields."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Query(BaseModel):
    """The parameters of a question; an unknown one is refused."""

    model_config = ConfigDict(extra="forbid")


class Act(Asked):
    """Who asks and why, for the audit record."""

    by: Annotated[str, Field(max_length=audit.ACTOR_CHARS), AfterValidator(_printable)] = "api"
    why: Annotated[str, Field(max_length=audit.WHY_CHARS)] = ""


# ------------------------------------------------------------------------------- questions


class Paged(Query):
    limit: Limit = PAGE
    cursor: Cursor = None


class RunsQuery(Paged):
    pipeline: Name | None = None
    status: list[Status] = Field(default_factory=list, max_length=7)
    label: list[Text] = Field(default_factory=list, max_length=10)
    reason: Annotated[str | None, Field(max_length=600)] = None


class ChildrenQuery(Paged):
    vertex: Name | None = None
    status: list[Status] = Field(default_factory=list, max_length=7)
    position: Annotated[int | None, Field(ge=0, le=HIGHEST_INT)] = None


class RunQuery(Query):
    wait: Annotated[float, Field(ge=0, le=60)] = 0.0


class LogsQuery(Query):
    after: Annotated[str | None, Field(pattern=r"^[0-9]{1,9}:[0-9]{1,18}$")] = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 200
    try_: Annotated[int | None, Field(alias="try", ge=1, le=HIGHEST_INT)] = None
    stream: Stream | None = None
    wait: Annotated[float, Field(ge=0, le=60)] = 0.0
    follow: bool = False
    seconds: Annotated[float, Field(gt=0, le=300)] = 60.0


class ArtifactQuery(Query):
    name: Annotated[str, Field(min_length=1, max_length=200)]
    vertex: Annotated[str | None, Field(min_length=1, max_length=200)] = None


class AuditQuery(Paged):
    run: Annotated[str | None, Field(min_length=6, max_length=40)] = None
    by: Text | None = None
    action: Text | None = None


class ApprovalsQuery(Query):
    run: Annotated[str | None, Field(min_length=6, max_length=40)] = None
    all: bool = False


class GraphQuery(Query):
    form: Literal["json", "text", "svg"] = "json"


class DoctorQuery(Query):
    held_s: Annotated[float, Field(ge=0, le=10_000_000)] = 300.0


# ------------------------------------------------------------------------------- bodies


class Start(Asked):
    pipeline: Name
    input: Any = Field(default_factory=dict)
    labels: Annotated[list[Text], Field(max_length=labelling.MOST)] = Field(
        default_factory=list, description="Like tenant:acme; quotas may count by them."
    )
    queue: bool = Field(
        default=False, description="Wait behind an unfinished run of a limited pipeline."
    )


class Retry(Act):
    failed_children: bool = False
    step: Name | None = None
    dry_run: bool = False


class Cancel(Act):
    dry_run: bool = False


class Rerun(Act):
    same_graph: bool = False


class Priority(Act):
    priority: Annotated[int, Field(ge=0, le=3)]
    only: bool = Field(default=False, description="The run itself, without what is below it.")


class Many(Act):
    """Either ids or a filter like ``pipeline=nightly,status=failed,since=2h``."""

    ids: Annotated[list[Text] | None, Field(min_length=1, max_length=acts.MANY_IDS)] = None
    filter: Text | None = None
    dry_run: bool = False
    limit: Annotated[int, Field(ge=1, le=acts.MANY_IDS)] = acts.MANY_IDS


class ManyRetry(Many):
    failed_children: bool = False


class Signal(Asked):
    data: Any = Field(default_factory=dict)
    by: Annotated[str, Field(max_length=audit.ACTOR_CHARS), AfterValidator(_printable)] = "api"


class Vote(Asked):
    by: Annotated[str, Field(max_length=audit.ACTOR_CHARS), AfterValidator(_printable)] = "api"
    comment: Annotated[str | None, Field(max_length=audit.WHY_CHARS)] = None


class Limits(Act):
    """Fields that are left out stay; null is unlimited, or never."""

    concurrency: Annotated[int | None, Field(ge=1, le=HIGHEST)] = None
    max_queued: Annotated[int | None, Field(ge=1, le=HIGHEST)] = None
    pause_after: Annotated[int | None, Field(ge=1, le=HIGHEST)] = None


class SpawnLimit(Act):
    """null: any number."""

    concurrency: Annotated[int | None, Field(ge=1, le=HIGHEST)]


class Deployment(Asked):
    pipelines: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=1000)]
    dry_run: bool = False


class Objects(Act):
    url: Annotated[str, Field(min_length=1, max_length=1000)] | None


class Prune(Asked):
    pipeline: Name | None = None
    dry_run: bool = False
    seconds: Annotated[int, Field(ge=1, le=20)] = 10


# ------------------------------------------------------------------------------- answers


class Thing(BaseModel):
    """An object; names may be added."""

    model_config = ConfigDict(extra="allow")


class Page(Thing):
    items: list[dict[str, Any]]
    next_cursor: str | None


class LogPage(Thing):
    items: list[dict[str, Any]]
    next_after: str | None
    over: bool


class Run(Thing):
    id: str
    pipeline: str
    status: Status | Literal["pruned"]


class Started(Run):
    duplicate: bool
    same_input: bool
    pruned: bool


class Problem(Thing):
    """RFC 9457, with the stable code of ``docs/errors.md``."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    hint: str | None = None
    request_id: str | None = None
