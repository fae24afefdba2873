"""A timeline as bars on one scale: how long each step took, and which process did it. Pure.

Each step has a bar from what it waited for (the step that must come before it, or the try that
brought the message to another relay) to itself; the bar of a try is as long as its answer took. All
legs of a message share the scale, so that the answer follows the request.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from relay.trace.events import Event, Stage
from relay.trace.timeline import CAUSES, Leg, Step, Timeline

LANES: Final = 6
"""Number of processes that are distinguished; further ones reuse the numbers."""
TICKS: Final = 4
LEAST_S: Final = 0.000_001

_OF_DELIVERY: Final = frozenset((Stage.ACKNOWLEDGED, Stage.REMOVED))


class Lane(NamedTuple):
    """A process that did something.

    Attributes:
        number: number that distinguishes it, from 1.
        relay: relay that it belongs to.
        process: full name of the process.
    """

    number: int
    relay: str
    process: str


class Bar(NamedTuple):
    """One step.

    Attributes:
        begin_s: seconds from the first step of all to the beginning of the bar.
        length_s: length in seconds; 0 if nothing that the step waited for was recorded.
        left, width: position and width of the bar, in hundredths of the scale.
    """

    step: Step
    lane: Lane
    begin_s: float
    length_s: float
    left: float
    width: float

    @property
    def end(self) -> float:
        """Right end of the bar, in hundredths of the scale."""
        return self.left + self.width


class Run(NamedTuple):
    """One leg and its bars."""

    leg: Leg
    bars: tuple[Bar, ...]

    @property
    def size_bytes(self) -> int:
        """Size of the message in bytes."""
        return self.leg.steps[0].event.size_bytes


class Tick(NamedTuple):
    """A line of the scale, with its position in hundredths of the scale."""

    left: float
    at_s: float


class Waterfall(NamedTuple):
    """All bars of one message.

    Attributes:
        begin: unix time of the first step.
        length_s: length of the scale in seconds.
    """

    uid: str
    begin: float
    length_s: float
    ticks: tuple[Tick, ...]
    lanes: tuple[Lane, ...]
    runs: tuple[Run, ...]


def waterfall(timeline: Timeline) -> Waterfall:
    """Return the bars of a timeline, which must have at least one leg."""
    spans = [[(step, *_span(step, leg)) for step in leg.steps] for leg in timeline.legs]
    begin = min(start for leg in spans for _, start, _ in leg)
    length_s = max(LEAST_S, max(end for leg in spans for _, _, end in leg) - begin)
    lanes: dict[tuple[str, str], Lane] = {}

    def bar(step: Step, start: float, end: float) -> Bar:
        who = (step.event.here, step.event.by)
        lane = lanes.setdefault(who, Lane(len(lanes) % LANES + 1, *who))
        left, width = ((at / length_s * 100) for at in (start - begin, end - start))
        return Bar(step, lane, start - begin, end - start, left, width)

    runs = tuple(
        Run(leg, tuple(bar(*span) for span in found))
        for leg, found in zip(timeline.legs, spans, strict=True)
    )
    return Waterfall(timeline.uid, begin, length_s, ticks(length_s), tuple(lanes.values()), runs)


def ticks(length_s: float) -> tuple[Tick, ...]:
    """Return some four lines at round times."""
    step, size = LEAST_S, 0
    while length_s / step > TICKS:
        step, size = step * (2.5 if size % 3 == 1 else 2), size + 1
    count = int(length_s / step + 1e-9)
    return tuple(Tick(n * step / length_s * 100, n * step) for n in range(count + 1))


def _span(step: Step, leg: Leg) -> tuple[float, float]:
    """Return the beginning and the end of a step."""
    event = step.event
    if event.stage is Stage.TRIED:
        return step.when, step.when + event.ms / 1000
    before = leg.steps[: leg.steps.index(step)]
    here = [each for each in before if each.event.here == event.here]
    causes = [each for each in here if each.event.stage in CAUSES.get(event.stage, ())]
    if event.stage in _OF_DELIVERY:
        own = (event.entry, event.epoch)
        causes = [each for each in causes if (each.event.entry, each.event.epoch) == own] or causes
    if not here:
        # The first step at this relay waited for the try that brought the message.
        causes = [each for each in before if _brings(each.event, event.here)]
    return (min(causes[-1].when, step.when) if causes else step.when), step.when


def _brings(event: Event, relay: str) -> bool:
    return event.stage is Stage.TRIED and event.relay == relay
