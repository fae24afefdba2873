"""The state machine of alarms: hold times, hysteresis, protection from flapping, and notices."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from relay.alarms.bounds import LONGEST_STEP_S, MAX_REPEATS, PERIOD_S, REPEAT_S
from relay.alarms.machine import Change, Limits, Phase, Track, end, quiet_s, step

LIMITS = Limits(threshold=80, clear=60, hold_s=20, clear_hold_s=30)
FALLING = Limits(threshold=21, clear=22, hold_s=0, clear_hold_s=0, rising=False)
BEGIN = 1_700_000_000.0

Seen = list[tuple[float, Change]]


def run(
    values: Iterable[float | None],
    limits: Limits = LIMITS,
    track: Track | None = None,
    begin: float = BEGIN,
    silenced: bool = False,
) -> tuple[Track, Seen]:
    """Feed one reading each period; return the changes with the seconds since the start."""
    track = track or Track()
    seen: Seen = []
    for number, value in enumerate(values):
        now = begin + number * PERIOD_S
        track, changes = step(limits, track, value, now, silenced)
        seen += [(now - begin, change) for change in changes]
    return track, seen


def fired(seen: Seen) -> list[float]:
    return [at for at, change in seen if change is Change.FIRED]


def test_it_fires_after_its_hold_time_and_ends_after_another() -> None:
    track, seen = run([90] * 10 + [10] * 10)
    assert seen == [
        (20, Change.FIRED),
        (20, Change.TELL_FIRED),
        (80, Change.RESOLVED),
        (80, Change.TELL_RESOLVED),
    ]
    assert (track.phase, track.told, track.since) == (Phase.QUIET, False, BEGIN + 80)


def test_a_peak_shorter_than_the_hold_time_is_nothing() -> None:
    _, seen = run(([90] * 4 + [70]) * 20)
    assert seen == []


def test_without_hold_times_it_fires_and_ends_at_once() -> None:
    _, seen = run([30, 20, 21.5, 22, 30], FALLING)
    assert [(at, change) for at, change in seen if not change.startswith("tell")] == [
        (5, Change.FIRED),
        (15, Change.RESOLVED),
    ]


def test_between_the_thresholds_a_firing_alarm_stays() -> None:
    track, seen = run([90] * 5 + [70] * 1000)
    assert fired(seen) == [20] and len(seen) == 2
    assert track.phase is Phase.FIRING


def test_a_flapping_signal_fires_once() -> None:
    """A signal that flips every 25 s (hold < 25 s < clear hold) for a day fires once."""
    _, seen = run(([90] * 5 + [10] * 5) * 1728)
    assert seen == [(20, Change.FIRED), (20, Change.TELL_FIRED)]


def test_slow_flapping_has_to_be_quiet_longer_each_time() -> None:
    """A signal on for 1 min and off for 2 min, for a day, fires 3 times instead of 480."""
    _, seen = run(([90] * 12 + [10] * 24) * 480)
    assert len(fired(seen)) == 3
    _, seen = run(([90] * 12 + [10] * 240) * 72)  # off for 20 min
    assert len(fired(seen)) == 72  # it resolved each time, and came back


def test_after_a_quiet_hour_it_is_a_new_trouble() -> None:
    track, _ = run([90] * 5 + [10] * 10)
    track, _ = run([90] * 5, track=track, begin=BEGIN + 100)
    assert track.repeats == 1
    track, _ = run([10] * 20, track=track, begin=BEGIN + 200)
    track, _ = run([90] * 5, track=track, begin=BEGIN + 300 + REPEAT_S)
    assert track.repeats == 0


def test_an_unknown_reading_begins_and_ends_nothing() -> None:
    track, seen = run([90, 90, *[None] * 100])
    assert seen == [] and track.phase is Phase.PENDING
    track, seen = run([90] * 5 + [None] * 100)
    assert len(seen) == 2 and track.active
    track, seen = run([10, None] * 4, track=track, begin=BEGIN + 525)
    assert seen == [] and track.phase is Phase.CLEARING


def test_a_step_of_the_clock_is_not_time_that_was_watched() -> None:
    track, _ = run([90])
    track, changes = step(LIMITS, track, 90, BEGIN + 86_400)
    assert changes == [] and track.counted_s == LONGEST_STEP_S
    track, changes = step(LIMITS, track, 90, BEGIN - 86_400)
    assert changes == [] and track.counted_s == LONGEST_STEP_S
    track, changes = step(LIMITS, track, 90, BEGIN - 86_395)
    assert changes[0] is Change.FIRED


def test_a_silence_keeps_it_from_receivers_and_its_end_tells_them() -> None:
    track, seen = run([90] * 10, silenced=True)
    assert seen == [(20, Change.FIRED)] and track.active
    track, seen = run([90], track=track, begin=BEGIN + 50)
    assert seen == [(0, Change.TELL_FIRED)]


def test_an_alarm_that_ends_within_its_silence_was_never_heard_of() -> None:
    _, seen = run([90] * 10 + [10] * 10, silenced=True)
    assert [change for _, change in seen] == [Change.FIRED, Change.RESOLVED]


def test_who_heard_of_it_hears_of_its_end_though_it_is_silenced_now() -> None:
    track, _ = run([90] * 5)
    _, seen = run([10] * 10, track=track, begin=BEGIN + 25, silenced=True)
    assert [change for _, change in seen] == [Change.RESOLVED, Change.TELL_RESOLVED]


def test_switching_a_rule_off_ends_its_alarm() -> None:
    track, _ = run([90] * 5)
    track, changes = end(track, BEGIN + 25)
    assert changes == [Change.RESOLVED, Change.TELL_RESOLVED] and not track.active
    assert end(track, BEGIN + 30)[1] == []


SIGNALS = st.lists(
    st.one_of(st.none(), st.floats(0, 100), st.sampled_from([0.0, 60.0, 80.0, 100.0])),
    max_size=400,
)


@given(SIGNALS, st.lists(st.booleans(), max_size=400))
def test_what_receivers_hear_is_fired_and_ended_in_turn(
    signal: list[float | None], silences: list[bool]
) -> None:
    track = Track()
    told: list[Change] = []
    history: list[Change] = []
    for number, value in enumerate(signal):
        silenced = number < len(silences) and silences[number]
        track, changes = step(LIMITS, track, value, BEGIN + number * PERIOD_S, silenced)
        told += [change for change in changes if change.startswith("tell")]
        history += [change for change in changes if not change.startswith("tell")]
        if not silenced:
            assert track.told == track.active
    assert told == ([Change.TELL_FIRED, Change.TELL_RESOLVED] * len(told))[: len(told)]
    assert history == ([Change.FIRED, Change.RESOLVED] * len(history))[: len(history)]
    assert track.active == bool(len(history) % 2)


@given(SIGNALS)
def test_no_signal_fires_more_often_than_its_hold_times_allow(
    signal: list[float | None],
) -> None:
    _, seen = run(signal)
    at = fired(seen)
    least_s = LIMITS.hold_s
    for before, after in itertools.pairwise(at):
        least_s = LIMITS.hold_s + LIMITS.clear_hold_s
        assert after - before >= least_s


@given(st.lists(st.integers(0, 400), min_size=1, max_size=40))
def test_noise_around_the_threshold_fires_less_and_less_often(lengths: list[int]) -> None:
    """Runs of bad and good readings of any length, within an hour, need longer and longer quiet."""
    signal = [100.0 if n % 2 == 0 else 0.0 for n, length in enumerate(lengths) for _ in
              range(length)]  # fmt: skip
    track = Track()
    ends: list[tuple[float, int]] = []
    for number, value in enumerate(signal):
        before = track
        now = BEGIN + number * PERIOD_S
        track, changes = step(LIMITS, track, value, now)
        if Change.RESOLVED in changes:
            ends.append((now, before.repeats))
            assert before.counted_s + PERIOD_S >= quiet_s(LIMITS, before)
        assert track.repeats <= MAX_REPEATS
    for (_, before_repeats), (_, repeats) in itertools.pairwise(ends):
        assert repeats in (0, min(before_repeats + 1, MAX_REPEATS))


@given(st.floats(-1000, 1000), st.booleans())
def test_no_reading_is_bad_and_good(value: float, rising: bool) -> None:
    for clear in (80, 60 if rising else 100):
        limits = Limits(80, clear, 0, 0, rising)
        assert not (limits.bad(value) and limits.good(value))
