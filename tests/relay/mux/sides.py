"""A client and the relay's side of one connection, connected in memory."""

from __future__ import annotations

import asyncio
import dataclasses
from types import SimpleNamespace
from typing import Any

from proto.limits.addresses import BannedNetworks
from proto.mux.bounds import MuxBounds
from proto.mux.messages import MessageReader, framed
from proto.rmb.reasons import SESSIONS, SessionReason
from relay.mux.connection import Connection
from relay.mux.options import MuxServerCounts
from relay.mux.server import MuxServer
from relay.mux.stream_socket import StreamSocket
from relay.sessions.admission import Admitted, Refusal, refusal_for
from relay.sessions.takeover import Opening
from rmbsite.config import Config
from tests.proto.mux.sides import Side

STREAM_BYTES = 4_096
MAX_MESSAGE_BYTES = 100_000


class Wire:
    """A websocket of the relay's server that records what it sends."""

    remote = "127.0.0.1:5"

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.unsent = 0
        self.is_paused = False
        self.closed: tuple[int, str] | None = None
        self.last_received = 0.0

    def send_messages(self, messages: list[bytes]) -> int:
        self.sent += messages
        return 0

    def buffered_bytes(self) -> int:
        return self.unsent

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def close(self, code: int, reason: str) -> None:
        self.closed = (code, reason)


class Session:
    """A session that records its calls."""

    def __init__(self, socket: StreamSocket) -> None:
        self.socket = socket
        self.destination = SimpleNamespace(text="7")
        self.messages: list[bytes] = []
        self.ended: tuple[int, str | None] | None = None
        self.rooms = 0

    def messages_received(self, messages: list[bytes]) -> None:
        self.messages += messages

    def writable(self) -> None:
        self.rooms += 1

    def closed(self, code: int, detail: str | None) -> None:
        assert self.ended is None, "a session ends once"
        self.ended = (code, detail)


class Gate:
    """An admission that admits clients whose token is a number."""

    def __init__(self) -> None:
        self.refused: list[str] = []

    def admit_connection(self, address: str) -> None:
        """Admit any connection."""

    def note_refusal(self, refusal: Refusal, address: str) -> None:
        self.refused.append(str(refusal.reason))

    async def admit(self, token: bytes | None, address: str) -> Admitted:
        if token is None or not token.isdigit():
            raise refusal_for(SessionReason.BANNED)
        twin: Any = SimpleNamespace(id=7)
        return Admitted((int(token), None), twin)


class Workers:
    """The parts of a worker that the stream server uses."""

    boot_id = "boot"

    def __init__(self) -> None:
        self.sessions: list[Session] = []
        self.draining = False
        self.bounds = SimpleNamespace(back_pressure_s=5.0)
        self.router = SimpleNamespace(banned_addresses=BannedNetworks([]))
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def open(self, key: Any, socket: Any, twin: Any, agent: str, opening: Opening) -> Session:
        self.sessions.append(Session(socket))
        opening.claim_made()
        return self.sessions[-1]

    def end(self, session: Session, reason: SessionReason) -> None:
        close = SESSIONS[reason]
        session.socket.close(close.close_code or 1000, close.text)


class Pair:
    """Both sides of a connection.

    Attributes:
        client: Protocol machine of the side that connects.
        wire: Websocket between the sides.
        worker: Worker of the relay.
    """

    def __init__(self, **settings: Any) -> None:
        config = Config()
        relay = dataclasses.replace(config.relay, max_message_bytes=MAX_MESSAGE_BYTES)
        mux = dataclasses.replace(config.mux, stream_bytes=STREAM_BYTES, **settings)
        self.worker = Workers()
        self.gate = Gate()
        self.server = MuxServer(
            dataclasses.replace(config, relay=relay, mux=mux),
            self.worker,  # type: ignore[arg-type]
            self.gate,  # type: ignore[arg-type]
        )
        self.wire = Wire()
        wire: Any = self.wire
        self.relay: Connection = self.server.open(wire, "127.0.0.1", "agent")
        self.client = Side(True, MuxBounds(stream_bytes=STREAM_BYTES))

    @property
    def counts(self) -> MuxServerCounts:
        return self.server.counts

    async def settle(self) -> None:
        """Carry messages until both sides are idle."""
        for _ in range(200):
            forth = self.client.mux.data_to_send(self.client.now)
            if forth and not self.wire.is_paused:
                self.relay.messages_received(forth)
            for _ in range(6):
                await asyncio.sleep(0)
            back, self.wire.sent = self.wire.sent, []
            for message in back:
                self.client.mux.receive_data(message, self.client.now)
            if not forth and not back:
                return
        raise AssertionError("the sides do not come to rest")

    async def sign_in(self, token: bytes = b"1") -> tuple[int, Session]:
        """Sign in on a new stream; return its id and the session."""
        stream_id = self.client.mux.open_stream(self.client.now)
        self.client.mux.write(stream_id, framed([token]))
        await self.settle()
        assert self.read(stream_id) == [b"101"]
        await self.settle()
        return stream_id, self.worker.sessions[-1]

    def read(self, stream_id: int, size: int = STREAM_BYTES) -> list[bytes]:
        """Return the whole messages that the client reads from a stream."""
        return MessageReader(MAX_MESSAGE_BYTES).receive_data(self.client.mux.read(stream_id, size))
