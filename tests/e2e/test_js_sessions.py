"""A twin's session on a stream that `@matrixai/ws` in Node.js opens at a relay."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from proto.mux.messages import MessageReader, framed
from proto.rmb import types_pb2 as pb
from proto.rmb.reasons import SESSIONS, SessionReason
from tests.support import envelopes
from tests.support.certificates import make_certificate
from tests.support.identities import Twin
from tests.support.node import JsClient, JsError, js_client
from tests.support.relay_process import RelayProcess
from tests.support.rmb_client import session
from tests.support.world import fresh_twins

TIMEOUT_S = 60.0
REPLACED = SESSIONS[SessionReason.REPLACED].close_code
LARGE = 100_000  # more than the relay grants a stream


class JsSession:
    """Messages of a stream that Node.js opened."""

    def __init__(self, js: JsClient, name: str) -> None:
        self._js = js
        self._name = name
        self._reader = MessageReader(1 << 20)
        self._messages: list[bytes] = []

    async def ask(self, verb: str, **given: Any) -> Any:
        return await self._js.ask(verb, **given, **{"as": self._name})

    async def send(self, message: bytes) -> None:
        await self.ask("send", hex=framed([message]).hex())

    async def receive(self) -> bytes:
        while not self._messages:
            data = bytes.fromhex(await self.ask("take"))
            assert data, "the stream has ended"
            self._messages += self._reader.receive_data(data)
        return self._messages.pop(0)

    async def sign_in(self, twin: Twin) -> None:
        await self.ask("open", on="c")
        await self.send(twin.token(None).encode())
        assert await self.receive() == b"101"


async def test_a_session_of_a_javascript_program(any_relay: RelayProcess, tmp_path: Path) -> None:
    """A program in JavaScript can hold sessions (G9).

    It sends no Origin and offers no subprotocol, so the answer must not name one.
    """
    certificate, _ = make_certificate(tmp_path)
    python, one, two = fresh_twins(3)
    async with (
        asyncio.timeout(TIMEOUT_S),
        js_client("mux_client.js", str(certificate)) as js,
        session(any_relay.url, python) as client,
    ):
        await js.ask("dial", on="c", url=f"{any_relay.url}/streams")
        sessions = {twin.id: JsSession(js, f"s{twin.id}") for twin in (one, two)}
        for twin in (one, two):
            await sessions[twin.id].sign_in(twin)
            for size in (10, LARGE):
                there = envelopes.request((twin.id, None), client.key, bytes(size))
                await sessions[twin.id].send(there.SerializeToString())
                assert (await client.receive()).plain == bytes(size)
                sent = await client.request((twin.id, None), bytes(size))
                found = pb.Envelope.FromString(await sessions[twin.id].receive())
                assert (found.uid, found.plain) == (sent.uid, bytes(size))
        with pytest.raises(JsError, match=f"code {REPLACED}"):
            async with session(any_relay.url, one):
                await sessions[one.id].ask("take")
        await sessions[two.id].ask("end")
        await sessions[two.id].ask("over")
        await js.ask("stop", on="c", code=1000, reason="")
