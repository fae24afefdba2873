"""What a worker publishes of its connections and their streams, for operators.

Every `PERIOD_S` a worker that has connections writes two strings of JSON with an expiry:
`relay:connections:<boot id>` lists them, and `relay:streams:<boot id>` has the details of some of
their streams, by the number of the connection. Both are bounded, whatever clients open.
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
"""Figures of a worker that died disappear."""
MAX_CONNECTIONS: Final = 500
"""Those with the most streams."""
MAX_STREAMS: Final = 2_000
"""Of all these connections, each of which gets an equal share: those with the most bytes that wait,
then those that were opened first."""


class ConnectionFigures(NamedTuple):
    """One connection.

    Attributes:
        number: of the connection, at its worker.
        address: of the client, with its port if it is known.
        opened_at: unix time.
        streams: that are open.
        sessions: streams whose clients have signed in.
        queued_bytes: that wait until the client grants them.
        held_bytes: that came and wait to be processed.
        unsent_bytes: that the client's TCP connection has not taken.
        stalls: times that the client granted a stream no more bytes.
        bytes_in, bytes_out: of streams.
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
    """One stream.

    Attributes:
        id: of the stream in its connection.
        session: key of the session; empty before the sign-in.
        state: of `relay.mux.stream_socket.State`.
        credit: bytes that the client has granted and that were not sent.
        queued_bytes, held_bytes: as of a connection.
    """

    id: int
    session: str
    state: str
    credit: int
    queued_bytes: int
    held_bytes: int


class ConnectionReports:
    """Publishes the connections of one worker."""

    def __init__(self, connections: Iterable[Connection], worker: Worker) -> None:
        """
        Args:
            connections: that are open, at any time.
        """
        self._connections = connections
        self._worker = worker
        self._names = (keys.connections(worker.boot_id), keys.streams(worker.boot_id))
        self._is_published = False

    async def run(self) -> None:
        """Publish until cancelled."""
        while True:
            await asyncio.sleep(PERIOD_S)
            try:
                self.publish()
            except Exception:
                log.exception("report of connections")

    def publish(self) -> None:
        """Publish the connections as they are."""
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
        for place, connection in enumerate(reversed(chosen)):  # what one leaves, larger ones get
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
    """The figures of a connection and of some of its streams.

    Args:
        most: streams that are described.
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
    """Nothing depends on it: the next report comes soon."""
