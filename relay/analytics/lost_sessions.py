"""Closing events of sessions whose worker died before it could record them.

    its last segment    sessions that began in it and did not end: the process that closes the
                        segment of a killed recorder adds their closing rows (`unended`,
                        `closing_rows`)
    all others          housekeeping finds them in the session history, and records their ends in a
                        separate segment (`record`)

A session may get both rows, or be closed once more by a worker that was only presumed dead. Jobs
prefer the closing row of the worker to those with the reason `worker_lost`, of which they take the
earliest. This module needs no package of the analytics extra, except, in `record`, the one that
computes uids.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from proto.rmb.reasons import SessionReason
from relay.analytics.records import KINDS, NO_NAME, REASON_CODE, RECORD, RECORD_BYTES, SBD, Kind

if TYPE_CHECKING:
    from proto.rmb.address import SessionKey

ROWS_AT_ONCE: Final = 20_000
"""Maximum number of closing rows in one block (1 MiB)."""

_KIND_AT: Final = RECORD_BYTES - 2


class Open(NamedTuple):
    """Opening row of a session, as numbers of its segment; `protocol` is 0 or `SBD`."""

    at_us: int
    uid: int
    twin: int
    session: int
    protocol: int = 0


class Lost(NamedTuple):
    """A session of a dead worker.

    Attributes:
        key: twin and name of the session; for an SBD client, its public key.
        epoch: epoch of the connection.
    """

    boot_id: str
    key: SessionKey | bytes
    epoch: int
    opened_us: int
    ended_us: int


def unended(blocks: Iterable[memoryview], kinds: Sequence[str]) -> list[Open]:
    """Return the sessions that began in some records and did not end in them.

    Args:
        blocks: blocks of records, in their order.
        kinds: names of the kinds, at the index of their numbers.
    """
    opening, closing = (
        _place(kinds, KINDS[kind]) for kind in (Kind.SESSION_OPEN, Kind.SESSION_CLOSE)
    )
    found: dict[int, Open] = {}
    for block in blocks:
        for number, kind in enumerate(bytes(block[_KIND_AT::RECORD_BYTES])):
            if kind & ~SBD == opening:
                row = RECORD.unpack_from(block, number * RECORD_BYTES)
                found[row[1]] = Open(row[0], row[1], row[4], row[6], kind & SBD)
            elif kind & ~SBD == closing:
                found.pop(RECORD.unpack_from(block, number * RECORD_BYTES)[1], None)
    return list(found.values())


def closing_rows(
    sessions: Sequence[Open], until_us: int, kinds: Sequence[str], reasons: Sequence[str]
) -> Iterator[bytes]:
    """Yield records that end sessions, as many as fit into a block at a time.

    Args:
        sessions: sessions of one segment.
        until_us: time of their end, in microseconds since 1970.
        kinds, reasons: names of the segment's numbers.
    """
    kind = _place(kinds, KINDS[Kind.SESSION_CLOSE])
    reason = _place(reasons, SessionReason.WORKER_LOST)
    if kind is None or reason is None:
        return  # a segment of a release without such rows
    for start in range(0, len(sessions), ROWS_AT_ONCE):
        yield b"".join(
            RECORD.pack(
                *(max(until_us, each.at_us), each.uid, 0, max(0, until_us - each.at_us)),
                *(each.twin, 0, each.session, NO_NAME, kind | each.protocol, reason),
            )
            for each in sessions[start : start + ROWS_AT_ONCE]
        )


def record(config: Any, sessions: Iterable[Lost]) -> None:
    """Record the ends of sessions; returns when they are in a closed segment.

    If it is repeated after a crash, it writes the same rows again, which count once.

    Args:
        config: settings of the relay.
        sessions: sessions that ended.

    Raises:
        OSError: some of the rows could not be written to the disk.
    """
    from relay.analytics.recording import journal
    from relay.analytics.uids import sbd_session_uid, session_uid

    events = journal(config, f"housekeeping-{time.time_ns()}")
    events.begin()
    count = 0
    for each in sessions:
        length_us, code = each.ended_us - each.opened_us, REASON_CODE[SessionReason.WORKER_LOST]
        if isinstance(each.key, bytes):
            uid = sbd_session_uid(each.boot_id, each.key, each.epoch)
            events.put_sbd(Kind.SESSION_CLOSE, each.ended_us, uid, each.key, length_us, code)
        else:
            twin, name = each.key
            uid = session_uid(each.boot_id, each.key, each.epoch)
            events.put(
                *(Kind.SESSION_CLOSE, each.ended_us, uid, twin, 0, name or "", 0, length_us, code)
            )
        count += 1
    events.finish()
    written = events.counts()[Kind.SESSION_CLOSE]
    if written < count:
        raise OSError(f"events of {count - written} lost sessions cannot be written")


def _place(names: Sequence[str], name: str) -> int | None:
    return names.index(name) if name in names else None
