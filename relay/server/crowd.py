"""Empty the kernel's queue of connections when a crowd comes at once.

After a restart thousands of clients connect in the same moment. The event loop accepts one of them
in each of its turns, while the kernel keeps some 4,096 and drops the rest: dropped clients try
again after 1, 3, 7 and 15 seconds, most of them in vain, while the worker has little to do in
between. To accept costs a hundredth of a sign-in. So when the queue is deep it is emptied at once,
and what was accepted gets its turn, some in each turn of the loop, in the order of arrival.
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
"""Connections accepted by the loop between two looks at the queue, of a microsecond each."""
DEEP: Final = 128
"""Connections in the queue that make a crowd."""
IN_A_TURN: Final = 16
"""Of those that were accepted, handed to the loop in one of its turns."""
MOST_HELD: Final = 16_384
"""Accepted and not handed over; the others stay in the kernel's queue."""
ESTABLISHED: Final = 1  # linux/tcp_states.h; the first byte of TCP_INFO
_QUEUED: Final = struct.Struct("=24xI")  # linux/tcp.h, tcpi_unacked: of a listener, its queue


class Crowd:
    """The connections of one TCP listener that came all at once.

    Attributes:
        held: descriptors that were accepted and wait for their turn.
    """

    def __init__(
        self, listener: socket.socket, make_protocol: Callable[[], Any], tls: dict[str, Any]
    ) -> None:
        """
        Args:
            listener: the loop accepts its connections, and has `accepted` make their protocols.
            make_protocol: makes the protocol of a connection.
            tls: what a server of the loop is given for it.
        """
        self.held: deque[int] = deque()
        self._listener = listener.dup()
        self._listener.setblocking(False)
        self._make_protocol = make_protocol
        self._serving = AcceptedConnections(make_protocol, tls)
        self._loop = asyncio.get_running_loop()
        self._accepted = 0

    def accepted(self) -> Any:
        """Make the protocol of a connection that the loop has accepted."""
        self._accepted += 1
        if self._accepted % LOOK_EVERY == 0 and not self.held and queued(self._listener) >= DEEP:
            self._accept_all()
            self._loop.call_soon(self._hand_over)
        return self._make_protocol()

    def close(self) -> None:
        """Accept no more; clients that still wait are cut, and come again elsewhere."""
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
            # Who gave up has come again: served now, it would take the key from itself.
            if connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != ESTABLISHED:
                connection.close()
                continue
            self._serving.serve(connection)
        if self.held:
            self._accept_all()
            self._loop.call_soon(self._hand_over)


def queued(listener: socket.socket) -> int:
    """Connections in the kernel's queue of a listener; 0 where the system does not tell."""
    if sys.platform != "linux" or listener.family == socket.AF_UNIX:
        return 0
    info = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _QUEUED.size)
    return int(_QUEUED.unpack(info)[0]) if len(info) == _QUEUED.size else 0
