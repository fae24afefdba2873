"""Two weeks of events whose jobs look beyond a day: what tests know of each is said here.

The days from FIRST on are numbered; WINDOW is days 7 to 9. A file for each day is enough: jobs go
by the time of a row.
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
    """Microseconds since 1970 of a time in the weeks."""
    return rows.midnight(FIRST) + day * DAY + round(hour * HOUR) + us


GAPS = [
    (ONE, "1", at(8, 9), at(8, 9, SECOND), None, "killed", 40, 900),
    (ONE, "1-packer", at(8, 9), at(8, 9), None, "killed", None, None),
    (ONE, "2", at(8, 10), at(8, 20), 0, "pressure", None, None),
    (TWO, "1", at(9, 1), at(9, 1), 5, "disk", None, None),
    (TWO, "1", at(9, 2), at(9, 2), 6, "disk", None, None),
]
"""Two processes were killed, one of them of a release that made no estimates; one lost nothing
after all; one lost 11 rows on a relay's idle day."""


def senders() -> Iterator[Event]:
    """Twin 1 sends 25 messages an hour from day 0, 7:00, to day 9, 20:59, but for a pause.

    Twin 2 sends once in a while: 19 in an hour is nothing, 20 are. Twin 3 sends 0, 30 or 60 in
    turn, so neither surprises. All messages of an hour have one uid. Keys of SBD, five new ones an
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
"""(period, hour of the day, twin, accepted, median, deviation); twin 0 is SBD. At 6:00 on day 7
there is no whole week before, and after the last message of all no hour."""


def connections() -> Iterator[Event]:
    """Sessions that are longer than what is read, end with an hour, or lack a row."""
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
    # Their worker was found dead: it was, or it ended its session later, or it was found twice.
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
"""(uid, opened, closed, duration) of those with a uid below 100: 3 ends when nobody looks any
more."""

CONCURRENCY = [
    ("2026-03-27", TWO, 2, 2),
    ("2026-03-29", THREE, 3, 1),
    ("2026-03-29", THREE, 4, 1),
    *(
        ("2026-03-27", FOUR, hour, peak)
        for hour, peak in ((5, 2), (6, 2), (8, 1), (10, 1), (11, 1))
    ),
]
"""(period, relay, hour, peak) of these three. On TWO 4 closes on day 7, and 5, which never does,
counts for 31 days, whose end on day 9 is no event; 6 has been forgotten, and nobody saw 7 begin. On
THREE 8 closes as 9 opens, 9 as 10 opens, and 10 has no length."""


def storms() -> Iterator[Event]:
    """Twin 30 reconnects across midnight; 31 one time too few; 32 with too long a pause; 33 for
    two days."""
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
    """What becomes of messages of twin 40; all others arrive."""
    sent = {"src": 40, "dst": 41}
    yield rows.accepted(at(7, 3), 2_000_001, **sent)
    # Handed to a partner that has no rows, to one that has, and to the first without success.
    for uid, remote, reason in (
        (2_000_002, rows.PARTNERS[0], "none"),
        (2_000_003, TWO, "none"),
        (2_000_004, rows.PARTNERS[0], "remote_5xx"),
    ):
        yield rows.accepted(at(7, 3), uid, **sent)
        yield rows.federated_out(at(7, 3, 1), uid, **sent, remote=remote, reason=reason)
    yield from rows.message(at(7, 3), 2_000_010, 40, 41, origin=TWO, final=ONE)
    # Their relay was stopped before their deadline, and ran again hours later, or the next day.
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
    # The newest event of all is a message of twin 1 in the hour of 20:00.
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
"""(period, relay, late, expired, handed_over, in_flight, in_gap, unaccounted, gaps, gap_events,
gap_estimate, gap_at_most, gaps_unknown). Of day 7 the one without any row, the one TWO has taken
and said nothing of since, and the one the partner refused are lost. On day 8 what was accepted two
hours before the killing is beyond its life when it happens, and what was accepted after it has
nothing to do with it. On day 9 one is two hours old and one younger."""


def write(folder: Path) -> None:
    """Writes a file for each day."""
    days: defaultdict[int, list[Event]] = defaultdict(list)
    for row in (*senders(), *connections(), *storms(), *messages()):
        assert row.event_time is not None
        days[(row.event_time - at(0)) // DAY].append(row)
    for day, found in days.items():
        path = folder / f"date={FIRST + timedelta(days=day)}" / "hour=00" / "part.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table([*zip(*found, strict=True)], schema=rows.ARROW), path)
