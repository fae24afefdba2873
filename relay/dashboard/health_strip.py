"""Partner relays at a glance: one cell each, the failing ones first."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from relay.dashboard.figures import Kind, write
from relay.dashboard.relays import state
from relay.dashboard.states import State
from relay.federation import listing
from relay.federation.listing import Health, Relay
from relay.ops.wording import duration

MAX_CELLS: Final = 60


class CellOf(NamedTuple):
    """One relay."""

    domain: str
    state: State


class Strip(NamedTuple):
    """Some relays, and the number of further ones.

    Attributes:
        counts: number of relays in each state, the worst first; states without relays are omitted.
    """

    cells: Sequence[CellOf]
    more: int
    counts: Sequence[tuple[State, int]]


def look() -> Strip:
    """Return the known partner relays.

    Raises:
        Away: Redis does not answer.
    """
    order = list(Health)
    found = sorted(
        listing.look(), key=lambda each: (order.index(each.health), -each.messages, each.domain)
    )
    now = time.time()
    cells = [CellOf(each.domain, _state(each, now)) for each in found[:MAX_CELLS]]
    healths = [each.health for each in found]
    counts = [(state(each), healths.count(each)) for each in order if each in healths]
    return Strip(cells, len(found) - len(cells), counts)


def _state(relay: Relay, now: float) -> State:
    told, live = [str(relay.health)], relay.live
    if relay.health is Health.BACKED_OFF:
        told.append(f"tried again in {duration(live.retry_at - now)}")
    if live.in_a_row:
        told += [f"{live.in_a_row} failures in a row", live.last_error]
    elif live.last_success:
        told.append(f"answers in {write(live.latency_ms / 1000, Kind.DURATION)}")
    return state(relay.health, ", ".join(each for each in told if each))
