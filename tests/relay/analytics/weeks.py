"""Two weeks of events for jobs that look beyond a day, with what the tests expect of each.

The days from FIRST on are numbered; WINDOW is days 7 to 9. One file for each day is enough: the
jobs go by the time of a row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from relay.analytics.spark.window import Window
from tests.relay.analytics import rows
from tests.relay.analytics.rows import DAY, HOUR, MINUTE, SECOND, Event

FIRST = date(2026, 3, 20)
WINDOW = Window(FIRST + timedelta(days=7), FIRST + timedelta(days=9))

ONE, TWO, THREE = rows.RELAYS
FOUR = "d.example"


def at(day: int, hour: float = 0, us: int = 0) -> int:
    """Return the microseconds since 1970 of a time in these weeks."""
    return rows.midnight(FIRST) + day * DAY + round(hour * HOUR) + us


GAPS = [
    (ONE, "1", at(8, 9), at(8, 9, SECOND), None, "killed", 40, 900),
    (ONE, "1-packer", at(8, 9), at(8, 9), None, "killed", None, None),
    (ONE, "2", at(8, 10), at(8, 20), 0, "pressure", None, None),
    (TWO, "1", at(9, 1), at(9, 1), 5, "disk", None, None),
    (TWO, "1", at(9, 2), at(9, 2), 6, "disk", None, None),
]
"""Gaps of recorders.

Two processes were killed, one of them of a release without estimates; one lost nothing after all;
one lost 11 rows on a day on which its relay was idle."""


def senders() -> Iterator[Event]:
    """Yield messages whose hourly counts contain a few anomalies.

    Twin 1 sends 25 messages an hour from day 0, 7:00, to day 9, 20:59, except for a pause. Twin 2
    sends rarely: 19 in an hour are no anomaly, 20 are. Twin 3 sends 0, 30 and 60 in turn, so that
    none of these is an anomaly. All messages of an hour have one uid. Keys of SBD, five new ones an
    hour, send 30 packets together, and 90 in one hour.
    """
    for hour in range(7, 9 * 24 + 21):
        if hour not in (8 * 24 + 5, 8 * 24 + 6):
            yield from _many(at(0, hour), hour, 1, 25)
        yield from _many(at(0, hour), 1000 + hour, 3, hour % 3 * 30)
    for hour in range(7, 9 * 24 + 21):
        count = 90 if hour == 8 * 24 + 11 else 30
        yield from (
            rows.sbd(at(0, hour, n), "accepted", f"key-{hour}-{n % 5}") for n in range(count)
        )
    for day, hour, count in ((7, 6, 40), (7, 7, 20), (8, 23, 19), (9, 0, 20)):
        yield from _many(at(day, hour), 2000 + day * 24 + hour, 2, count)


def _many(us: int, uid: int, twin: int, count: int) -> Iterator[Event]:
    yield from (rows.accepted(us + n, uid, twin, 1) for n in range(count))
    yield rows.delivered(us + count, uid, twin, 1)


ANOMALIES = [
    ("2026-03-27", 7, 2, 20, 0, 0),
    ("2026-03-28", 5, 1, 0, 25, 0),
    ("2026-03-28", 6, 1, 0, 25, 0),
    ("2026-03-28", 11, 0, 90, 30, 0),
    ("2026-03-29", 0, 2, 20, 0, 0),
]
"""Expected (period, hour of the day, twin, accepted, median, deviation); twin 0 is SBD.

At 6:00 on day 7 there is no whole week before, and there is no hour after the last message."""


def connections() -> Iterator[Event]:
    """Yield sessions that exceed the range that is read, end with an hour, or lack a row."""
    yield from rows.session(at(7, 1), 1, 20, length=DAY, name="a")
    yield from rows.session(at(7, 1), 2, 20, length=8 * DAY - HOUR - 1, name="b")
    yield from rows.session(at(7, 1), 3, 20, length=8 * DAY - HOUR, name="c")
    yield from rows.session(at(-23, 1), 4, 21, length=30 * DAY + 90 * MINUTE, relay=TWO)
    yield rows.session_open(at(-22, 2), 5, 21, relay=TWO)
    yield rows.session_open(at(-30, 2), 6, 21, relay=TWO)
    yield rows.session_close(at(8, 3), 7, 21, length=HOUR, relay=TWO)
    yield from rows.session(at(9, 3), 8, 22, length=10 * MINUTE, relay=THREE)
    yield from rows.session(at(9, 3, 10 * MINUTE), 9, 22, length=50 * MINUTE, relay=THREE)
    yield from rows.session(at(9, 4), 10, 22, length=0, relay=THREE)
    # Their worker was considered dead: rightly, wrongly (it closed the session later), or twice.
    lost = {"length": HOUR, "reason": "worker_lost"}
    yield from rows.session(at(7, 5), 11, 23, relay=FOUR, **lost)
    yield from rows.session(at(7, 5), 12, 23, relay=FOUR, **lost)
    yield rows.session_close(at(7, 8), 12, 23, length=3 * HOUR, relay=FOUR)
    yield from rows.session(at(7, 10), 13, 23, relay=FOUR, **lost)
    yield rows.session_close(at(7, 12), 13, 23, length=2 * HOUR, relay=FOUR, reason="worker_lost")


SESSIONS = [
    (1, at(7, 1), at(8, 1), DAY),
    (2, at(7, 1), at(15, 0, -1), 8 * DAY - HOUR - 1),
    (3, at(7, 1), None, None),
    (8, at(9, 3), at(9, 3, 10 * MINUTE), 10 * MINUTE),
    (9, at(9, 3, 10 * MINUTE), at(9, 4), 50 * MINUTE),
    (10, at(9, 4), at(9, 4), 0),
    (11, at(7, 5), at(7, 6), HOUR),
    (12, at(7, 5), at(7, 8), 3 * HOUR),
    (13, at(7, 10), at(7, 11), HOUR),
]
"""Expected (uid, opened, closed, duration) of uids below 100.

Session 3 closes after the range that the job reads."""

CONCURRENCY = [
    ("2026-03-27", TWO, 2, 2),
    ("2026-03-29", THREE, 3, 1),
    ("2026-03-29", THREE, 4, 1),
    *(
        ("2026-03-27", FOUR, hour, peak)
        for hour, peak in ((5, 2), (6, 2), (8, 1), (10, 1), (11, 1))
    ),
]
"""Expected (period, relay, hour, peak) of these three relays.

On TWO, session 4 closes on day 7; 5 never closes and counts for 31 days, whose end on day 9 is no
event; 6 is too old to count; 7 has no opening. On THREE, 8 closes as 9 opens, 9 closes as 10 opens,
and 10 has length 0."""


def storms() -> Iterator[Event]:
    """Yield reconnects of twins.

    Twin 30 reconnects across midnight; 31 once too few times; 32 with too long a pause; 33 for two
    days.
    """
    for n in range(5):
        relay = (ONE, "e.example")[n % 2]
        yield rows.session_open(at(7, 23.5, n * 600 * SECOND), 100 + n, 30, relay=relay)
    for n in range(4):
        yield rows.session_open(at(8, 0, n), 110 + n, 31)
    for n in range(5):
        yield rows.session_open(at(8, 0, n * 600 * SECOND + n // 4), 120 + n, 32)
    for n in range(2 * 24 * 6):
        yield rows.session_open(at(7, 12, n * 600 * SECOND), 1000 + n, 33, session="x")
    for n in range(6):
        yield from rows.sbd_session(at(9, 1, n * MINUTE), 400 + n, "stormy")


STORMS = [
    ("2026-03-27", 30, "", at(7, 23.5), at(8, 0, 10 * MINUTE), 5, "rmb"),
    ("2026-03-27", 33, "x", at(7, 12), at(8, 23, 50 * MINUTE), 36 * 6, "rmb"),
    ("2026-03-29", 0, "stormy", at(9, 1), at(9, 1, 5 * MINUTE), 6, "sbd"),
]


def messages() -> Iterator[Event]:
    """Yield messages of twin 40 with different outcomes; all other messages arrive."""
    sent = {"src": 40, "dst": 41}
    yield rows.accepted(at(7, 3), 2_000_001, **sent)
    # Handed to a partner without rows, to one with rows, and to the first without success.
    for uid, remote, reason in (
        (2_000_002, rows.PARTNERS[0], "none"),
        (2_000_003, TWO, "none"),
        (2_000_004, rows.PARTNERS[0], "remote_5xx"),
    ):
        yield rows.accepted(at(7, 3), uid, **sent)
        yield rows.federated_out(at(7, 3, 1), uid, **sent, remote=remote, reason=reason)
    yield from rows.message(at(7, 3), 2_000_010, 40, 41, origin=TWO, final=ONE)
    # Their relay stopped before their deadline, and ran again hours later or on the next day.
    for uid, accepted, ended, reason in (
        (2_000_012, at(7, 4), at(7, 7.5), "queue_expired"),
        (2_000_013, at(7, 23.9), at(8, 10), "expired"),
    ):
        yield rows.accepted(accepted, uid, **sent)
        yield rows.dropped(ended, uid, **sent, reason=reason)
    yield rows.accepted(at(7, 4), 2_000_014, **sent)
    yield rows.delivered(at(7, 8), 2_000_014, **sent, latency=4 * HOUR)
    # Around the time at which a process was killed.
    yield rows.accepted(at(8, 7), 2_000_005, **sent)
    yield rows.accepted(at(8, 7, 1), 2_000_006, **sent)
    yield rows.accepted(at(8, 9, SECOND), 2_000_007, relay=TWO, **sent)
    yield rows.accepted(at(8, 9, SECOND + 1), 2_000_008, relay=TWO, **sent)
    # The newest event is a message of twin 1 in the hour from 20:00.
    yield rows.accepted(at(9, 18), 2_000_009, **sent)
    yield rows.accepted(at(9, 20), 2_000_011, **sent)


AUDIT = [
    ("2026-03-27", ONE, 1, 2, 1, 0, 0, 3, 0, 0, 0, 0, 0),
    ("2026-03-27", TWO, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
    ("2026-03-28", ONE, 0, 0, 0, 0, 1, 1, 2, 0, 40, 900, 1),
    ("2026-03-28", TWO, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0),
    ("2026-03-29", ONE, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0),
    ("2026-03-29", TWO, 0, 0, 0, 0, 0, 0, 2, 11, 11, 11, 0),
]
"""Expected (period, relay, late, expired, handed_over, in_flight, in_gap, unaccounted, gaps,
gap_events, gap_estimate, gap_at_most, gaps_unknown).

Three messages of day 7 are lost: the one without any further row, the one that TWO accepted and
never mentioned again, and the one that the partner refused. On day 8, a message accepted two hours
before a process was killed is past its life at that time, and a message accepted after it is not
affected. On day 9 one message is two hours old and one is younger."""


def write(folder: Path) -> None:
    """Write a file for each day."""
    days: defaultdict[int, list[Event]] = defaultdict(list)
    for row in (*senders(), *connections(), *storms(), *messages()):
        assert row.event_time is not None
        days[(row.event_time - at(0)) // DAY].append(row)
    for day, found in days.items():
        path = folder / f"date={FIRST + timedelta(days=day)}" / "hour=00" / "part.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table([*zip(*found, strict=True)], schema=rows.ARROW), path)
