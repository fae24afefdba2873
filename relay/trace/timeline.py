"""The way of one message, put together from what all processes noted of it. Pure.

Request, answer and notices have the same uid: each is a *leg*, told apart by what it carries and
between whom. A leg's events come from several processes, of several relays if those were asked
too, and each process has its own clock. So the order is that of cause where times disagree:

    waits < accepted < committed < queued < delivered < acknowledged < removed   at one relay
    accepted < outbox < tried                                               at the one before
    tried, at its start < accepted at the relay it was sent to < tried, at its answer

A whole relay's clock is set right by the last line: its events move together, just so far that
what it did lies within the try that brought it (`shifts`). What disagrees within a relay moves by
itself, to right after its cause. Events keep the time they were noted at; `when` is the time in the
timeline's own order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from relay.trace.events import Event, Stage

CAUSES: Final[dict[Stage, tuple[Stage, ...]]] = {
    Stage.ACCEPTED: (Stage.WAITS,),
    Stage.REFUSED: (Stage.WAITS,),
    Stage.COMMITTED: (Stage.ACCEPTED,),
    Stage.OUTBOX: (Stage.ACCEPTED,),
    Stage.QUEUED: (Stage.COMMITTED,),
    Stage.TRIED: (Stage.OUTBOX,),
    Stage.MOVED: (Stage.OUTBOX,),
    Stage.DELIVERED: (Stage.COMMITTED, Stage.QUEUED, Stage.MOVED),
    Stage.ACKNOWLEDGED: (Stage.DELIVERED,),
    Stage.REMOVED: (Stage.ACKNOWLEDGED,),
    Stage.EXPIRED: (Stage.COMMITTED, Stage.OUTBOX),
    Stage.TRIMMED: (Stage.COMMITTED, Stage.QUEUED, Stage.MOVED),
    Stage.PURGED: (Stage.COMMITTED, Stage.QUEUED, Stage.MOVED),
    Stage.GIVEN_UP: (Stage.OUTBOX, Stage.EXPIRED, Stage.TRIED),
    Stage.NOTIFIED: (Stage.REFUSED, Stage.EXPIRED, Stage.GIVEN_UP),
}
"""What has to have happened, if it was noted at all, before each stage at the same relay."""

_RANK: Final = {stage: rank for rank, stage in enumerate(Stage)}
_OF_DELIVERY: Final = frozenset((Stage.ACKNOWLEDGED, Stage.REMOVED))
_ENDS: Final[dict[Stage, str]] = {
    Stage.REMOVED: "delivered",
    Stage.ACKNOWLEDGED: "delivered",
    Stage.DELIVERED: "written, not acknowledged",
    Stage.EXPIRED: "expired",
    Stage.TRIMMED: "not fetched in time",
    Stage.PURGED: "deleted by an operator",
    Stage.GIVEN_UP: "given up",
    Stage.REFUSED: "refused",
    Stage.DECLINED: "declined for now",
    Stage.MOVED: "in its queue",
    Stage.QUEUED: "in its queue",
    Stage.COMMITTED: "in its queue",
    Stage.TRIED: "tried",
    Stage.OUTBOX: "in the outbox",
    Stage.ACCEPTED: "accepted",
    Stage.WAITS: "waits for a look-up",
}
"""How far a message is, by the furthest that was noted; the first that holds."""


class Step(NamedTuple):
    """One event in its place.

    Attributes:
        event: as it was noted.
        when: unix time in the order of cause.
        after_s: since the first step of the leg.
    """

    event: Event
    when: float
    after_s: float

    @property
    def moved_s(self) -> float:
        """How far the process' clock seems to be from the others'."""
        return self.when - self.event.at


class Leg(NamedTuple):
    """The way of a message from its sender to its destination.

    Attributes:
        kind: what it carries: request, response, error.
        steps: in their order.
        outcome: how far it is, in words.
        took_s: from the first to the last step.
        shifts: by how much the clocks of other relays were set right, by name.
    """

    kind: str
    source: str
    destination: str
    steps: tuple[Step, ...]
    outcome: str
    took_s: float
    shifts: dict[str, float]


class Timeline(NamedTuple):
    """All that is known of one uid: its legs by their beginnings."""

    uid: str
    legs: tuple[Leg, ...]


def timeline(uid: str, events: Iterable[Event]) -> Timeline:
    """Puts the events of one uid into their order.

    Args:
        uid: of the messages.
        events: of any processes, orders and relays, in any order, some perhaps twice.
    """
    legs: dict[tuple[str, str, str], dict[Event, None]] = defaultdict(dict)
    for event in events:
        if event.uid == uid:
            # Two orders may follow one message.
            legs[event.kind, event.source, event.destination][event._replace(order="")] = None
    made = [_leg(list(found)) for found in legs.values()]
    return Timeline(uid, tuple(sorted(made, key=lambda leg: leg.steps[0].when)))


def _leg(events: list[Event]) -> Leg:
    shifts = _shifts(events)
    by_relay: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_relay[event.here].append(event)
    placed: list[tuple[float, bool, int, Event]] = []
    for relay, own in by_relay.items():
        for when, rank, event in _in_order(own, shifts.get(relay, 0.0)):
            placed.append((when, relay in shifts, rank, event))
    placed.sort(key=lambda each: each[:3])
    begin = placed[0][0]
    steps = tuple(Step(event, when, when - begin) for when, _, _, event in placed)
    first = events[0]
    return Leg(
        first.kind,
        first.source,
        first.destination,
        steps,
        _outcome(steps),
        steps[-1].after_s,
        {relay: shift for relay, shift in shifts.items() if shift},
    )


def _shifts(events: list[Event]) -> dict[str, float]:
    """By how much the clock of each relay that was sent to has to be moved, perhaps not at all."""
    shifts: dict[str, float] = {}
    tries = [event for event in events if event.stage is Stage.TRIED]
    for relay in {event.here for event in events}:
        own = [event for event in events if event.here == relay]
        brought = [event for event in own if event.stage in (Stage.ACCEPTED, Stage.DECLINED)]
        named = [each for each in tries if each.relay == relay and each.here != relay]
        if not brought or not named:
            continue
        # It took the message in the last try of it: what was tried before it was not there.
        last = max(named, key=lambda each: each.at)
        begin, end = last.at, last.at + last.ms / 1000
        arrived = min(event.at for event in brought if event.stage is brought[-1].stage)
        committed = [event.at for event in own if event.stage is Stage.COMMITTED]
        done = min(committed, default=arrived)
        shifts[relay] = 0.0
        if arrived < begin:
            shifts[relay] = begin - arrived
        elif done > end:
            # Not before its beginning, should the commit have taken longer than the answer.
            shifts[relay] = max(end - done, begin - arrived)
    return shifts


def _in_order(events: list[Event], shift: float) -> list[tuple[float, int, Event]]:
    """The events of one relay with their times, each no earlier than its first cause."""
    events = sorted(events, key=lambda event: (_RANK[event.stage], event.at))
    earliest: dict[Stage, float] = {}
    of_entry: dict[tuple[Stage, str, int], float] = {}
    placed = []
    for event in events:
        when = round(event.at + shift, 6)
        for cause in CAUSES.get(event.stage, ()):
            after = earliest.get(cause)
            if event.stage in _OF_DELIVERY:
                # Delivered twice, to one session after the other: its own delivery is the cause.
                after = of_entry.get((cause, event.entry, event.epoch), after)
            if after is not None:
                when = max(when, after)
        earliest.setdefault(event.stage, when)
        earliest[event.stage] = min(earliest[event.stage], when)
        of_entry.setdefault((event.stage, event.entry, event.epoch), when)
        placed.append((when, _RANK[event.stage], event))
    return placed


def _outcome(steps: tuple[Step, ...]) -> str:
    there = {step.event.stage: step.event for step in steps}
    for stage, text in _ENDS.items():
        event = there.get(stage)
        if event is None:
            continue
        if stage is Stage.TRIED:
            tries = [step.event for step in steps if step.event.stage is Stage.TRIED]
            return _tried(tries[-1], len(tries))
        return f"{text}: {event.reason}" if event.reason not in ("", text) else text
    return "unknown"


def _tried(last: Event, count: int) -> str:
    if last.answer in ("answered 202", "answered 208"):
        return f"accepted by {last.relay}"
    times = "once" if count == 1 else f"{count} times"
    return f"tried {times}, last at {last.relay}: {last.answer}"
