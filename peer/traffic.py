"""Check whether bytes move on a TCP connection while no message is complete.

A large message on a slow line takes longer than a silent connection is kept open. The Linux kernel
counts the bytes received and the bytes acknowledged by the other end (`struct tcp_info` of
linux/tcp.h); on other systems nothing is known, and silence means that the connection is lost.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from typing import Final, NamedTuple

_TCP_INFO: Final = getattr(socket, "TCP_INFO", None)
_INFO: Final = struct.Struct("=16xI4xI92xQQ8xI")
"""Layout of tcpi_snd_mss, tcpi_unacked (segments), tcpi_bytes_acked, tcpi_bytes_received and
tcpi_notsent_bytes in `struct tcp_info`."""


class Traffic(NamedTuple):
    """Amounts of data that a connection has carried so far."""

    received_bytes: int
    acknowledged_bytes: int
    pending_bytes: int
    """Bytes written and not acknowledged yet, approximately."""


def read(transport: asyncio.Transport) -> Traffic | None:
    """Read the counters of a connection from the kernel; None if they are not available."""
    connection = transport.get_extra_info("socket")
    if _TCP_INFO is None or connection is None:
        return None
    try:
        # The event loop may return a socket substitute that has no options.
        with socket.socket(fileno=os.dup(connection.fileno())) as own:
            found = own.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _INFO.size)
        segment_bytes, segments, acknowledged, received, unsent = _INFO.unpack(found)
    except (OSError, struct.error):
        return None
    pending = segments * segment_bytes + unsent + transport.get_write_buffer_size()
    return Traffic(received, acknowledged, pending)


def moves(before: Traffic | None, now: Traffic | None) -> bool:
    """Return whether data has moved between two readings, as far as that can be known.

    The kernel of a frozen relay continues to acknowledge data until its buffer is full. So
    acknowledgements count only while they do not yet cover all data that was pending at the first
    reading: then the line is slow.
    """
    if before is None or now is None:
        return False
    acknowledged = now.acknowledged_bytes - before.acknowledged_bytes
    return now.received_bytes > before.received_bytes or 0 < acknowledged < before.pending_bytes
