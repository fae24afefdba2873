"""Other relays at a glance: a cell each, those in trouble first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from django.db import Error as DatabaseError
from redis.exceptions import RedisError

from relay.access.errors import Away
from relay.dashboard.figures import Kind, duration, write
from relay.dashboard.states import State, Tone
from relay.federation.live import PartnerState
from relay.history import surroundings
from relay.ops import load
from relay.ops.redis_client import client

MAX_CELLS: Final = 60

_SHOWN: Final = {
    "backed_off": ("waits", Tone.BAD),
    "failing": ("failing", Tone.WARNING),
    "stopped": ("paused or blocked", Tone.INFO),
    "ok": ("ok", Tone.GOOD),
    "unknown": ("not heard of yet", Tone.IDLE),
}


class CellOf(NamedTuple):
    """One relay."""

    domain: str
    state: State


class Strip(NamedTuple):
    """Some relays, and how many there are beside them.

    Attributes:
        counts: how many of all are in each state, the worst first; without those that are none.
    """

    cells: Sequence[CellOf]
    more: int
    counts: Sequence[tuple[State, int]]


def look(now: float) -> Strip:
    """All relays this one deals with.

    Raises:
        Away: Redis does not answer.
    """
    try:
        found = load.look_at_partners(client())
        stopped = surroundings.stopped()
    except RedisError as error:
        raise Away(f"Redis does not answer: {error}") from error
    except DatabaseError as error:
        raise Away(f"the database does not answer: {error}") from error
    told = [(surroundings.state_of(each, now, stopped), each) for each in found]
    order = surroundings.STATES.index
    told.sort(key=lambda each: (order(each[0]), -each[1].sent - each[1].received, each[1].domain))
    cells = [CellOf(each.domain, _state(name, each, now)) for name, each in told[:MAX_CELLS]]
    names = [name for name, _ in told]
    counts = [(State(*_SHOWN[name]), names.count(name)) for name in surroundings.STATES]
    return Strip(cells, len(told) - len(cells), [each for each in counts if each[1]])


def _state(name: str, partner: PartnerState, now: float) -> State:
    text, tone = _SHOWN[name]
    told = [text]
    if name == "backed_off":
        told = [f"tried again in {duration(partner.retry_at - now)}"]
    if partner.in_a_row:
        told.append(f"{partner.in_a_row} failures in a row")
        told.append(partner.last_error)
    elif partner.last_success:
        told.append(f"answers in {write(partner.latency_ms / 1000, Kind.DURATION)}")
    return State(text, tone, ", ".join(each for each in told if each))
