"""The state machine of an alarm. Pure: the time and the reading are arguments.

    quiet --bad--> pending --bad for hold_s--> firing --good--> clearing --good for clear_hold_s-->
      quiet

A reading is bad at or beyond the threshold, and good at or beyond the clear threshold on the other
side. A reading between the two changes nothing, except that it ends a pending phase, because the
subject was not bad all the time. A step of the clock or a pause of the evaluation counts as
`LONGEST_STEP_S` at most. An unknown reading stops the clock; it begins and ends no alarm.

To prevent flapping, an alarm that fires again within an hour of its end must be quiet twice as long
each time before it ends.

The machine also decides when receivers are notified: once when an alarm fires and once when it
ends, but not while it is silenced. If a silence ends before the alarm does, they are notified then.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum

from relay.alarms.bounds import LONGEST_STEP_S, MAX_REPEATS, REPEAT_S


class Phase(StrEnum):
    """Phase of one subject of a rule."""

    QUIET = "quiet"
    PENDING = "pending"
    FIRING = "firing"
    CLEARING = "clearing"


class Change(StrEnum):
    """Event that happened in a step."""

    FIRED = "fired"
    RESOLVED = "resolved"
    TELL_FIRED = "tell fired"
    """Receivers must be notified that the alarm fires."""
    TELL_RESOLVED = "tell resolved"
    """Receivers must be notified that the alarm ended."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Numbers of a rule in force, with what the operator changed.

    Attributes:
        threshold: reading from which on a subject is bad.
        clear: reading from which on a subject is good again, if it is not bad.
        hold_s: seconds a reading must be bad before the alarm fires.
        clear_hold_s: seconds a reading must be good before the alarm ends.
        rising: whether large readings are the bad ones.
    """

    threshold: float
    clear: float
    hold_s: float
    clear_hold_s: float
    rising: bool = True

    def bad(self, value: float) -> bool:
        """Check whether a reading is bad."""
        return value >= self.threshold if self.rising else value <= self.threshold

    def good(self, value: float) -> bool:
        """Check whether a reading is good; a bad one is not, even if `clear` equals `threshold`."""
        return not self.bad(value) and (value <= self.clear if self.rising else value >= self.clear)


@dataclass(frozen=True, slots=True)
class Track:
    """State of one subject of a rule, kept between steps.

    Attributes:
        counted_s: seconds for which it has been bad (pending) or good (clearing).
        looked_at: unix time of the last step.
        since: unix time at which it fired, or ended; 0 for never.
        repeats: how often it fired again, each time within `REPEAT_S` of its end.
        told: whether receivers were notified that it fires, and not yet that it ended.
    """

    phase: Phase = Phase.QUIET
    counted_s: float = 0.0
    looked_at: float = 0.0
    since: float = 0.0
    repeats: int = 0
    told: bool = False

    @property
    def active(self) -> bool:
        """Whether the alarm fires, even if it is about to end."""
        return self.phase in (Phase.FIRING, Phase.CLEARING)


def quiet_s(limits: Limits, track: Track) -> float:
    """Return the seconds for which a track must be good before its alarm ends."""
    return limits.clear_hold_s * float(2**track.repeats)


def step(
    limits: Limits, track: Track, value: float | None, now: float, silenced: bool = False
) -> tuple[Track, list[Change]]:
    """Advance one subject by one reading.

    Args:
        limits: limits of its rule.
        track: track that the last step returned.
        value: the reading; None if it could not be taken.
        now: unix seconds; may go back.
        silenced: whether receivers must not be notified now.

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
    """End a track whose rule was switched off, and forget its repeats."""
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
