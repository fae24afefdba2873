"""What open dashboards are told each second: one frame, made once, for all of them.

    {"at": unix second, "values": {series: number or null}, "alarms": {"firing": n, "worst": ""},
     "partners": [[domain, state], ...]}

Whoever wrote a second's values to the history sends its frame to a group of the channel layer, as
text: every process with open sockets hands it on as it is (`relay.dashboard.live`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from relay.history.packing import Values
from relay.history.series import SERIES

LAYER: Final = "console"
"""The channel layer: one that forgets soon who went, and what nobody took."""
GROUP: Final = "console.live"
MESSAGE: Final = "console.frame"
"""Type of the group's messages; `text` is the frame."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a frame tells besides the values: looked at every few seconds.

    Attributes:
        firing: alarms that fire and that nobody has acknowledged or silenced.
        worst: the highest severity among them; empty without any.
        partners: some other relays and how they are, the worst first.
    """

    firing: int = 0
    worst: str = ""
    partners: Sequence[tuple[str, str]] = ()


def encode(at: int, values: Values, around: Surroundings) -> str:
    """The text of a frame."""
    every: Mapping[str, float | None] = {each.key: values.get(each.key) for each in SERIES}
    frame = {
        "at": at,
        "values": every,
        "alarms": {"firing": around.firing, "worst": around.worst},
        "partners": around.partners,
    }
    return json.dumps(frame, separators=(",", ":"), ensure_ascii=False)
