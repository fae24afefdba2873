"""Events of SBD that a relay worker records: its connections, and each packet.

    opened      a client has proved that it holds its key: session_open
    closed      its connection has ended: session_close, with the reason
    forwarded   packets of one read of a socket: accepted, a row for each, by the source's worker
    dropped     packets that end undelivered: dropped, with the reason, by the worker that knows it

So a packet has one row, wherever its destination is, and a second one if it is lost. It has no uid,
because SBD does not number packets, and no packet is delivered twice. Rows have the keys of both
ends in place of twins (`Journal.key_code`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proto.sbd.bounds import HEADER_BYTES
from relay.analytics.packing import ENDS, ROW
from relay.analytics.records import NO_LATENCY, NO_NAME, REASON_CODE, RECORD_BYTES, SBD, Kind
from relay.analytics.uids import sbd_session_uid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from proto.sbd.errors import DropReason
    from relay.analytics.journal import Journal
    from relay.sbd.connection import Connection
    from relay.sbd.options import EndReason, LossReason

ROWS_AT_ONCE: Final = 4096
"""Maximum packets for which room is reserved at once; a buffer holds more."""

_ACCEPTED: Final = bytes((Kind.ACCEPTED | SBD, 0))
_pack_row = ROW.pack_into


class SbdEvents:
    """Recorder of the SBD events of one worker; used as `relay.sbd.switch.Switch.recorder`."""

    def __init__(self, boot_id: str, journal: Journal) -> None:
        """
        Args:
            boot_id: boot id of the worker.
            journal: journal of its process.
        """
        self._boot_id = boot_id
        self._journal = journal
        self._opened: dict[Connection, tuple[int, int]] = {}  # uid, when

    def opened(self, connection: Connection) -> None:
        """Record that a client has proved that it holds its key, and is reachable."""
        now_us = self._journal.now_us()
        epoch = connection.epoch or round(connection.opened_at * 1e6)  # 0 if Redis is down
        uid = sbd_session_uid(self._boot_id, connection.key, epoch)
        self._opened[connection] = uid, now_us
        self._journal.put_sbd(Kind.SESSION_OPEN, now_us, uid, connection.key)

    def closed(self, connection: Connection, reason: DropReason | EndReason) -> None:
        """Record that a connection has ended, unless it was never reachable."""
        opened = self._opened.pop(connection, None)
        if opened is None:
            return
        (uid, opened_us), now_us = opened, self._journal.now_us()
        length_us, code = max(0, now_us - opened_us), REASON_CODE[reason]
        self._journal.put_sbd(Kind.SESSION_CLOSE, now_us, uid, connection.key, length_us, code)

    def forwarded(
        self, source: bytes, targets: Mapping[bytes, Sequence[bytes]], count: int
    ) -> None:
        """Record packets of one client that are forwarded.

        Args:
            source: key of the client.
            targets: packets by their destination; each packet begins with its source.
            count: number of packets.
        """
        journal = self._journal
        if count > ROWS_AT_ONCE:
            for destination, packets in targets.items():
                for start in range(0, len(packets), ROWS_AT_ONCE):
                    some = packets[start : start + ROWS_AT_ONCE]
                    self.forwarded(source, {destination: some}, len(some))
            return
        journal.reserve(count)  # first, as the numbers of keys may start again here
        now_us, source_code = journal.now_us(), journal.key_code(source)
        buffer, at = journal.buffer, journal.at
        for destination, packets in targets.items():
            tail = ENDS.pack(0, journal.key_code(destination), source_code, NO_NAME) + _ACCEPTED
            for packet in packets:
                _pack_row(buffer, at, now_us, 0, len(packet), NO_LATENCY, tail)
                at += RECORD_BYTES
        journal.at = at

    def dropped(self, destination: bytes, packets: Sequence[bytes], reason: LossReason) -> None:
        """Record packets for one key that end undelivered; each packet begins with its source."""
        journal, suffix = self._journal, bytes((Kind.DROPPED | SBD, REASON_CODE[reason]))
        now_us = journal.now_us()
        for packet in packets:
            journal.reserve(1)
            ends = journal.key_code(destination), journal.key_code(packet[:HEADER_BYTES])
            tail = ENDS.pack(0, *ends, NO_NAME) + suffix
            _pack_row(journal.buffer, journal.at, now_us, 0, len(packet), NO_LATENCY, tail)
            journal.at += RECORD_BYTES
