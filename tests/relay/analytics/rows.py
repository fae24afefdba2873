"""Synthetic events for tests of the jobs, and a lake of Parquet files with them.

Constructors (`accepted`, `delivered`, `session`, ...) make rows and fill in the values that a test
does not care about. `ordinary` is a day as relays see it. Each of `THEMES` makes one difficult day:
`lake` writes them all, one day each from FIRST on, so that one run of a job covers all of them.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from relay.analytics.spark.window import Window

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

FIRST = date(2026, 3, 27)
"""First day of the lake.

In Europe the clocks go forward two days later, and the month ends two days after that."""

RELAYS = ("a.example", "b.example", "c.example")
PARTNERS = ("x.example", "y.example", "z.example")

ARROW = pa.schema(
    [
        ("event_time", pa.timestamp("us", "UTC")),
        ("relay", pa.string()),
        ("kind", pa.string()),
        ("src_twin", pa.int64()),
        ("dst_twin", pa.int64()),
        ("src_session", pa.string()),
        ("size_bytes", pa.int64()),
        ("latency_us", pa.int64()),
        ("reason", pa.string()),
        ("remote", pa.string()),
        ("uid", pa.int64()),
        ("protocol", pa.string()),
        ("src_key", pa.string()),
        ("dst_key", pa.string()),
        ("link", pa.string()),
        ("contract", pa.string()),
        ("operation", pa.string()),
        ("host_id", pa.string()),
        ("answer_bytes", pa.int64()),
    ]
)
"""Arrow schema, repeated here on purpose: a change of the schema has to be made twice."""


class Event(NamedTuple):
    """A row; `event_time` is in microseconds since 1970."""

    event_time: int | None
    relay: str | None
    kind: str | None
    src_twin: int | None
    dst_twin: int | None
    src_session: str | None
    size_bytes: int | None
    latency_us: int | None
    reason: str | None
    remote: str | None
    uid: int | None
    protocol: str | None = "rmb"
    src_key: str | None = None
    dst_key: str | None = None
    link: str | None = None
    contract: str | None = None
    operation: str | None = None
    host_id: str | None = None
    answer_bytes: int | None = None


def at(text: str) -> int:
    """Return the microseconds since 1970 of a time in UTC, in ISO 8601."""
    moment = datetime.fromisoformat(text).replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def midnight(day: date) -> int:
    """Return the microseconds since 1970 of the start of a day."""
    return at(day.isoformat())


def accepted(
    us: int,
    uid: int,
    src: int = 1,
    dst: int = 2,
    *,
    relay: str = RELAYS[0],
    size: int = 100,
    session: str = "",
) -> Event:
    return Event(us, relay, "accepted", src, dst, session, size, None, "none", None, uid)


def delivered(
    us: int,
    uid: int,
    src: int = 1,
    dst: int = 2,
    *,
    latency: int | None = 1000,
    relay: str = RELAYS[0],
    size: int = 100,
    session: str = "",
) -> Event:
    return Event(us, relay, "delivered", src, dst, session, size, latency, "none", None, uid)


def dropped(
    us: int,
    uid: int,
    src: int = 1,
    dst: int = 2,
    *,
    reason: str = "expired",
    relay: str = RELAYS[0],
    size: int = 100,
) -> Event:
    return Event(us, relay, "dropped", src, dst, "", size, None, reason, None, uid)


def federated_out(
    us: int,
    uid: int,
    src: int = 1,
    dst: int = 2,
    *,
    remote: str = PARTNERS[0],
    reason: str = "none",
    latency: int | None = 20_000,
    relay: str = RELAYS[0],
    size: int = 100,
) -> Event:
    return Event(us, relay, "federated_out", src, dst, "", size, latency, reason, remote, uid)


def session_open(
    us: int, uid: int, twin: int = 1, *, session: str = "", relay: str = RELAYS[0]
) -> Event:
    return Event(us, relay, "session_open", twin, 0, session, 0, None, "none", None, uid)


def session_close(
    us: int,
    uid: int,
    twin: int = 1,
    *,
    length: int | None,
    session: str = "",
    relay: str = RELAYS[0],
    reason: str = "client_close",
) -> Event:
    return Event(us, relay, "session_close", twin, 0, session, 0, length, reason, None, uid)


def sbd(
    us: int,
    kind: str,
    src: str = "alice",
    dst: str | None = "bob",
    *,
    relay: str = RELAYS[0],
    size: int = 100,
    latency: int | None = None,
    reason: str = "none",
    uid: int = 0,
) -> Event:
    """Return a row of SBD."""
    return Event(
        *(us, relay, kind, None, None, "", size, latency, reason, None, uid, "sbd", src, dst)
    )


def sbd_session(us: int, uid: int, key: str = "alice", length: int | None = MINUTE) -> list[Event]:
    """Return the rows of an SBD connection, still open if `length` is None."""
    found = [sbd(us, "session_open", key, None, size=0, uid=uid)]
    if length is not None:
        end = {"size": 0, "latency": length, "reason": "client_close", "uid": uid}
        found.append(sbd(us + length, "session_close", key, None, **end))
    return found


def message(
    us: int,
    uid: int,
    src: int = 1,
    dst: int = 2,
    *,
    latency: int = 1000,
    size: int = 100,
    origin: str = RELAYS[0],
    final: str = RELAYS[0],
) -> list[Event]:
    """Return the rows of a message that one relay accepts and the same or another delivers."""
    return [
        accepted(us, uid, src, dst, relay=origin, size=size),
        delivered(us + latency, uid, src, dst, relay=final, size=size, latency=latency),
    ]


def session(
    us: int,
    uid: int,
    twin: int = 1,
    *,
    length: int | None = MINUTE,
    name: str = "",
    relay: str = RELAYS[0],
    reason: str = "client_close",
) -> list[Event]:
    """Return the rows of a connection, still open if `length` is None."""
    rows = [session_open(us, uid, twin, session=name, relay=relay)]
    if length is not None:
        rows.append(
            session_close(
                us + length, uid, twin, length=length, session=name, relay=relay, reason=reason
            )
        )
    return rows


def ordinary(start: int, seed: int = 8, messages: int = 800) -> list[Event]:
    """Return a day of a few twins: most messages arrive, some twice, late, elsewhere or never."""
    chance = random.Random(seed)
    rows: list[Event] = []
    for number in range(messages):
        uid = chance.getrandbits(64) - 2**63
        src, dst = (min(int(chance.paretovariate(0.9)), 60) for _ in "sd")
        origin, final = chance.choice(RELAYS), chance.choice(RELAYS)
        us = start + chance.randrange(DAY)
        size = chance.choice((0, 64, 100, 100, 4096, 5 * 2**20))
        rows.append(accepted(us, uid, src, dst, relay=origin, size=size))
        remote = chance.choice(PARTNERS)
        fate = number % 20
        if fate == 0:
            rows.append(dropped(us + HOUR, uid, src, dst, relay=origin, size=size))
        elif fate == 1:
            reason = chance.choice(("queue_full", "limit_count", "unknown_twin", "a_later_reason"))
            rows.append(dropped(us, uid, src, dst, reason=reason, relay=origin, size=size))
        elif fate == 2:
            failed = chance.choice(("remote_5xx", "remote_timeout"))
            rows.append(
                federated_out(
                    us + 5,
                    uid,
                    src,
                    dst,
                    remote=remote,
                    reason=failed,
                    latency=chance.choice((None, 3 * SECOND)),
                )
            )
        elif fate > 3:
            latency = int(chance.lognormvariate(8, 3))
            if final != origin:
                rows.append(
                    federated_out(
                        us + 9,
                        uid,
                        src,
                        dst,
                        remote=remote,
                        relay=origin,
                        latency=chance.randrange(1, 99_999),
                    )
                )
            rows.extend(
                delivered(
                    us + (latency + again * SECOND) % (2 * DAY),
                    uid,
                    src,
                    dst,
                    relay=final,
                    size=size,
                    latency=latency,
                )
                for again in range(2 if fate == 4 else 1)
            )
    for number in range(messages // 10):
        twin = 1 + number % 12
        length = chance.choice((None, 0, 7, 40 * SECOND, HOUR, 30 * HOUR))
        rows += session(
            start + chance.randrange(DAY),
            chance.getrandbits(62),
            twin,
            length=length,
            name=chance.choice(("", "s")),
            relay=chance.choice(RELAYS),
        )
    return rows


def empty_day(start: int) -> list[Event]:
    return []


def one_twin(start: int) -> list[Event]:
    """Return messages from one twin to itself, all in one hour, the slowest ones last."""
    rows = session(start, 40, 7, length=DAY)
    for n in range(100):
        rows += message(start + n, 4000 + n, 7, 7, latency=n * n)
    return rows


def time_edges(start: int) -> list[Event]:
    """Return a message in the first and the last microsecond of each of the 24 hours (UTC)."""
    return [
        row
        for hour in range(24)
        for us in (start + hour * HOUR, start + (hour + 1) * HOUR - 1)
        for row in message(us, us, 3, 4, latency=0)
    ]


def duplicates(start: int) -> list[Event]:
    """Return uids used twice, rows recorded twice, and messages delivered by two relays at once."""
    noon = start + 12 * HOUR
    return [
        *message(noon, 1, 5, 6, final=RELAYS[1]),
        *message(noon, 1, 5, 6, final=RELAYS[0]),
        *message(noon + HOUR, 2, 5, 6, size=10) * 3,
        *message(noon, 3, 5, 6, origin=RELAYS[1], final=RELAYS[2]),
        *message(noon - HOUR, 3, 5, 6, origin=RELAYS[2], final=RELAYS[2], size=77),
        *message(noon, 4, 5, 6),
        *message(noon + DAY, 4, 5, 6, size=1),
        *message(noon + 3 * DAY, 4, 5, 6, size=2),
        *session(noon, 50, 5, length=HOUR) * 2,
        session_open(noon + 1, 50, 5, relay=RELAYS[1]),
        session_open(noon, 51, 5),
        session_open(noon, 51, 5),
        *[federated_out(noon, 5, 5, 6, reason="remote_5xx")] * 3,
        *[dropped(noon, 6, 5, 6)] * 2,
        accepted(noon, 6, 5, 6),
    ]


def skew(start: int) -> list[Event]:
    """Return rows of relays whose clocks differ.

    Deliveries come before acceptance, also across midnight, and lengths are negative.
    """
    end = start + DAY
    return [
        accepted(start + 10 * HOUR, 70, 8, 9),
        delivered(start + 10 * HOUR - 5 * SECOND, 70, 8, 9, latency=-5 * SECOND, relay=RELAYS[1]),
        accepted(end + 2 * SECOND, 71, 8, 9),
        delivered(end - SECOND, 71, 8, 9, latency=0, relay=RELAYS[1]),
        accepted(end + 2 * HOUR, 72, 8, 9),
        delivered(end - 1, 72, 8, 9, latency=0, relay=RELAYS[1]),
        accepted(start - 30 * HOUR, 73, 8, 9),
        delivered(start + HOUR, 73, 8, 9, latency=31 * HOUR),
        session_open(end + SECOND, 74, 8),
        session_close(end - SECOND, 74, 8, length=-2 * SECOND),
        session_open(start + HOUR, 75, 8),
        session_close(start, 75, 8, length=0),
    ]


def all_late(start: int) -> list[Event]:
    """Return messages accepted the day before and delivered hours later, or expired."""
    rows = []
    for n in range(40):
        us = start - (n + 1) * 10 * MINUTE
        rows += message(us, 9000 + n, 10, 11 + n % 3, latency=20 * HOUR, final=RELAYS[n % 2])
        rows += session(us, 9100 + n, 10, length=20 * HOUR)
    rows += [accepted(start - 5 * HOUR, 9999, 10, 11), dropped(start + HOUR, 9999, 10, 11)]
    return rows


def nulls(start: int) -> list[Event]:
    """Return rows of each kind with each column null in turn, and one row with only its time."""
    us = start + 6 * HOUR
    whole = [
        *message(us, 60, 12, 13),
        dropped(us, 61, 12, 13),
        federated_out(us, 62, 12, 13),
        *session(us, 63, 12),
    ]
    return [
        *whole,
        *(row._replace(**{name: None}) for row in whole for name in Event._fields),
        Event(us, *[None] * (len(Event._fields) - 1)),
    ]


def largest(start: int) -> list[Event]:
    """Return ids up to and beyond 32 bits, uids at the ends of 64 bits, and sums beyond 2^53."""
    us = start + 3 * HOUR
    twins = (0, 2**31 - 1, 2**31, 2**32 - 1, 2**32)
    rows = []
    for n, src in enumerate(twins):
        for uid in (-(2**63) + n, 2**63 - 1 - n, -n - 1):
            rows += message(us + n, uid, src, twins[-1 - n], size=2**53 + 1, latency=2**40 + n)
    return rows


def mixed(start: int) -> list[Event]:
    """Return both protocols: rows of SBD of each kind, some with the numbers of RMB messages."""
    noon = start + 12 * HOUR
    rows = ordinary(start, seed=9, messages=60)
    for n in range(150):
        key = f"key-{n % 120:03}"
        rows.append(sbd(noon + n * MINUTE, "accepted", key, f"key-{n % 7}", size=50 + n % 5))
        if n % 10 == 0:
            reason = ("absent", "slow_reader", "redis_away", "expired", "a_later_reason")[
                n // 10 % 5
            ]
            rows.append(sbd(noon + n * MINUTE + 1, "dropped", key, "bob", reason=reason))
        rows += sbd_session(noon + n * MINUTE, 7_000 + n, key, length=(None, 0, HOUR)[n % 3])
    rows += [row for n in range(6) for row in sbd_session(noon + n * SECOND, 7_200 + n, "stormy")]
    for kind in ("accepted", "delivered", "dropped", "federated_out", "session_open"):
        rows += message(noon, 7_300) + session(noon, 7_301)
        remote = PARTNERS[0] if kind == "federated_out" else None
        for n in range(3):
            rows.append(sbd(noon + n, kind, uid=7_300 + n % 2)._replace(remote=remote))
        rows.append(sbd(noon, kind, None, None, relay=None))  # type: ignore[arg-type]
    rows.append(sbd(start + 23 * HOUR, "delivered", "")._replace(remote=PARTNERS[0]))
    return rows


def bare(start: int) -> list[Event]:
    """Return rows to be written without the columns that a first schema may have lacked."""
    return ordinary(start, seed=4, messages=60)


THEMES: dict[str, Callable[[int], list[Event]]] = {
    "ordinary": ordinary,
    "empty": empty_day,
    "time edges": time_edges,
    "duplicates": duplicates,
    "one twin": one_twin,
    "skew": skew,
    "nulls": nulls,
    "largest": largest,
    "mixed": mixed,
    "bare": bare,
    "late": all_late,
}
"""Makers of the days, one day each, in this order."""

LACKING = (
    *("src_session", "remote", "latency_us", "reason"),
    *("protocol", "src_key", "dst_key"),
    *("link", "contract", "operation", "host_id", "answer_bytes"),
)
"""Columns that the files of the day "bare" do not have."""

WINDOW = Window(FIRST, FIRST + timedelta(days=len(THEMES)))
"""The days of the lake, and one more day that has only rows spilt over from the day before."""


def write(
    folder: Path, rows: Iterable[Event], *, name: str = "part", without: Collection[str] = ()
) -> None:
    """Write rows as files of a lake.

    Args:
        folder: Folder `events` of the lake.
        rows: Rows in any order; a row without a time goes to the same file as the row before it.
        name: Name of the file in the folder of each hour.
        without: Columns that the files do not have.
    """
    hours: defaultdict[int, list[Event]] = defaultdict(list)
    hour = midnight(FIRST) // HOUR
    for row in rows:
        hour = hour if row.event_time is None else row.event_time // HOUR
        hours[hour].append(row)
    for hour, found in hours.items():
        start = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(hours=hour)
        path = folder / f"date={start:%Y-%m-%d}" / f"hour={start:%H}" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        table = pa.table([*zip(*found, strict=True)], schema=ARROW)
        pq.write_table(table.drop_columns(list(without)), path)


def lake(folder: Path) -> None:
    """Write the days of `THEMES` into a folder."""
    for number, (name, made) in enumerate(THEMES.items()):
        rows = made(midnight(FIRST) + number * DAY)
        write(folder, rows, name=name.replace(" ", "-"), without=LACKING if name == "bare" else ())
