"""The server of streams in a worker: its connections, the sign-ins on their streams, and limits."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from proto.mux.bounds import NORMAL_CLOSURE
from proto.mux.counts import MuxCounts
from proto.rmb.reasons import SESSIONS, SessionReason
from proto.websocket.budget import MessageBudget
from relay.mux.connection import Connection
from relay.mux.options import LINGER_S, MuxServerCounts, mux_options
from relay.mux.report import ConnectionReports
from relay.mux.stream_socket import State, StreamSocket
from relay.ops.control import KICK_CONNECTION_PREFIX
from relay.ops.metric_names import series
from relay.server.conversation import FAILED
from relay.server.deadlines import Deadlines
from relay.sessions.admission import Admission, Refusal, refusal_for
from relay.sessions.takeover import Opening

if TYPE_CHECKING:
    from relay.server.socket import RelaySocket
    from relay.sessions.worker import Worker

logger = logging.getLogger(__name__)

CHECK_S: Final = 1.0
REQUEST_TIMEOUT: Final = 408
MAX_STREAMS: Final = "max_streams"
"""Reason for which a stream above `mux.max_streams` is refused."""
FAILURE: Final = "failure"
"""Reason for which a stream is refused if its sign-in raised an unexpected exception."""
OTHER: Final = "other"
_CODES: Final = {0, *(end.close_code for end in SESSIONS.values())}
"""Codes that are counted separately."""


class MuxServer:
    """The server of streams of a worker, which the worker starts and stops.

    Attributes:
        options: limits of the server.
        counts: counts of connections and streams.
        budget: memory budget for incomplete envelopes.
        lingering: sockets that wait for acknowledgements before they end.
        connections: open connections.
    """

    def __init__(self, config: Any, worker: Worker, admission: Admission) -> None:
        self.options = mux_options(config)
        self.counts = MuxServerCounts()
        self.budget = MessageBudget(self.options.buffered_bytes)
        self.lingering = Deadlines(LINGER_S)
        self.connections: dict[Connection, None] = {}
        self._worker = worker
        self._admission = admission
        self._loop = asyncio.get_running_loop()
        self._signing_in = Deadlines(self.options.sign_in_s)
        self._numbers = itertools.count(1)
        self._ended = MuxCounts()  # counts of ended connections
        self._stuck: dict[Connection, tuple[int, float]] = {}  # unsent bytes, and since when
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start to check the connections, and to publish reports of them."""
        reports = ConnectionReports(self.connections, self._worker)
        self._tasks = [self._loop.create_task(each) for each in (self._check(), reports.run())]

    async def stop(self) -> None:
        """End all connections, whose sessions have ended before."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in list(self.connections):
            self._end(connection, SessionReason.DRAINED)

    # --- connections ------------------------------------------------------------------------------

    def open(self, socket: RelaySocket, address: str, user_agent: str) -> Connection:
        """Admit a connection.

        Raises:
            Refusal: the connection is refused, with the answer to send.
        """
        try:
            self._admission.admit_connection(address)
            if len(self.connections) >= self.options.max_connections:
                raise refusal_for(SessionReason.CAPACITY)
        except Refusal as refusal:
            self._admission.note_refusal(refusal, address)
            self.counts.refused[refusal.reason] += 1
            raise
        connection = Connection(self, next(self._numbers), socket, address, user_agent)
        self.connections[connection] = None
        self.counts.opened += 1
        return connection

    def left(self, connection: Connection, reason: str) -> None:
        """Record that a connection has ended."""
        if connection in self.connections:
            del self.connections[connection]
            self._stuck.pop(connection, None)
            self.counts.ended[reason] += 1
            _add(self._ended, connection.mux.counts)

    def decide(self, fields: Mapping[str, str], banned: object) -> None:
        """End the connections that operators kicked.

        Args:
            fields: all fields of `relay:control`.
        """
        own = f"{KICK_CONNECTION_PREFIX}{self._worker.boot_id}:"
        kicked = {name.removeprefix(own) for name in fields if name.startswith(own)}
        for connection in list(self.connections) if kicked else ():
            if str(connection.number) in kicked:
                self._kick(connection)

    def _kick(self, connection: Connection, is_last: bool = False) -> None:
        """End the sessions of a connection, and then the connection itself.

        There is a delay between both, in which clients can acknowledge what they were sent.
        """
        own = [
            session
            for session in self._worker.sessions
            if isinstance(session.socket, StreamSocket) and session.socket.connection is connection
        ]
        for session in own:
            self._worker.end(session, SessionReason.KICKED)
        if own and not is_last:
            self._loop.call_later(LINGER_S, self._kick, connection, True)
        else:
            self._end(connection, SessionReason.KICKED)

    # --- streams ----------------------------------------------------------------------------------

    def opened(self, connection: Connection, socket: StreamSocket) -> None:
        """Record that a client opened a stream, which must sign in now."""
        self.counts.streams += 1
        late = partial(self._refuse_late, connection, socket)
        self._signing_in.add(socket, late, self._loop)

    def sign_in(self, connection: Connection, socket: StreamSocket, token: bytes) -> None:
        """Sign a stream in with its token."""
        self._signing_in.remove(socket)
        self._worker.spawn(self._sign_in(connection, socket, token))

    def refuse(self, socket: StreamSocket, status: int, text: str, reason: str) -> None:
        """Refuse a sign-in."""
        self._signing_in.remove(socket)
        self.counts.refused_streams[reason] += 1
        socket.refuse(status, text)

    def finished(self, connection: Connection, socket: StreamSocket, code: int) -> None:
        """Record that a stream ends."""
        self._signing_in.remove(socket)
        self.lingering.remove(socket)
        if code != NORMAL_CLOSURE:
            self.reset("relay", code)

    def reset(self, by: str, code: int) -> None:
        """Count a reset; unusual codes are counted together, since clients can choose any code."""
        self.counts.resets[by, str(code) if code in _CODES else OTHER] += 1

    # --- for operators ----------------------------------------------------------------------------

    def figures(self) -> dict[str, float]:
        """Return the counts of the worker, for `/metrics`."""
        total = MuxCounts()
        for each in (self._ended, *(connection.mux.counts for connection in self.connections)):
            _add(total, each)
        counts = self.counts
        refused_streams = Counter(counts.refused_streams)
        if total.refused:
            refused_streams[MAX_STREAMS] = total.refused
        return {
            "mux_connections": len(self.connections),
            "mux_streams": sum(len(connection.sockets) for connection in self.connections),
            "mux_opened_total": counts.opened,
            "mux_streams_opened_total": counts.streams,
            "mux_received_bytes_total": total.received_bytes,
            "mux_sent_bytes_total": total.sent_bytes,
            "mux_stalls_total": total.stalls,
            **_by_reason("mux_refused_total", counts.refused),
            **_by_reason("mux_ended_total", counts.ended),
            **_by_reason("mux_streams_refused_total", refused_streams),
            **{
                series("mux_resets_total", by=by, code=code): count
                for (by, code), count in counts.resets.items()
            },
        }

    # --- details ----------------------------------------------------------------------------------

    async def _sign_in(self, connection: Connection, socket: StreamSocket, token: bytes) -> None:
        worker = self._worker
        try:
            admitted = await self._admission.admit(token or None, connection.address)
        except Refusal as refusal:
            self._admission.note_refusal(refusal, connection.address)
            self.refuse(socket, refusal.status, refusal.text, refusal.reason)
            return
        except Exception:
            logger.exception("a sign-in on a stream failed")
            self.refuse(socket, 500, FAILED, FAILURE)
            return
        if socket.state is not State.SIGNING_IN:
            return  # the client is gone
        connection.has_signed_in = True
        opening = Opening()
        key = admitted.key
        session = worker.open(key, socket, admitted.twin, connection.user_agent, opening)
        socket.session_text = session.destination.text
        try:
            await opening.claimed()
            socket.accept()
            socket.start(session, key[0])
        finally:
            opening.answer_made()

    def _refuse_late(self, connection: Connection, socket: StreamSocket) -> None:
        refusal = Refusal(REQUEST_TIMEOUT, "no token in time", SessionReason.HANDSHAKE_TIMEOUT)
        self._admission.note_refusal(refusal, connection.address)
        self.refuse(socket, refusal.status, refusal.text, refusal.reason)

    def _end(self, connection: Connection, reason: SessionReason) -> None:
        end = SESSIONS[reason]
        connection.end(end.text or reason.value, end.close_code or NORMAL_CLOSURE)

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            waiting = {each: each.buffered_bytes for each in self.connections}
            too_much = sum(waiting.values()) > self.options.buffered_bytes
            for connection, buffered_bytes in waiting.items():
                connection.is_over_bounds = (
                    too_much or buffered_bytes > self.options.connection_bytes
                )
                if (reason := self.why_end(connection)) is not None:
                    self._end(connection, reason)

    def why_end(self, connection: Connection) -> SessionReason | None:
        """Return why a connection must end, or None if it may stay."""
        now = self._loop.time()
        worker = self._worker
        unsent, since = self._stuck.get(connection, (0, now))
        self._stuck.pop(connection, None)
        if connection.is_full:
            progress = connection.unsent_bytes < unsent
            self._stuck[connection] = (connection.unsent_bytes, now if progress else since)
            if now - since >= worker.bounds.back_pressure_s:
                return SessionReason.BACK_PRESSURE
        if connection.sockets:
            return None
        if worker.draining:
            return SessionReason.DRAINED
        if worker.router.banned_addresses.covers(connection.address):
            return SessionReason.ADDRESS_BANNED
        silent_s = now - max(connection.last_received, connection.empty_since)
        if not connection.has_signed_in:
            return SessionReason.HANDSHAKE_TIMEOUT if silent_s > self.options.sign_in_s else None
        return SessionReason.IDLE if 0 < self.options.idle_s < silent_s else None


def _by_reason(name: str, counts: Counter[str]) -> dict[str, float]:
    return {series(name, reason=reason): count for reason, count in counts.items()}


def _add(total: MuxCounts, more: MuxCounts) -> None:
    total.refused += more.refused
    total.received_bytes += more.received_bytes
    total.sent_bytes += more.sent_bytes
    total.stalls += more.stalls
