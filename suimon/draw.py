"""A graph as a picture: text for a terminal, SVG for a page.

Vertices stand in layers: each below all that it needs. Within a layer they are ordered so that
lines cross little (the mean place of what is above, then of what is below, a few times). A line
that spans several layers gets a place of its own in each, so that it does not run through boxes.
The same graph gives the same bytes; everything a person wrote is escaped.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final

from suimon.core import refs, shape
from suimon.core.shape import Graph

#: Places for long lines; above that they are drawn straight, and the picture is no help anyway.
MAX_BENDS: Final = 5_000
_SWEEPS: Final = 4
_WIDTH, _HEIGHT, _BEND_WIDTH = 190, 54, 24
_GAP_X, _GAP_Y, _MARGIN = 26, 52, 20
_SHOWN_CHARS: Final = 26

_FILL: Final = {
    shape.APPROVAL: "#fdf0d5",
    shape.MERGE: "#e4dcf5",
    shape.READ: "#dcefe0",
    shape.SPAWNER: "#d9e8fb",
    shape.START: "#d9e8fb",
    shape.HTTP: "#fbe9d9",
    shape.SQL: "#dcefe0",
    shape.TASK: "#ffffff",
    shape.WAIT: "#fdf0d5",
}
_STYLE: Final = (
    "text{font:13px system-ui,sans-serif;fill:#1c2733}"
    ".k{font-size:11px;fill:#5a6775}.e{font-size:10px;fill:#5a6775}"
    "rect{stroke:#7d8b99;stroke-width:1.2}"
    "path{fill:none;stroke:#7d8b99;stroke-width:1.3}"
    ".o{stroke-dasharray:5 4}.b{stroke:#b3402a}.h{fill:#7d8b99;stroke:none}"
)
_HEAD_OF_ARROW: Final = (
    '<defs><marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
    'orient="auto"><path class="h" d="M0 0 8 4 0 8z"/></marker></defs>'
)


@dataclass(frozen=True, slots=True)
class _Link:
    """`after` only orders; a branch for failures is drawn in another colour."""

    above: str
    below: str
    ordering: bool
    branch: bool
    label: str


@dataclass(slots=True)
class _Node:
    """A vertex, or the place of a long line in one layer (then it is no vertex)."""

    name: str
    layer: int
    is_bend: bool = False
    x: float = 0.0
    up: list[str] = field(default_factory=list)
    down: list[str] = field(default_factory=list)

    @property
    def width(self) -> int:
        return _BEND_WIDTH if self.is_bend else _WIDTH


# --------------------------------------------------------------------------- text


def text(graph: Graph) -> str:
    """One line per vertex, in the order of their steps: name, type, what it does, what it needs."""
    links = _links(graph)
    rows: list[tuple[str, str, str, str]] = []
    for name in shape.order(graph):
        needs = [
            one.above + (f" ({one.label})" if one.label else "")
            for one in links
            if one.below == name
        ]
        arrow = "<- " + ", ".join(needs) if needs else ""
        rows.append((name, shape.kind(graph, name), _does(graph, name), arrow))
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    lines = [
        "  ".join([*(part.ljust(width) for part, width in zip(row, widths, strict=False)), row[3]])
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)


def _does(graph: Graph, vertex: str) -> str:
    """What a vertex does, in a few words."""
    config: Mapping[str, Any] = shape.vertices(graph)[vertex].get("config") or {}
    inputs: Any = shape.vertices(graph)[vertex].get("inputs") or {}
    match shape.kind(graph, vertex):
        case shape.TASK | shape.SPAWNER | shape.START:
            return str(config.get("task") or config.get("pipeline") or "")
        case shape.HTTP:
            return f"{config.get('method', 'GET')} {config.get('destination', '')}"
        case shape.SQL:
            return " ".join(str(config.get("query", "")).split())
        case shape.READ:
            path = inputs.get("path")
            return _reference(path) if refs.is_reference(path) else str(path)
        case shape.WAIT if "timer" in config:
            return f"for {config['timer']}"
        case shape.WAIT if "signal" in config:
            return f'for the signal "{config["signal"]}"'
        case shape.WAIT:
            return f"until {_reference(inputs.get('until'))}"
        case shape.APPROVAL:
            return str(config.get("title") or config.get("role") or "")
        case _:
            return ""


def _reference(value: Any) -> str:
    if not refs.is_reference(value):
        return str(value)
    return ".".join(str(part) for part in refs.parse_path(value[refs.REF]))


def _links(graph: Graph) -> list[_Link]:
    """Every pair of a vertex and one it needs, with the condition that hangs on it."""
    found: list[_Link] = []
    data, after = shape.data_needs(graph), shape.after_needs(graph)
    for name in shape.order(graph):
        vertex = shape.vertices(graph)[name]
        conditions: dict[str, list[str]] = {}
        for key in shape.CONDITIONS:
            if key in vertex:
                path = _reference(vertex[key])
                conditions.setdefault(path.partition(".")[0], []).append(f"{key} {path}")
        run_if = vertex.get("runIf")
        for other in sorted(data[name] | after[name]):
            labels = conditions.get(other, [])
            branch = bool(run_if) and other in after[name]
            if branch:
                labels = [*labels, f"if {run_if}"]
            ordering = other not in data[name]
            found.append(_Link(other, name, ordering, branch, ", ".join(labels)))
    return found


# --------------------------------------------------------------------------- SVG


def svg(graph: Graph) -> str:
    """The graph as one SVG document."""
    links = _links(graph)
    nodes, paths = _layers(graph, links)
    rows = _ordered(nodes)
    width = _place(rows, nodes)
    height = 2 * _MARGIN + len(rows) * (_HEIGHT + _GAP_Y) - _GAP_Y if rows else 2 * _MARGIN
    name = escape(str(graph.get("pipeline", "")))
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
            f'width="{width:g}" height="{height:g}" role="img" aria-label="{name}">'
        ),
        f"<title>{name}</title><style>{_STYLE}</style>",
        _HEAD_OF_ARROW,
    ]
    for link in links:
        parts += _line(link, paths[link.above, link.below], nodes)
    for row in rows:
        parts += [_box(graph, node) for node in row if not node.is_bend]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _layers(
    graph: Graph, links: list[_Link]
) -> tuple[dict[str, _Node], dict[tuple[str, str], list[str]]]:
    """Nodes with their layers, and for each link the nodes it passes through."""
    needs = shape.dependencies(graph)
    nodes: dict[str, _Node] = {}
    for name in shape.order(graph):
        layer = max((nodes[other].layer + 1 for other in needs[name]), default=0)
        nodes[name] = _Node(name, layer)
    paths: dict[tuple[str, str], list[str]] = {}
    bends = 0
    for link in links:
        first, last = nodes[link.above].layer, nodes[link.below].layer
        between: list[str] = []
        if bends + last - first <= MAX_BENDS:
            for layer in range(first + 1, last):
                bend = f"{link.above}>{link.below}>{layer}"  # no vertex id holds a ">"
                nodes[bend] = _Node(bend, layer, is_bend=True)
                between.append(bend)
        bends += len(between)
        path = [link.above, *between, link.below]
        paths[link.above, link.below] = path
        for upper, lower in itertools.pairwise(path):
            nodes[upper].down.append(lower)
            nodes[lower].up.append(upper)
    return nodes, paths


def _ordered(nodes: dict[str, _Node]) -> list[list[_Node]]:
    """The layers, each in an order in which lines cross little."""
    number = max((node.layer for node in nodes.values()), default=-1) + 1
    rows: list[list[_Node]] = [[] for _ in range(number)]
    for node in nodes.values():
        rows[node.layer].append(node)
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        place = {node.name: float(i) for row in rows for i, node in enumerate(row)}
        for row in rows if downwards else reversed(rows):
            key = {}
            for node in row:
                near = node.up if downwards else node.down
                mean = sum(place[one] for one in near) / len(near) if near else place[node.name]
                key[node.name] = mean
            row.sort(key=lambda node: (key[node.name], node.name))
            place.update({node.name: float(i) for i, node in enumerate(row)})
    return rows


def _place(rows: list[list[_Node]], nodes: dict[str, _Node]) -> float:
    """Give each node the x of its middle; returns the width of the picture."""
    widths = [sum(node.width + _GAP_X for node in row) - _GAP_X for row in rows]
    total = max(widths, default=0)
    for row, width in zip(rows, widths, strict=True):
        x = _MARGIN + (total - width) / 2
        for node in row:
            nodes[node.name].x = x + node.width / 2
            x += node.width + _GAP_X
    return float(total + 2 * _MARGIN)


def _line(link: _Link, path: list[str], nodes: dict[str, _Node]) -> list[str]:
    """A curve from box to box through the places between them, and its label."""
    points = [(nodes[path[0]].x, _top(nodes[path[0]]) + _HEIGHT)]
    for bend in path[1:-1]:
        points += [(nodes[bend].x, _top(nodes[bend])), (nodes[bend].x, _top(nodes[bend]) + _HEIGHT)]
    points.append((nodes[path[-1]].x, _top(nodes[path[-1]])))
    drawn = f"M{points[0][0]:g} {points[0][1]:g}"
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        middle = (y0 + y1) / 2
        drawn += f"C{x0:g} {middle:g} {x1:g} {middle:g} {x1:g} {y1:g}"
    classes = " ".join(["o"] * link.ordering + ["b"] * link.branch)
    attribute = f' class="{classes}"' if classes else ""
    parts = [f'<path{attribute} d="{drawn}" marker-end="url(#a)"/>']
    if link.label:
        (x0, y0), (x1, y1) = points[-2:]
        x, y = (x0 + x1) / 2, (y0 + y1) / 2 - 3
        label = escape(_short(link.label))
        parts.append(f'<text class="e" x="{x:g}" y="{y:g}" text-anchor="middle">{label}</text>')
    return parts


def _top(node: _Node) -> float:
    return _MARGIN + node.layer * (_HEIGHT + _GAP_Y)


def _box(graph: Graph, node: _Node) -> str:
    kind = shape.kind(graph, node.name)
    does = _does(graph, node.name)
    second = f"{kind} {does}".rstrip()
    left, top = node.x - _WIDTH / 2, _top(node)
    return (
        f"<g><title>{escape(f'{node.name}: {second}')}</title>"
        f'<rect x="{left:g}" y="{top:g}" width="{_WIDTH}" height="{_HEIGHT}" rx="7" '
        f'fill="{_FILL.get(kind, "#ffffff")}"/>'
        f'<text x="{left + 12:g}" y="{top + 23:g}">{escape(_short(node.name))}</text>'
        f'<text class="k" x="{left + 12:g}" y="{top + 41:g}">{escape(_short(second))}</text></g>'
    )


def _short(shown: str) -> str:
    return shown if len(shown) <= _SHOWN_CHARS else shown[: _SHOWN_CHARS - 1] + "\u2026"
