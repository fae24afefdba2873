"""Empty the kernel's queue of connections when many clients connect at once.

After a restart, thousands of clients connect at the same moment. The event loop accepts one of them
per turn, while the kernel queues some 4,096 and drops the rest. Dropped clients retry after 1, 3, 7
and 15 seconds, most of them in vain, while the worker has little to do in between. Accepting costs
a hundredth of a sign-in. So when the queue is deep, this module accepts everything in it at once,
and hands some of the accepted connections to the loop in each turn, in the order of arrival.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from relay.server.accepted import AcceptedConnections

LOOK_EVERY: Final = 8
"""Connections accepted by the loop between two checks of the queue; a check takes a microsecond."""
DEEP: Final = 128
"""Number of queued connections that counts as a crowd."""
IN_A_TURN: Final = 16
"""Accepted connections handed to the loop per turn."""
MOST_HELD: Final = 16_384
"""Maximum number of connections accepted and not handed over; others stay in the kernel's queue."""
ESTABLISHED: Final = 1  # linux/tcp_states.h; the first byte of TCP_INFO
_QUEUED: Final = struct.Struct("=24xI")  # linux/tcp.h, tcpi_unacked: of a listener, its queue


class Crowd:
    """Connections of one TCP listener that arrived all at once.

    Attributes:
        held: Descriptors of accepted connections that wait for their turn.
    """

    def __init__(
        self, listener: socket.socket, make_protocol: Callable[[], Any], tls: dict[str, Any]
    ) -> None:
        """Watch the queue of a listener.

        Args:
            listener: Listener whose connections the loop accepts; it creates their protocols with
                `accepted`.
            make_protocol: Factory of the protocol of a connection.
            tls: TLS arguments, as for a server of the loop.
        """
        self.held: deque[int] = deque()
        self._listener = listener.dup()
        self._listener.setblocking(False)
        self._make_protocol = make_protocol
        self._serving = AcceptedConnections(make_protocol, tls)
        self._loop = asyncio.get_running_loop()
        self._accepted = 0

    def accepted(self) -> Any:
        """Return the protocol of a connection that the loop has accepted."""
        self._accepted += 1
        if self._accepted % LOOK_EVERY == 0 and not self.held and queued(self._listener) >= DEEP:
            self._accept_all()
            self._loop.call_soon(self._hand_over)
        return self._make_protocol()

    def close(self) -> None:
        """Stop accepting; disconnect clients that still wait, which then reconnect elsewhere."""
        self._listener.close()
        while self.held:
            os.close(self.held.popleft())

    def _accept_all(self) -> None:
        # OSError: the queue is empty, or no descriptors are left; a client may have gone as well.
        with contextlib.suppress(OSError):
            while len(self.held) < MOST_HELD:
                connection, _ = self._listener.accept()
                self.held.append(connection.detach())

    def _hand_over(self) -> None:
        for _ in range(min(IN_A_TURN, len(self.held))):
            connection = socket.socket(fileno=self.held.popleft())
            # A client that gave up has reconnected: this one would take its session from it.
            if connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != ESTABLISHED:
                connection.close()
                continue
            self._serving.serve(connection)
        if self.held:
            self._accept_all()
            self._loop.call_soon(self._hand_over)


def queued(listener: socket.socket) -> int:
    """Return the length of a listener's queue in the kernel; 0 if the system does not report it."""
    if sys.platform != "linux" or listener.family == socket.AF_UNIX:
        return 0
    info = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _QUEUED.size)
    return int(_QUEUED.unpack(info)[0]) if len(info) == _QUEUED.size else 0
