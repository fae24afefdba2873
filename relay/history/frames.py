"""Frames: the figures of one second, sent to all open dashboards.

    {"at": unix second, "values": {series: number or null}, "alarms": {"firing": n, "worst": ""},
     "partners": [[domain, state], ...]}

The site that writes a second to the history encodes its frame once, as text, and sends it to a
group of the channel layer. Every process with open sockets forwards the text unchanged
(`relay.dashboard.live`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from relay.history.packing import Values
from relay.history.series import SERIES

LAYER: Final = "console"
"""Name of the channel layer, which soon drops members that left and messages that were not read."""
GROUP: Final = "console.live"
MESSAGE: Final = "console.frame"
"""Type of the group's messages; `text` is the frame."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Contents of a frame besides the values, updated every few seconds.

    Attributes:
        firing: number of firing alarms that are neither acknowledged nor silenced.
        worst: highest severity among them; empty without alarms.
        partners: domain and state of some partner relays, the worst first.
    """

    firing: int = 0
    worst: str = ""
    partners: Sequence[tuple[str, str]] = ()


def encode(at: int, values: Values, around: Surroundings) -> str:
    """Return the text of a frame."""
    every: Mapping[str, float | None] = {each.key: values.get(each.key) for each in SERIES}
    frame = {
        "at": at,
        "values": every,
        "alarms": {"firing": around.firing, "worst": around.worst},
        "partners": around.partners,
    }
    return json.dumps(frame, separators=(",", ":"), ensure_ascii=False)
