"""The shape of a graph: who comes after whom, who merges whom, what is folded into what.

Pure questions about one canonical graph, shared by the checker and the planner, so that what was
checked is what is run. A *folded* vertex has no step of its own: a READ or a generator TASK that
serves only as the `items` of a spawner is read inside that spawner's slot, as a stream.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from suimon.core import refs

Graph = Mapping[str, Any]

TASK: Final = "TASK"
READ: Final = "READ"
SPAWNER: Final = "SPAWNER"
MERGE: Final = "MERGE"
WAIT: Final = "WAIT"
APPROVAL: Final = "APPROVAL"
START: Final = "START"
HTTP: Final = "HTTP"
SQL: Final = "SQL"
VERTEX_TYPES: Final = (APPROVAL, HTTP, MERGE, READ, SPAWNER, SQL, START, TASK, WAIT)

#: When a vertex runs, judged over all of its `after`. The first is the default.
SUCCEEDED: Final = "succeeded"
FAILED: Final = "failed"
ENDED: Final = "ended"
RUN_IF: Final = (SUCCEEDED, FAILED, ENDED)
CONDITIONS: Final = ("when", "unless")


def vertices(graph: Graph) -> Mapping[str, Mapping[str, Any]]:
    return graph.get("vertices") or {}


def kind(graph: Graph, vertex: str) -> str:
    return str(vertices(graph)[vertex].get("type"))


def of_kind(graph: Graph, wanted: str) -> list[str]:
    return sorted(name for name in vertices(graph) if kind(graph, name) == wanted)


def is_single(graph: Graph) -> bool:
    """Exactly one TASK and nothing else: such a run writes no step row.

    A task with a condition may be skipped, and one of another pool is a child there: both need one.
    """
    if len(vertices(graph)) != 1:
        return False
    name = next(iter(vertices(graph)))
    plain = not is_conditional(graph, name) and not in_other_pool(graph, name)
    return kind(graph, name) == TASK and plain


def is_conditional(graph: Graph, vertex: str) -> bool:
    """May this vertex be skipped although everything before it went well?"""
    return any(key in vertices(graph)[vertex] for key in (*CONDITIONS, "runIf"))


def in_other_pool(graph: Graph, vertex: str) -> bool:
    """Does this task run elsewhere than the pipeline itself?"""
    pool = graph.get("pool", "default")
    return bool((vertices(graph)[vertex].get("config") or {}).get("pool", pool) != pool)


def run_if(graph: Graph, vertex: str) -> str:
    """`succeeded`, `failed` or `ended`. A merge belongs to the branch of its spawner."""
    if kind(graph, vertex) == MERGE:
        spawner = merges(graph).get(vertex)
        return SUCCEEDED if spawner not in vertices(graph) else run_if(graph, str(spawner))
    return str(vertices(graph)[vertex].get("runIf", SUCCEEDED))


def parks(graph: Graph, vertex: str) -> bool:
    """Does the run wait here for something outside? Whatever can be done beside it goes first."""
    match kind(graph, vertex):
        case "MERGE" | "WAIT" | "APPROVAL":
            return True
        case "START":
            return bool((vertices(graph)[vertex].get("config") or {}).get("wait", True))
        case "TASK":
            return in_other_pool(graph, vertex)
        case _:
            return False


def references(vertex: Mapping[str, Any]) -> Iterator[tuple[str, refs.Reference]]:
    """(field, reference) of all that this vertex needs the value of, in a fixed order."""
    for field in ("inputs", *CONDITIONS):
        for ref in refs.find(vertex.get(field)):
            yield field, ref


def merges(graph: Graph) -> dict[str, str]:
    """MERGE id -> the spawner it merges. A MERGE without `after` takes the only spawner left."""
    named = {
        merge: str(vertices(graph)[merge]["after"][0])
        for merge in of_kind(graph, MERGE)
        if vertices(graph)[merge].get("after")
    }
    left = [name for name in of_kind(graph, SPAWNER) if name not in named.values()]
    unnamed = [merge for merge in of_kind(graph, MERGE) if merge not in named]
    if len(left) == 1 and len(unnamed) == 1:
        named[unnamed[0]] = left[0]
    return named


def merge_step(graph: Graph, spawner: str) -> str:
    """The step that merges this spawner: its MERGE vertex, or the implicit one at the run's end."""
    for merge, merged in merges(graph).items():
        if merged == spawner:
            return merge
    return implicit_merge(spawner)


def implicit_merge(spawner: str) -> str:
    """The step id of a strict merge nobody wrote. No vertex id holds a dot, so none can clash."""
    return f"{spawner}.merge"


def unmerged(graph: Graph) -> list[str]:
    """Spawners that no MERGE names; they are merged strictly at the end."""
    named = set(merges(graph).values())
    return [name for name in of_kind(graph, SPAWNER) if name not in named]


def data_needs(graph: Graph) -> dict[str, set[str]]:
    """vertex -> the vertices whose value it needs; for a MERGE, its spawner."""
    known = vertices(graph)
    merged = merges(graph)
    needs: dict[str, set[str]] = {}
    for name, vertex in known.items():
        roots = {ref.root for _, ref in references(vertex)}
        if name in merged:
            roots.add(merged[name])
        needs[name] = {root for root in roots if root in known}
    return needs


def after_needs(graph: Graph) -> dict[str, set[str]]:
    """vertex -> the vertices that it only comes after."""
    known = vertices(graph)
    return {
        name: {other for other in vertex.get("after") or [] if other in known}
        for name, vertex in known.items()
    }


def dependencies(graph: Graph) -> dict[str, set[str]]:
    """vertex -> the vertices it needs first, by data or by `after`. Unknown names are left out."""
    after = after_needs(graph)
    return {name: needs | after[name] for name, needs in data_needs(graph).items()}


def order(graph: Graph) -> list[str]:
    """Topological order. Ties go by id, but what parks the run goes last, so that whatever can be
    done beside it is done first. Vertices on a cycle are left out."""
    needs = dependencies(graph)
    open_needs = {name: len(before) for name, before in needs.items()}
    needed_by: dict[str, list[str]] = {name: [] for name in needs}
    for name, before in needs.items():
        for other in before:
            needed_by[other].append(name)
    ready = [_rank(graph, name) for name, number in open_needs.items() if not number]
    heapq.heapify(ready)
    result: list[str] = []
    while ready:  # each vertex enters once
        _, done = heapq.heappop(ready)
        result.append(done)
        for name in needed_by[done]:
            open_needs[name] -= 1
            if not open_needs[name]:
                heapq.heappush(ready, _rank(graph, name))
    return result


def _rank(graph: Graph, vertex: str) -> tuple[bool, str]:
    return parks(graph, vertex), vertex


def item_source(graph: Graph, spawner: str) -> str | None:
    """The vertex that a spawner's `items` name as a whole, if they do."""
    items = (vertices(graph)[spawner].get("inputs") or {}).get("items")
    if items is None or not refs.is_reference(items):
        return None
    path = refs.parse_path(items[refs.REF])
    return str(path[0]) if len(path) == 1 and path[0] in vertices(graph) else None


def folded(graph: Graph, generators: Collection[str]) -> set[str]:
    """READs and generator TASKs that only serve as items of spawners: they get no step."""
    candidates = {
        name
        for name in (*of_kind(graph, READ), *of_kind(graph, TASK))
        if kind(graph, name) == READ or is_generator(graph, name, generators)
        if not is_conditional(graph, name)
    }
    used_as_items: set[str] = set()
    used_as_value = {ref.root for ref in refs.find(graph.get("output"))}
    for name, vertex in vertices(graph).items():
        source = item_source(graph, name) if vertex.get("type") == SPAWNER else None
        for field, ref in references(vertex):
            if source == ref.root and field == "inputs" and ref.place == ("items",):
                used_as_items.add(ref.root)
            else:
                used_as_value.add(ref.root)
    return (candidates & used_as_items) - used_as_value


def is_generator(graph: Graph, vertex: str, generators: Collection[str]) -> bool:
    return (vertices(graph)[vertex].get("config") or {}).get("task") in generators


def last_vertices(graph: Graph) -> list[str]:
    """The vertices that no other one needs: their results are the run's, if nothing is returned.

    Branches for a failed run, or for every end, do not count: they follow the work.
    """
    needs = dependencies(graph)
    work = [name for name in vertices(graph) if run_if(graph, name) == SUCCEEDED]
    needed: set[str] = set().union(*(needs[name] for name in work))
    return sorted(name for name in work if name not in needed)


def downstream(graph: Graph, vertex: str) -> set[str]:
    """Everything that needs this vertex, directly or through others."""
    needs = dependencies(graph)
    found: set[str] = set()
    frontier = {vertex}
    while frontier:
        frontier = {name for name, before in needs.items() if before & frontier} - found
        found |= frontier
    return found


def affected_by_remerge(graph: Graph, spawner: str) -> set[str]:
    """The steps to forget when children of this spawner are retried: its merge and what follows."""
    if kind(graph, spawner) != SPAWNER:  # one child of its own: the vertex is its own merge
        return {spawner} | downstream(graph, spawner)
    merge = merge_step(graph, spawner)
    return {merge} | (downstream(graph, merge) if merge in vertices(graph) else set())


def cycles(graph: Graph) -> list[list[str]]:
    """One chain `[a, b, a]` (a needs b needs a) per knot of vertices that need each other."""
    needs = dependencies(graph)
    tied = set(vertices(graph)) - set(order(graph))
    found: list[list[str]] = []
    while tied:  # every vertex in `tied` needs another one in it, so each walk closes
        chain = [min(tied)]
        while (following := min(needs[chain[-1]] & tied)) not in chain:
            chain.append(following)
        found.append([*chain[chain.index(following) :], following])
        tied -= set(chain)
        while loose := {name for name in tied if not needs[name] & tied}:
            tied -= loose
    return found
