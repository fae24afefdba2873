"""Events that a relay recorded: rows of segments, and of the Parquet files made of these."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from proto.rmb import types_pb2 as pb
from relay.analytics.records import NO_LATENCY, RECORD, RECORD_BYTES, SBD
from relay.analytics.segments import SegmentReader
from relay.analytics.uids import message_uid


class Row(NamedTuple):
    """One row of events; times in microseconds."""

    at_us: int
    relay: str
    kind: str
    source: int | None
    destination: int | None
    session: str
    size_bytes: int
    latency_us: int | None
    reason: str
    remote: str | None
    uid: int
    source_key: str | None = None
    destination_key: str | None = None
    protocol: str = "rmb"


def rows_of(path: Path) -> list[Row]:
    """Return the rows of one segment, up to a torn record."""
    reader = SegmentReader(path.read_bytes(), path)
    header = reader.header
    found = []
    for part in reader.records():
        for at in range(0, len(part), RECORD_BYTES):
            at_us, uid, size, latency, source, destination, session, remote, kind, reason = (
                RECORD.unpack_from(part, at)
            )
            row = Row(
                at_us,
                header.relay,
                header.kinds[kind & ~SBD],
                source,
                destination,
                "",
                size,
                None if latency == NO_LATENCY else latency,
                header.reasons[reason],
                reader.names["remotes"][remote] or None,
                uid,
            )
            if kind & SBD:
                keys = (reader.names["keys"][code] or None for code in (session, destination))
                row = row._replace(source=None, destination=None)._replace(
                    **dict(zip(("source_key", "destination_key"), keys, strict=True)),
                    protocol="sbd",
                )
            else:
                row = row._replace(session=reader.names["sessions"][session])
            found.append(row)
    return found


def rows(lake: Path) -> list[Row]:
    """Return all rows of a lake by time; those being moved may be missing or occur twice."""
    while True:
        try:
            return _rows_there(lake)
        except FileNotFoundError:
            continue  # moved between listing and reading


def _rows_there(lake: Path) -> list[Row]:
    found = []
    for path in [*lake.glob("segments/*.seg"), *lake.glob("segments/*.seg.open")]:
        found += rows_of(path)
    for path in lake.glob("events/date=*/hour=*/*.parquet"):
        for each in pq.ParquetFile(path).read().to_pylist():
            at_us = round(each["event_time"].timestamp() * 1e6)
            found.append(
                Row(
                    *(at_us, each["relay"], each["kind"], each["src_twin"], each["dst_twin"]),
                    *(each["src_session"], each["size_bytes"], each["latency_us"]),
                    *(each["reason"], each["remote"], each["uid"]),
                    *(each["src_key"], each["dst_key"], each["protocol"]),
                )
            )
    # Within one microsecond a message arrives before it leaves.
    begins = ("accepted", "federated_in")
    return sorted(found, key=lambda row: (row.at_us, row.kind not in begins, row.kind))


def counted(found: Iterable[Row]) -> Counter[str]:
    """Count the rows of each kind; messages that ended are counted with their reason."""
    return Counter(
        row.kind if row.reason == "none" or row.kind.startswith("session") else
        f"{row.kind} {row.reason}"
        for row in found
    )  # fmt: skip


def of_message(found: Iterable[Row], envelope: pb.Envelope) -> list[Row]:
    """Return the rows of one message."""
    uid = message_uid(
        envelope.source.twin,
        envelope.destination.twin,
        envelope.WhichOneof("message"),
        envelope.uid,
    )
    return [row for row in found if row.uid == as_signed(uid)]


def as_signed(uid: int) -> int:
    """Convert a number from 0 to 2^64 - 1 to the signed form that rows have."""
    return uid - (uid >> 63 << 64)


def unaccounted(found: Iterable[Row]) -> list[int]:
    """Return uids of accepted RMB messages without another event: the audit must find none."""
    kinds: defaultdict[int, set[str]] = defaultdict(set)
    for row in found:
        if row.protocol == "rmb" and (row.kind != "federated_out" or row.reason == "none"):
            kinds[row.uid].add(row.kind)
    ends = {"delivered", "dropped", "federated_out"}
    return [uid for uid, seen in kinds.items() if "accepted" in seen and not seen & ends]
