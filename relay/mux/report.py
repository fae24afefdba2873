"""Reports of a worker's connections and streams, for operators.

Every `PERIOD_S`, a worker that has connections writes two JSON strings with an expiry:
`relay:connections:<boot id>` lists the connections, and `relay:streams:<boot id>` has details of
some of their streams, by the number of the connection. The size of both is limited, whatever
clients open.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import logging
from collections.abc import Iterable
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from redispipe import resp
from relay.mux.stream_socket import State
from relay.queues import keys

if TYPE_CHECKING:
    from relay.mux.connection import Connection
    from relay.mux.stream_socket import StreamSocket
    from relay.sessions.worker import Worker

log = logging.getLogger(__name__)

PERIOD_S: Final = 2.0
LIFE_S: Final = 10
"""Seconds until a report expires, so that figures of a dead worker disappear."""
MAX_CONNECTIONS: Final = 500
"""Maximum number of listed connections: those with the most streams."""
MAX_STREAMS: Final = 2_000
"""Maximum number of described streams. All listed connections get an equal share of it, for the
streams with the most waiting bytes, then for those opened first."""


class ConnectionFigures(NamedTuple):
    """Figures of one connection.

    Attributes:
        number: number of the connection at its worker.
        address: address of the client, with its port if it is known.
        opened_at: Unix time at which it was opened.
        streams: number of open streams.
        sessions: number of streams whose clients have signed in.
        queued_bytes: bytes that wait until the client grants credit.
        held_bytes: received bytes that wait to be processed.
        unsent_bytes: bytes that the client's TCP connection has not accepted.
        stalls: times that a stream had to wait for the client's credit.
        bytes_in, bytes_out: bytes of streams.
    """

    number: int
    address: str
    user_agent: str
    opened_at: float
    streams: int
    sessions: int
    queued_bytes: int
    held_bytes: int
    unsent_bytes: int
    stalls: int
    bytes_in: int
    bytes_out: int


class StreamFigures(NamedTuple):
    """Figures of one stream.

    Attributes:
        id: id of the stream in its connection.
        session: key of the session; empty before the sign-in.
        state: value of a `relay.mux.stream_socket.State`.
        credit: bytes that the client has granted and that were not sent.
        queued_bytes, held_bytes: as for a connection.
    """

    id: int
    session: str
    state: str
    credit: int
    queued_bytes: int
    held_bytes: int


class ConnectionReports:
    """Publishes reports of one worker's connections."""

    def __init__(self, connections: Iterable[Connection], worker: Worker) -> None:
        """Create the reports of a worker.

        Args:
            connections: live collection of the open connections.
        """
        self._connections = connections
        self._worker = worker
        self._names = (keys.connections(worker.boot_id), keys.streams(worker.boot_id))
        self._is_published = False

    async def run(self) -> None:
        """Publish a report every `PERIOD_S`, until cancelled."""
        while True:
            await asyncio.sleep(PERIOD_S)
            try:
                self.publish()
            except Exception:
                log.exception("report of connections")

    def publish(self) -> None:
        """Publish a report now."""
        chosen = heapq.nlargest(
            MAX_CONNECTIONS, self._connections, key=lambda each: len(each.sockets)
        )
        if not self._worker.commit.pipe.usable or not (chosen or self._is_published):
            return
        self._is_published = bool(chosen)
        if not chosen:
            self._ask("DEL", *self._names)
            return
        details: dict[int, list[StreamFigures]] = {}
        left = MAX_STREAMS
        listed = []
        for place, connection in enumerate(reversed(chosen)):  # unused shares go to larger ones
            share = left // (len(chosen) - place)
            figures, streams = describe(connection, share)
            left -= len(streams)
            details[connection.number] = streams
            listed.append(figures)
        for name, document in zip(self._names, (listed, details), strict=True):
            text = json.dumps(document, separators=(",", ":"))
            self._ask("SET", name, text, "EX", LIFE_S)

    def _ask(self, *arguments: resp.Argument) -> None:
        self._worker.commit.submit(resp.command(*arguments), _answered)


def describe(connection: Connection, most: int) -> tuple[ConnectionFigures, list[StreamFigures]]:
    """Return the figures of a connection, and of some of its streams.

    Args:
        most: maximum number of streams to describe.
    """
    sessions = queued_bytes = held_bytes = 0
    waiting: list[StreamSocket] = []
    idle: list[StreamSocket] = []
    for socket in connection.sockets.values():
        sessions += socket.state is State.OPEN
        if socket.waiting_bytes:
            waiting.append(socket)
            queued_bytes += socket.queued_bytes
            held_bytes += socket.waiting_bytes - socket.queued_bytes
        elif len(idle) < most:
            idle.append(socket)
    shown = heapq.nlargest(most, waiting, key=attrgetter("waiting_bytes"))
    shown += islice(idle, most - len(shown))
    counts = connection.mux.counts
    figures = ConnectionFigures(
        connection.number, connection.remote, connection.user_agent, connection.opened_at,
        len(connection.sockets), sessions, queued_bytes, held_bytes, connection.unsent_bytes,
        counts.stalls, counts.received_bytes, counts.sent_bytes,
    )  # fmt: skip
    return figures, [
        StreamFigures(
            socket.id, socket.session_text, socket.state.value, socket.stream.credit,
            socket.queued_bytes, socket.waiting_bytes - socket.queued_bytes,
        )
        for socket in shown
    ]  # fmt: skip


def _answered(reply: Any) -> None:
    """Ignore the reply: the next report follows soon."""
