"""The way of one message, reconstructed from the events of all processes. Pure.

A request, its answer and notices have the same uid: each is a *leg*, distinguished by what it
carries and by source and destination. A leg's events come from several processes, perhaps of
several relays, and each process has its own clock. Where times disagree, causes decide the order:

    waits < accepted < committed < queued < delivered < acknowledged < removed   at one relay
    accepted < outbox < tried                                               at the one before
    tried, at its start < accepted at the relay it was sent to < tried, at its answer

The last line corrects the clock of a whole relay: all its events are moved together, only as far as
needed for what it did to lie within the try that brought the message (`shifts`). An event that
disagrees with others of its relay is moved alone, to right after its cause. Events keep the time at
which they were recorded; `when` is the time in the timeline's own order.
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
"""Stages that, if they were recorded, must come before each stage at the same relay."""

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
"""Outcomes by the furthest stage that was recorded; the first entry that matches applies."""


class Step(NamedTuple):
    """One event at its place in the timeline.

    Attributes:
        event: the event as it was recorded.
        when: unix time in the order of causes.
        after_s: seconds since the first step of the leg.
    """

    event: Event
    when: float
    after_s: float

    @property
    def moved_s(self) -> float:
        """Seconds by which the process' clock seems to differ from the others."""
        return self.when - self.event.at


class Leg(NamedTuple):
    """The way of a message from its sender to its destination.

    Attributes:
        kind: what it carries: request, response, error.
        steps: steps in their order.
        outcome: how far it is, in words.
        took_s: seconds from the first to the last step.
        shifts: seconds by which the clocks of partner relays were corrected, by name.
    """

    kind: str
    source: str
    destination: str
    steps: tuple[Step, ...]
    outcome: str
    took_s: float
    shifts: dict[str, float]


class Timeline(NamedTuple):
    """All that is known of one uid: its legs, ordered by their beginnings."""

    uid: str
    legs: tuple[Leg, ...]


def timeline(uid: str, events: Iterable[Event]) -> Timeline:
    """Order the events of one uid.

    Args:
        uid: uid of the messages.
        events: events of any processes, orders and relays, in any order, perhaps with duplicates.
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
    """Return the correction for the clock of each relay that was sent to, which may be 0."""
    shifts: dict[str, float] = {}
    tries = [event for event in events if event.stage is Stage.TRIED]
    for relay in {event.here for event in events}:
        own = [event for event in events if event.here == relay]
        brought = [event for event in own if event.stage in (Stage.ACCEPTED, Stage.DECLINED)]
        named = [each for each in tries if each.relay == relay and each.here != relay]
        if not brought or not named:
            continue
        # It accepted the message in the last try: earlier tries did not reach it.
        last = max(named, key=lambda each: each.at)
        begin, end = last.at, last.at + last.ms / 1000
        arrived = min(event.at for event in brought if event.stage is brought[-1].stage)
        committed = [event.at for event in own if event.stage is Stage.COMMITTED]
        done = min(committed, default=arrived)
        shifts[relay] = 0.0
        if arrived < begin:
            shifts[relay] = begin - arrived
        elif done > end:
            # Not before the beginning of the try, if the commit took longer than the answer.
            shifts[relay] = max(end - done, begin - arrived)
    return shifts


def _in_order(events: list[Event], shift: float) -> list[tuple[float, int, Event]]:
    """Return the events of one relay with their times, each no earlier than its first cause."""
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
