"""Trying a relay, and the reports of `rmb-peer --check` and `rmb ping`."""

from __future__ import annotations

import time
from email.utils import formatdate

from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from peer.cli import ping
from peer.gateway import check
from peer.identity import Identity
from peer.twins import Twin
from proto.rmb import notices
from proto.rmb import types_pb2 as pb
from tests.support.world import FIRST, TWINS


async def _answer(connection: ServerConnection) -> None:
    async for message in connection:
        assert isinstance(message, bytes)
        await connection.send(notices.pong(pb.Envelope.FromString(message)))


async def test_a_wrong_clock_is_told_of() -> None:
    def tell_time(connection: ServerConnection, request: Request, response: Response) -> None:
        del response.headers["Date"]
        response.headers["Date"] = formatdate(time.time() + 602, usegmt=True)

    one = TWINS[FIRST]
    identity = Identity(one.signing_key, one.encryption_key)
    async with serve(_answer, "127.0.0.1", 0, process_response=tell_time) as server:
        url = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
        finding = await check._relay(url, identity, Twin(one.id, one.account, None, ()))
    assert finding.verdict == "note"
    assert "; this machine's clock is 60" in finding.text
    assert finding.text.endswith(" s behind the relay's")
    answer = {"relay": url, "sign_in_ms": 1.0, "pong_ms": 1.0, "clock": "the clock is wrong"}
    assert ping._relay_line(answer).endswith("pong after 1.0 ms; the clock is wrong")
