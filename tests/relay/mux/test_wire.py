"""A stream session on a websocket of the relay's server."""

from __future__ import annotations

import asyncio
from typing import Any

from peer.mux import MuxSession
from proto.mux.bounds import MuxBounds
from relay.mux.wire import SocketWire
from relay.server.socket import HIGH_WATER_BYTES
from tests.relay.mux.sides import STREAM_BYTES, Wire


class StartedWire(Wire):
    def start(self, receiver: Any) -> None:
        """Do nothing: the test passes messages on itself."""


async def test_a_client_that_does_not_read_is_not_read() -> None:
    socket = StartedWire()
    wire = SocketWire(socket)  # type: ignore[arg-type]
    session = MuxSession(False, wire, bounds=MuxBounds(stream_bytes=STREAM_BYTES))
    wire.start(session)
    socket.unsent = HIGH_WATER_BYTES + 1
    wire.send([b"x"])
    assert wire.is_full and socket.is_paused
    socket.unsent = 0
    wire.writable()
    assert not wire.is_full and not socket.is_paused
    wire.closed(1006, None)
    await asyncio.sleep(0)
    assert session.ended.is_set()
