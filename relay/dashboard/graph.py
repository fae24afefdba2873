"""Where the relays of the federation map stand: this one in the middle, the others around it.

Pure: from what is known of the relays to places in a drawing. Those on the left and on the right
each have a line of their own, so that names never cover each other, however many there are; they
are in the order of their names, so that nothing jumps when traffic changes.
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
"""Between two names, in the drawing's units: two lines of text."""
MARGIN: Final = 56
NEAR: Final = 150
FAR: Final = 245
"""How far from the middle the highest and lowest stand, and those beside it."""
MIN_RADIUS: Final = 9.0
MAX_RADIUS: Final = 19.0
MIN_LINE: Final = 1.2
MAX_LINE: Final = 7.0
LABEL_AT: Final = 0.6
"""Part of the line at which its label stands."""
MAX_NAME_CHARS: Final = 31

SIGNS: Final = {
    Health.WORKING: "M-4.5 0.5 L-1.5 3.5 L4.5 -3",
    Health.FAILING: "M0 -5 V1 M0 4.5 V4.6",
    Health.BACKED_OFF: "M-3.5 -3.5 L3.5 3.5 M3.5 -3.5 L-3.5 3.5",
    Health.PAUSED: "M-2.5 -4 V4 M2.5 -4 V4",
    Health.BLOCKED: "M-5 0 H5",
    Health.UNKNOWN: "M0 0 V0.1",
}
"""A tick, `!`, a cross, two bars, one across, a dot: paths in a circle of radius ten."""
RESTING: Final = (Health.BACKED_OFF, Health.PAUSED, Health.BLOCKED)
"""Nothing is sent to these now."""


class Node(NamedTuple):
    """One relay in the drawing.

    Attributes:
        name: as much of its domain as fits.
        told: all there is to say, for a reader and on hover.
        note: what goes on with it now.
        latency: of a request; empty where none is known.
        tone: class of its colour; `sign` says the same without one.
        x, y, radius: of its circle.
        line, line_width: from the middle to it, as an SVG path.
        label_x, label_y: of what is written at the line.
        text_x, anchor: of what is written beside the circle.
        sign_scale: of the sign, to fit the circle.
        resting: whether nothing is sent to it now.
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
        more: relays that are not in it.
    """

    width: int
    height: int
    x: int
    y: int
    nodes: list[Node]
    more: int


def draw(relays: Sequence[Relay], more: int = 0) -> Graph:
    """The map of some relays.

    Args:
        relays: at most `MAX_SHOWN`.
        more: how many there are beside them.
    """
    half = (len(relays) + 1) // 2
    step = max(MIN_STEP, min(MAX_STEP, 520 // max(1, half)))
    height = max(MIN_HEIGHT, (half - 1) * step + 2 * MARGIN)
    x, y = WIDTH // 2, height // 2
    busiest = max((relay.rate for relay in relays), default=0.0)
    nodes = []
    # Right first: a lone relay stands where a line of text goes on.
    for side, some in ((1, relays[:half]), (-1, relays[half:])):
        for place, relay in enumerate(some):
            node_y = y + (place - (len(some) - 1) / 2) * step
            nodes.append(_node(relay, side, node_y, (x, y), busiest))
    return Graph(WIDTH, height, x, y, nodes, more)


def _node(relay: Relay, side: int, y: float, middle: tuple[int, int], busiest: float) -> Node:
    # Areas and widths are told apart by their roots: one busy relay must not make dots of the rest.
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
    """A point of a cubic curve."""
    rest = 1 - part
    weights = (rest**3, 3 * rest**2 * part, 3 * rest * part**2, part**3)
    return (
        sum(weight * point[0] for weight, point in zip(weights, curve, strict=True)),
        sum(weight * point[1] for weight, point in zip(weights, curve, strict=True)),
    )
