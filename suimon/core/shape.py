"""The shape of a graph: who comes after whom, who merges whom, what is folded into what.

Pure questions about one canonical graph, shared by the checker and the planner, so that what was
checked is what is run. A *folded* vertex has no step of its own: a READ or a generator TASK that
serves only as the `items` of a spawner is read inside that spawner's slot, as a stream.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping
from typing import Any, Final

from suimon.core import refs

Graph = Mapping[str, Any]

TASK: Final = "TASK"
READ: Final = "READ"
SPAWNER: Final = "SPAWNER"
MERGE: Final = "MERGE"
VERTEX_TYPES: Final = (MERGE, READ, SPAWNER, TASK)


def vertices(graph: Graph) -> Mapping[str, Mapping[str, Any]]:
    return graph.get("vertices") or {}


def kind(graph: Graph, vertex: str) -> str:
    return str(vertices(graph)[vertex].get("type"))


def of_kind(graph: Graph, wanted: str) -> list[str]:
    return sorted(name for name in vertices(graph) if kind(graph, name) == wanted)


def is_single(graph: Graph) -> bool:
    """Exactly one TASK and nothing else: such a run writes no step row."""
    return len(vertices(graph)) == 1 and len(of_kind(graph, TASK)) == 1


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


def dependencies(graph: Graph) -> dict[str, set[str]]:
    """vertex -> the vertices it needs first, by data or by `after`. Unknown names are left out."""
    known = vertices(graph)
    merged = merges(graph)
    needs: dict[str, set[str]] = {}
    for name, vertex in known.items():
        roots = {ref.root for ref in refs.find(vertex.get("inputs") or {})}
        roots.update(vertex.get("after") or [])
        if name in merged:
            roots.add(merged[name])
        needs[name] = {root for root in roots if root in known}
    return needs


def order(graph: Graph) -> list[str]:
    """Topological order. Ties go by id, but merges last: a merge parks the run, so whatever can be
    done beside the children is done first. Vertices on a cycle are left out."""
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
    return kind(graph, vertex) == MERGE, vertex


def item_source(graph: Graph, spawner: str) -> str | None:
    """The vertex that a spawner's `items` name as a whole, if they do."""
    items = (vertices(graph)[spawner].get("inputs") or {}).get("items")
    if items is None or not refs.is_reference(items):
        return None
    path = refs.parse_path(items[refs.REF])
    return str(path[0]) if len(path) == 1 and path[0] in vertices(graph) else None


def folded(graph: Graph, generators: Collection[str]) -> set[str]:
    """READs and generator TASKs that only serve as items of spawners: they get no step."""
    candidates = set(of_kind(graph, READ))
    candidates |= {name for name in of_kind(graph, TASK) if is_generator(graph, name, generators)}
    used_as_items: set[str] = set()
    used_as_value = {ref.root for ref in refs.find(graph.get("output"))}
    for name, vertex in vertices(graph).items():
        source = item_source(graph, name) if vertex.get("type") == SPAWNER else None
        for ref in refs.find(vertex.get("inputs") or {}):
            if source == ref.root and ref.place == ("items",):
                used_as_items.add(ref.root)
            else:
                used_as_value.add(ref.root)
    return (candidates & used_as_items) - used_as_value


def is_generator(graph: Graph, vertex: str, generators: Collection[str]) -> bool:
    return (vertices(graph)[vertex].get("config") or {}).get("task") in generators


def last_vertices(graph: Graph) -> list[str]:
    """The vertices that no other one needs: their results are the run's, if nothing is returned."""
    needed: set[str] = set().union(*dependencies(graph).values())
    return sorted(name for name in vertices(graph) if name not in needed)


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
