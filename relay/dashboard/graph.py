"""Layout of the federation map: this relay in the centre, partner relays around it. No I/O.

Relays on the left and on the right have a line each, so that names never overlap, whatever their
number. They are ordered by name, so that nothing moves when traffic changes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from relay.dashboard import relays as words
from relay.dashboard.figures import Kind, write
from relay.federation.listing import Health, Relay

MAX_SHOWN: Final = 40
WIDTH: Final = 1000
MIN_HEIGHT: Final = 220
MAX_STEP: Final = 76
MIN_STEP: Final = 38
"""Minimum distance of two names, in units of the drawing: two lines of text."""
MARGIN: Final = 56
NEAR: Final = 150
FAR: Final = 245
"""Horizontal distances from the centre: of the top and bottom relays, and of those in between."""
MIN_RADIUS: Final = 9.0
MAX_RADIUS: Final = 19.0
MIN_LINE: Final = 1.2
MAX_LINE: Final = 7.0
LABEL_AT: Final = 0.6
"""Position of a line's label, as a fraction of the line."""
MAX_NAME_CHARS: Final = 31

SIGNS: Final = {
    Health.WORKING: "M-4.5 0.5 L-1.5 3.5 L4.5 -3",
    Health.FAILING: "M0 -5 V1 M0 4.5 V4.6",
    Health.BACKED_OFF: "M-3.5 -3.5 L3.5 3.5 M3.5 -3.5 L-3.5 3.5",
    Health.PAUSED: "M-2.5 -4 V4 M2.5 -4 V4",
    Health.BLOCKED: "M-5 0 H5",
    Health.UNKNOWN: "M0 0 V0.1",
}
"""Paths in a circle of radius ten: a tick, `!`, a cross, two bars, one horizontal bar, a dot."""
RESTING: Final = (Health.BACKED_OFF, Health.PAUSED, Health.BLOCKED)
"""States of relays that nothing is sent to."""


class Node(NamedTuple):
    """One relay in the drawing.

    Attributes:
        name: domain, cut to fit.
        told: full description, for screen readers and on hover.
        note: current traffic or state.
        latency: duration of a request; empty if unknown.
        tone: class of its colour; `sign` shows the same without colour.
        x, y, radius: circle.
        line, line_width: line from the centre to the relay, as an SVG path.
        label_x, label_y: position of the line's label.
        text_x, anchor: position of the text beside the circle.
        sign_scale: scale that fits the sign into the circle.
        resting: whether nothing is sent to it at present.
    """

    relay: Relay
    name: str
    told: str
    note: str
    latency: str
    tone: str
    sign: str
    resting: bool
    x: float
    y: float
    radius: float
    line: str
    line_width: float
    label_x: float
    label_y: float
    text_x: float
    anchor: str
    sign_scale: float


class Graph(NamedTuple):
    """The drawing.

    Attributes:
        more: number of relays that are not in it.
    """

    width: int
    height: int
    x: int
    y: int
    nodes: list[Node]
    more: int


def draw(relays: Sequence[Relay], more: int = 0) -> Graph:
    """Return the map of some relays.

    Args:
        relays: at most `MAX_SHOWN`.
        more: number of further relays.
    """
    half = (len(relays) + 1) // 2
    step = max(MIN_STEP, min(MAX_STEP, 520 // max(1, half)))
    height = max(MIN_HEIGHT, (half - 1) * step + 2 * MARGIN)
    x, y = WIDTH // 2, height // 2
    busiest = max((relay.rate for relay in relays), default=0.0)
    nodes = []
    # The right side comes first: a single relay is where reading continues.
    for side, some in ((1, relays[:half]), (-1, relays[half:])):
        for place, relay in enumerate(some):
            node_y = y + (place - (len(some) - 1) / 2) * step
            nodes.append(_node(relay, side, node_y, (x, y), busiest))
    return Graph(WIDTH, height, x, y, nodes, more)


def _node(relay: Relay, side: int, y: float, middle: tuple[int, int], busiest: float) -> Node:
    # Sizes grow with the square root, so that one busy relay does not shrink the others to dots.
    part = math.sqrt(relay.rate / busiest) if busiest > 0 else 0.0
    radius = MIN_RADIUS + (MAX_RADIUS - MIN_RADIUS) * part
    up = (y - middle[1]) / (middle[1] or 1)
    x = middle[0] + side * (NEAR + (FAR - NEAR) * math.sqrt(max(0.0, 1 - up * up)))
    bend_x = middle[0] + side * NEAR * 0.55
    curve = ((middle[0], middle[1]), (bend_x, middle[1]), (bend_x, y), (x, y))
    label_x, label_y = _on(curve, LABEL_AT)
    name, state = relay.domain, words.state_of(relay)
    latency_ms = relay.live.latency_ms
    latency = write(latency_ms / 1000, Kind.DURATION) if latency_ms else ""
    return Node(
        relay=relay,
        name=name if len(name) <= MAX_NAME_CHARS else f"{name[: MAX_NAME_CHARS - 1]}…",
        told=_told(relay, latency),
        note=_note(relay),
        latency=latency,
        tone=f"c-{state.tone}",
        sign=SIGNS[relay.health],
        resting=relay.health in RESTING,
        x=round(x, 1),
        y=round(y, 1),
        radius=round(radius, 1),
        line="M{:.1f} {:.1f} C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}".format(
            *(each for point in curve for each in point)
        ),
        line_width=round(MIN_LINE + (MAX_LINE - MIN_LINE) * part, 1),
        label_x=round(label_x, 1),
        label_y=round(label_y, 1),
        text_x=round(x + side * (radius + 8), 1),
        anchor="start" if side > 0 else "end",
        sign_scale=round(radius / 10, 2),
    )


def _note(relay: Relay) -> str:
    if relay.traffic is None:
        return str(relay.health)
    rate = write(relay.rate, Kind.RATE)
    return rate if relay.health is Health.WORKING else f"{relay.health}, {rate}"


def _told(relay: Relay, latency: str) -> str:
    parts = [f"{relay.domain}: {relay.health}"]
    if relay.live.last_error and relay.health in (Health.FAILING, Health.BACKED_OFF):
        parts.append(relay.live.last_error)
    if relay.traffic:
        parts.append(f"{write(relay.traffic.out, Kind.RATE)} out")
        parts.append(f"{write(relay.traffic.into, Kind.RATE)} in")
    if latency:
        parts.append(f"a request takes {latency}")
    if relay.live.held.messages:
        parts.append(f"{words.messages(relay.live.held.messages)} waiting")
    return ", ".join(parts)


def _on(curve: Sequence[tuple[float, float]], part: float) -> tuple[float, float]:
    """Return a point of a cubic Bézier curve."""
    rest = 1 - part
    weights = (rest**3, 3 * rest**2 * part, 3 * rest * part**2, part**3)
    return (
        sum(weight * point[0] for weight, point in zip(weights, curve, strict=True)),
        sum(weight * point[1] for weight, point in zip(weights, curve, strict=True)),
    )
