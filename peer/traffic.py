"""Whether bytes move on a TCP connection, though no message is complete.

A large message on a slow line takes longer than a silent connection is kept. The kernel counts what
has arrived and what the other end has acknowledged (`struct tcp_info` of linux/tcp.h); elsewhere
nothing is known, and silence means that the connection is lost.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from typing import Final, NamedTuple

_TCP_INFO: Final = getattr(socket, "TCP_INFO", None)
_INFO: Final = struct.Struct("=16xI4xI92xQQ8xI")
"""tcpi_snd_mss, tcpi_unacked (segments), tcpi_bytes_acked, tcpi_bytes_received,
tcpi_notsent_bytes."""


class Traffic(NamedTuple):
    """What a connection has carried so far."""

    received_bytes: int
    acknowledged_bytes: int
    pending_bytes: int
    """Written, and not acknowledged yet; about."""


def read(transport: asyncio.Transport) -> Traffic | None:
    """Asks the kernel; None: it does not say."""
    connection = transport.get_extra_info("socket")
    if _TCP_INFO is None or connection is None:
        return None
    try:
        # The socket of a loop may be a stand-in that has no options.
        with socket.socket(fileno=os.dup(connection.fileno())) as own:
            found = own.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _INFO.size)
        segment_bytes, segments, acknowledged, received, unsent = _INFO.unpack(found)
    except (OSError, struct.error):
        return None
    pending = segments * segment_bytes + unsent + transport.get_write_buffer_size()
    return Traffic(received, acknowledged, pending)


def moves(before: Traffic | None, now: Traffic | None) -> bool:
    """Whether something has moved since, as far as one can know.

    A frozen relay's kernel goes on acknowledging until its buffer is full. So that counts only
    while not even all that was pending before has been acknowledged: then the line is slow.
    """
    if before is None or now is None:
        return False
    acknowledged = now.acknowledged_bytes - before.acknowledged_bytes
    return now.received_bytes > before.received_bytes or 0 < acknowledged < before.pending_bytes
