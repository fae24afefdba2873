"""A demo twin's connection to the relay: a websocket around the peer side of `proto.rmb`.

This is the smallest complete RMB client: it signs in with a fresh token, passes bytes in and out
of the protocol core, and turns its events into answers. It never reconnects by itself, since the
demo signs out and in explicitly.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Mapping
from typing import Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from proto.identity import agreement, seeds, signing, tokens
from proto.rmb import events
from proto.rmb.machine import PeerSide
from proto.rmb.sealing import PeerTwin
from relay.demo.identities import DemoTwin

ANSWER_TIMEOUT_S: Final = 10.0

Serve = Callable[[events.RequestReceived], bytes]


class AnswerError(Exception):
    """A request was answered with an error."""


class Link:
    """One signed-in session of a demo twin.

    Args:
        url: URL of the relay, without a query.
        twin: the twin that signs in.
        others: the twins it can exchange messages with.
        serve: function that answers a request of another twin.
    """

    def __init__(self, url: str, twin: DemoTwin, others: list[DemoTwin], serve: Serve) -> None:
        self._url = url
        self._twin = twin.id
        self._serve = serve
        known = {each.id: _public(each) for each in (twin, *others)}
        mini_secret = seeds.parse_secret(twin.secret).mini_secret
        self._key = signing.SigningKey.from_mini_secret(mini_secret, signing.KeyType.SR25519)
        encryption = agreement.EncryptionKey(mini_secret)
        self._side = PeerSide((twin.id, None), self._key, encryption, known.get, os.urandom)
        self._waiting: dict[str, asyncio.Future[bytes]] = {}
        self._websocket: ClientConnection | None = None
        self._reader: asyncio.Task[None] | None = None

    async def sign_in(self) -> None:
        """Connect; the relay verifies the token before it accepts the connection."""
        token = tokens.issue(self._key, self._twin, None, _now())
        self._websocket = await connect(f"{self._url}/?{token}", compression=None)
        self._reader = asyncio.create_task(self._read(self._websocket))

    async def sign_out(self) -> None:
        """Close the connection; the relay queues what other twins send from now on."""
        if self._websocket is not None and self._reader is not None:
            await self._websocket.close()
            await self._reader
            self._websocket = None

    async def send(self, twin: int, command: str, payload: bytes) -> str:
        """Send a request, encrypted for its receiver; return its uid once the relay stored it."""
        uid = self._side.send_request((twin, None), command, payload, _now())
        self._expect(uid)
        # The pong is a barrier: everything sent before the ping is stored or delivered.
        barrier = self._expect(self._side.send_ping(_now()))
        await self._flush()
        await asyncio.wait_for(barrier, ANSWER_TIMEOUT_S)
        return uid

    async def answer(self, uid: str) -> bytes:
        """Wait for the answer to a request.

        Raises:
            AnswerError: The answer is an error.
            TimeoutError: No answer arrived within `ANSWER_TIMEOUT_S`.
        """
        return await asyncio.wait_for(self._waiting[uid], ANSWER_TIMEOUT_S)

    def _expect(self, uid: str) -> asyncio.Future[bytes]:
        self._waiting[uid] = asyncio.get_running_loop().create_future()
        return self._waiting[uid]

    async def _read(self, websocket: ClientConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            async for message in websocket:
                if isinstance(message, bytes):
                    self._side.receive_data(message, _now())
                while (event := self._side.next_event()) is not None:
                    self._handle(event)
                await self._flush()

    def _handle(self, event: events.PeerEvent) -> None:
        match event:
            case events.RequestReceived():
                self._side.send_response(event, self._serve(event), _now())
            case events.ResponseReceived(uid=uid, payload=payload):
                self._settle(uid, payload)
            case events.PongReceived(uid=uid):
                self._settle(uid, b"")
            case events.ErrorReceived(uid=uid, message=text):
                self._fail(uid, AnswerError(text))
            case events.EnvelopeRejected(uid=uid, error=error):
                self._fail(uid, AnswerError(str(error)))

    def _settle(self, uid: str, payload: bytes) -> None:
        waiting = self._waiting.get(uid)
        if waiting is not None and not waiting.done():
            waiting.set_result(payload)

    def _fail(self, uid: str, error: Exception) -> None:
        waiting = self._waiting.get(uid)
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)

    async def _flush(self) -> None:
        for data in self._side.data_to_send():
            if self._websocket is not None:
                await self._websocket.send(data)


def by_name(twins: tuple[DemoTwin, ...]) -> Mapping[str, DemoTwin]:
    """Return the demo twins by name."""
    return {twin.name: twin for twin in twins}


def _public(twin: DemoTwin) -> PeerTwin:
    mini_secret = seeds.parse_secret(twin.secret).mini_secret
    key = signing.SigningKey.from_mini_secret(mini_secret, signing.KeyType.SR25519)
    return PeerTwin(key.account, agreement.EncryptionKey(mini_secret).public)


def _now() -> int:
    return int(time.time())
