"""When an alarm begins and when it ends: pure, the time and the reading are arguments.

    quiet --bad--> pending --bad for hold_s--> firing --good--> clearing --good for clear_hold_s-->
      quiet

A reading is bad from the threshold on and good beyond the clear threshold. Between the two it is
neither, and changes nothing but for an alarm that is only pending, which was not bad all the time.
Time counts as far as somebody looked: a step of the clock or a pause of the evaluation adds
`LONGEST_STEP_S` at most. An unknown reading stops the clock; it begins and ends nothing.

Nothing flaps: what comes back within an hour of its end has to be quiet twice as long each time.

Whether receivers hear of it is decided here too. They hear of each firing once and of its end, and
of nothing while the alarm is silenced; a silence that ends before the alarm does tells them then.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum

from relay.alarms.bounds import LONGEST_STEP_S, MAX_REPEATS, REPEAT_S


class Phase(StrEnum):
    """Where a subject of a rule stands."""

    QUIET = "quiet"
    PENDING = "pending"
    FIRING = "firing"
    CLEARING = "clearing"


class Change(StrEnum):
    """What happened in a step."""

    FIRED = "fired"
    RESOLVED = "resolved"
    TELL_FIRED = "tell fired"
    """Receivers are to hear that it fires."""
    TELL_RESOLVED = "tell resolved"
    """Receivers are to hear that it ended."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a rule comes to, with what the operator changed.

    Attributes:
        threshold: bad from here on.
        clear: good beyond; equal to `threshold` where there is nothing between.
        hold_s: bad for so long before it fires.
        clear_hold_s: good for so long before it ends.
        rising: large readings are the bad ones.
    """

    threshold: float
    clear: float
    hold_s: float
    clear_hold_s: float
    rising: bool = True

    def bad(self, value: float) -> bool:
        """Whether a reading is."""
        return value >= self.threshold if self.rising else value <= self.threshold

    def good(self, value: float) -> bool:
        """Whether a reading is; both cannot be, as the threshold is on the bad side of `clear`."""
        return not self.bad(value) and (value <= self.clear if self.rising else value >= self.clear)


@dataclass(frozen=True, slots=True)
class Track:
    """What is remembered of one subject of a rule.

    Attributes:
        counted_s: how long it has been bad (pending) or good (clearing).
        looked_at: unix time of the last step.
        since: unix time it fired, or ended; 0 for never.
        repeats: how often it came back, each time within `REPEAT_S` of its end.
        told: receivers heard that it fires and not yet that it ended.
    """

    phase: Phase = Phase.QUIET
    counted_s: float = 0.0
    looked_at: float = 0.0
    since: float = 0.0
    repeats: int = 0
    told: bool = False

    @property
    def active(self) -> bool:
        """Whether it fires, be it about to end."""
        return self.phase in (Phase.FIRING, Phase.CLEARING)


def quiet_s(limits: Limits, track: Track) -> float:
    """How long a track has to be good before it ends."""
    return limits.clear_hold_s * float(2**track.repeats)


def step(
    limits: Limits, track: Track, value: float | None, now: float, silenced: bool = False
) -> tuple[Track, list[Change]]:
    """Looks at one subject once.

    Args:
        limits: of its rule.
        track: as the last step left it.
        value: what was read; None when it could not be.
        now: unix seconds; may go back.
        silenced: receivers are not to hear of it now.

    Returns:
        The track to remember, and what happened, in order.
    """
    elapsed_s = min(max(0.0, now - track.looked_at), LONGEST_STEP_S) if track.looked_at else 0.0
    after = dataclasses.replace(track, looked_at=now)
    changes: list[Change] = []
    if value is not None:
        after = _moved(limits, after, value, elapsed_s, now, changes)
    if after.active and not after.told and not silenced:
        after = dataclasses.replace(after, told=True)
        changes.append(Change.TELL_FIRED)
    elif after.told and not after.active:
        after = dataclasses.replace(after, told=False)
        changes.append(Change.TELL_RESOLVED)
    return after, changes


def end(track: Track, now: float) -> tuple[Track, list[Change]]:
    """Ends a track whose rule was switched off; nothing is held against its next firing."""
    changes = [Change.RESOLVED] if track.active else []
    if track.told:
        changes.append(Change.TELL_RESOLVED)
    return Track(looked_at=now, since=now if track.active else track.since), changes


def _moved(
    limits: Limits,
    track: Track,
    value: float,
    elapsed_s: float,
    now: float,
    changes: list[Change],
) -> Track:
    bad, good = limits.bad(value), limits.good(value)
    if track.phase is Phase.QUIET:
        if not bad:
            return track
        track = dataclasses.replace(track, phase=Phase.PENDING, counted_s=0.0)
        elapsed_s = 0.0  # it was not bad before this reading
    if track.phase is Phase.PENDING:
        if not bad:
            return dataclasses.replace(track, phase=Phase.QUIET, counted_s=0.0)
        counted_s = track.counted_s + elapsed_s
        if counted_s < limits.hold_s:
            return dataclasses.replace(track, counted_s=counted_s)
        changes.append(Change.FIRED)
        came_back = bool(track.since) and abs(now - track.since) < REPEAT_S
        repeats = min(track.repeats + 1, MAX_REPEATS) if came_back else 0
        return dataclasses.replace(
            track, phase=Phase.FIRING, counted_s=0.0, since=now, repeats=repeats
        )
    if not good:
        return dataclasses.replace(track, phase=Phase.FIRING, counted_s=0.0)
    counted_s = track.counted_s + elapsed_s if track.phase is Phase.CLEARING else 0.0
    if counted_s < quiet_s(limits, track):
        return dataclasses.replace(track, phase=Phase.CLEARING, counted_s=counted_s)
    changes.append(Change.RESOLVED)
    return dataclasses.replace(track, phase=Phase.QUIET, counted_s=0.0, since=now)
