"""How many bytes of a connection the peer's TCP has acknowledged.

acknowledged = handed to the transport - transport buffer - kernel queue (SIOCOUTQ)

A dying transport reports an empty buffer: after a reset, asyncio and uvloop discard it. Linux still
reports the total number of acknowledged bytes then (TCP_INFO). This number is exact, so data that
the peer has read is not repeated even if it was written after the last check. On other systems,
each check of a living transport records what has reached the kernel. The kernel's counts stay true
after a reset, for as long as the socket is open. Both loops call `connection_lost` before they
close it, and a duplicate of the descriptor keeps it open while a discarded connection drains.

Other kinds of sockets than plain TCP may report fewer bytes, never more:

- Unix sockets: the kernel reports the memory of the data that the peer has not read, which is at
  least its number of bytes. A dead socket reports 0, so its count is ignored.
- TLS: bytes of the stream are not bytes of the socket. Everything is acknowledged when buffer and
  queue are empty at two checks with a turn of the loop in between. (uvloop hands written data to
  the kernel at the end of a turn, and does not report what waits below the TLS layer; one turn is
  enough, as this is less than a kernel queue holds.) Once the peer has ended its side, the TLS
  layer silently discards what is written, so nothing is counted any more.
- Systems without SIOCOUTQ: what left the transport buffer; a dead socket is not checked.

For a connection whose count is lost when it dies, the count has to be complete before:
`when_arrived` delays its end until then. And a peer that answers our close frame has read
everything before it: `read_by_peer`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import select
import socket
import struct
import sys
import termios
from array import array
from collections.abc import Callable
from enum import Enum
from typing import Final

SIOCOUTQ: Final[int] = termios.TIOCOUTQ
TCP_CLOSE: Final = 7  # linux/tcp_states.h; the first byte of TCP_INFO
BY_PEER: Final[int] = getattr(select, "POLLRDHUP", 0)  # its side of the connection; Linux only
ARRIVAL_LOOK_S: Final = 0.005  # between two checks of a connection that is about to end
LINGER_LOOK_S: Final = 0.02  # between two checks of a discarded connection's queue
_BYTES_ACKED: Final = struct.Struct("=120xQ")  # linux/tcp.h, struct tcp_info, since Linux 4.1
_queue_size: Final = array("i", [0])  # reused by each check: no allocation on the hot path


class Kind(Enum):
    """What the kernel's queue size means for a connection."""

    TCP = "tcp"
    TLS = "tls"
    UNIX = "unix"
    UNKNOWN = "unknown"


class Outgoing:
    """The outgoing bytes of one connection, seen from below the transport.

    `sent` in its methods is the number of bytes written to the transport and not discarded.
    """

    __slots__ = (
        "_acknowledged",
        "_before",
        "_clean",
        "_duplicate",
        "_fd",
        "_in_kernel",
        "_kind",
        "_loop",
        "_transport",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        first: bool = False,
    ) -> None:
        """Begin to count.

        Args:
            first: Whether nothing was written to the connection before.
        """
        self._transport = transport
        self._loop = loop
        self._in_kernel = 0  # bytes known to have left the transport buffer
        self._acknowledged = 0
        self._clean: tuple[int, float] | None = None  # TLS: (sent, time) of the last empty check
        self._fd = -1
        self._kind = Kind.UNKNOWN
        self._duplicate: socket.socket | None = None  # stays open beyond the transport's end
        self._before: int | None = None  # TCP: bytes of the connection that are not counted here
        handle = transport.get_extra_info("socket")
        if handle is None:
            return
        self._fd = handle.fileno()
        if transport.get_extra_info("ssl_object") is not None:
            self._kind = Kind.TLS
        elif handle.family in (socket.AF_INET, socket.AF_INET6):
            self._kind = Kind.TCP
            if first and _acknowledgements_counted(self._fd):
                self._before = 0
                return
            total = _acknowledged_in_all(self._fd)
            if total is not None:
                waiting = transport.get_write_buffer_size() + _queue_bytes(self._fd)
                self._before = total + waiting
        elif handle.family == socket.AF_UNIX:
            self._kind = Kind.UNIX

    def look(self, sent: int) -> int:
        """Record what has left the transport buffer, and return the known lower bound in bytes."""
        if not self._transport.is_closing():
            self._in_kernel = sent - self._transport.get_write_buffer_size()
        return self._in_kernel

    def acknowledged(self, sent: int) -> int:
        """Return the number of bytes acknowledged by the peer's TCP; it never decreases."""
        if self._acknowledged == sent or self._fd < 0:
            return self._acknowledged
        in_kernel = self.look(sent)
        if self._before is not None and self._transport.is_closing():
            arrived = min(sent, (_acknowledged_in_all(self._fd) or 0) - self._before)
        elif self._kind is Kind.TCP:
            try:
                fcntl.ioctl(self._fd, SIOCOUTQ, _queue_size)
            except OSError as error:
                self._no_queue(error)
                return self._acknowledged
            arrived = in_kernel - _queue_size[0]
        else:
            arrived = self._arrived_elsewhere(sent, in_kernel)
        if arrived > self._acknowledged:
            self._acknowledged = arrived
        return self._acknowledged

    def lost(self, sent: int) -> None:
        """Check for the last time: the loop is about to close its descriptor."""
        self.acknowledged(sent)
        self._fd = -1

    def read_by_peer(self, sent: int) -> None:
        """Count everything as acknowledged: the peer has answered the last of it."""
        self._acknowledged = sent

    def when_arrived(self, sent: int, then: Callable[[], None]) -> None:
        """Call `then` when everything is acknowledged, unless the connection ends before.

        It is called at once if acknowledgements can still be read after the connection's death.
        """
        if self._transport.is_closing():
            return
        if self._before is not None or self._fd < 0 or self.acknowledged(sent) == sent:
            then()
        else:
            self._loop.call_later(ARRIVAL_LOOK_S, self.when_arrived, sent, then)

    @property
    def lingering(self) -> bool:
        """Whether the socket is kept open beyond the transport's end."""
        return self._duplicate is not None

    def linger(self) -> None:
        """Keep the socket open and countable beyond the transport's end, until `drain`."""
        if self._fd < 0:
            return
        # Out of descriptors: the connection ends without lingering.
        with contextlib.suppress(OSError):
            self._duplicate = socket.socket(fileno=os.dup(self._fd))
            self._fd = self._duplicate.fileno()

    def settled(self) -> bool:
        """Check whether waiting longer would not change what is acknowledged."""
        return self._fd < 0 or _queue_bytes(self._fd) == 0

    def drain(self, sent: int, until: float, ended: Callable[[], None]) -> None:
        """Let the kernel deliver what it has, then close the lingering socket.

        Args:
            sent: See the class.
            until: Loop time at which the socket is closed at the latest.
            ended: Called after the last check.
        """
        assert self._duplicate is not None
        with contextlib.suppress(OSError):  # the peer may have reset it meanwhile
            self._duplicate.shutdown(socket.SHUT_WR)
        self._drain_on(sent, until, ended)

    def _drain_on(self, sent: int, until: float, ended: Callable[[], None]) -> None:
        duplicate = self._duplicate
        assert duplicate is not None
        if self.settled() or _is_reset(duplicate) or self._loop.time() >= until:
            self.lost(sent)
            duplicate.close()
            self._duplicate = None
            ended()
        else:
            self._loop.call_later(LINGER_LOOK_S, self._drain_on, sent, until, ended)

    def _arrived_elsewhere(self, sent: int, in_kernel: int) -> int:
        if self._transport.is_closing():
            return 0
        if self._kind is Kind.UNKNOWN:
            return in_kernel
        fcntl.ioctl(self._fd, SIOCOUTQ, _queue_size)
        if self._kind is Kind.UNIX:
            arrived = in_kernel - _queue_size[0]
            # The kernel hangs up before it discards what a dying peer has not read.
            return 0 if arrived > self._acknowledged and _ended(self._fd) else arrived
        if _queue_size[0] or in_kernel < sent or _ended(self._fd, BY_PEER):
            self._clean = None
            return 0
        now = self._loop.time()
        if self._clean is None:
            self._clean = (sent, now)
            return 0
        arrived, seen_at = self._clean
        if now == seen_at:
            return 0
        self._clean = (sent, now)
        return arrived

    def _no_queue(self, error: OSError) -> None:
        if error.errno not in (errno.EINVAL, errno.ENOTTY, errno.EOPNOTSUPP):
            raise error
        self._kind = Kind.UNKNOWN


def _acknowledged_in_all(fd: int) -> int | None:
    """Return the number of bytes that the peer's TCP has acknowledged since the connection began.

    None if the system does not count them.
    """
    if sys.platform != "linux":
        return None
    # Family, kind and protocol are passed only to save the system calls that find them.
    borrowed = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=fd)
    try:
        info = borrowed.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED.size)
    finally:
        borrowed.detach()
    if len(info) < _BYTES_ACKED.size:
        return None
    (count,) = _BYTES_ACKED.unpack(info)
    return int(count)


def _acknowledgements_counted(fd: int) -> bool:
    """Check whether the kernel counts acknowledged bytes; it is asked only once."""
    global _counted
    if _counted is None:
        _counted = _acknowledged_in_all(fd) is not None
    return _counted


_counted: bool | None = None


def _ended(fd: int, by: int = 0) -> bool:
    """Check whether a connection is dead, or has ended as the poll flags `by` say."""
    poll = select.poll()
    poll.register(fd, by)
    return bool(poll.poll(0))


def _queue_bytes(fd: int) -> int:
    """Return the bytes in the kernel's queue; 0 if the system does not report them."""
    try:
        fcntl.ioctl(fd, SIOCOUTQ, _queue_size)
    except OSError:
        return 0
    return _queue_size[0]


def _is_reset(connection: socket.socket) -> bool:
    """Check whether a TCP connection has ended: nothing in its queue will arrive any more."""
    if connection.family == socket.AF_UNIX or not hasattr(socket, "TCP_INFO"):
        return False
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == TCP_CLOSE
