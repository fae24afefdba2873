"""A load generator for the local relay: pairs of demo sessions that send each other messages.

One demo twin sends from many sessions, another one receives in as many. Each sender keeps a few
messages in flight and sends the next when one has arrived. A message contains the time at which it
was sent, so the receiver can measure its latency. Everything runs in this one process, and the
result includes its own CPU use: a saturated load generator measures itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

from picows import WSError, WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

from proto.identity import seeds, tokens
from proto.identity.signing import KeyType, SigningKey
from proto.rmb import types_pb2 as pb
from relay.demo.identities import DemoTwin

SIGN_IN_S: Final = 10.0
LAST_S: Final = 5.0
"""Seconds to wait, at the end, for messages still in flight."""

_MARK: Final = bytes(range(200, 216))
_STAMP: Final = struct.Struct(">dII")
"""Time of sending, pair and number of a message; replaces the mark in the payload."""

MIN_SIZE_BYTES: Final = _STAMP.size


class LoadError(Exception):
    """The load cannot be generated; the text is shown to the operator."""


@dataclass(slots=True)
class Outcome:
    """The result of a measurement.

    Attributes:
        seconds: duration of sending.
        latencies_s: latency of each message, sorted.
        lost, doubled, disordered: number of messages that did not arrive, arrived twice, or arrived
            out of order.
        errors: number of the relay's errors, such as limits, by text.
        own_cores: CPU cores that this program used meanwhile.
    """

    seconds: float = 0.0
    latencies_s: list[float] = field(default_factory=list)
    lost: int = 0
    doubled: int = 0
    disordered: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    own_cores: float = 0.0

    @property
    def rate(self) -> float:
        """Messages per second."""
        return len(self.latencies_s) / self.seconds if self.seconds else 0.0

    def latency_s(self, part: float) -> float:
        """Return a percentile of the latencies; `part` is from 0 to 1."""
        if not self.latencies_s:
            return 0.0
        return self.latencies_s[min(len(self.latencies_s) - 1, int(part * len(self.latencies_s)))]


class _Session(WSListener):
    """One session of a pair."""

    def __init__(self, load: Load) -> None:
        super().__init__()
        self._load = load
        self.transport: WSTransport | None = None

    def on_ws_connected(self, transport: WSTransport) -> None:
        self.transport = transport

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.BINARY:
            self._load.arrived(frame.get_payload_as_bytes())
        elif frame.msg_type == WSMsgType.CLOSE:
            self._load.broken(f"closed with {frame.get_close_code()}")

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self._load.broken("a connection was lost")


class Load:
    """Pairs of sessions at one relay.

    Args:
        url: URL of the relay.
        twins: sender and receiver.
        pairs: number of pairs of sessions.
        window: messages of each pair in flight.
        size_bytes: size of the payload.
    """

    def __init__(
        self, url: str, twins: Sequence[DemoTwin], pairs: int, window: int, size_bytes: int
    ) -> None:
        self._url = url
        self._sender, self._receiver = twins
        self._pairs, self._window = pairs, window
        self._run = uuid4().hex[:8]
        self._templates = [self._template(pair, size_bytes) for pair in range(pairs)]
        # Offset of the stamp by size of the message: session names differ in length.
        self._sizes = {len(template): at for template, at in self._templates}
        self._under_way = 0
        self._senders: list[_Session] = []
        self._sent = [0] * pairs
        self._next = [0] * pairs
        self._sending = False
        self._over = False
        self._idle = asyncio.Event()
        self._outcome = Outcome()
        self._failure = ""

    async def run(self, seconds: float) -> Outcome:
        """Connect, send for a number of seconds, and wait for the messages still in flight.

        Raises:
            LoadError: the relay refuses the sessions, or closes one.
        """
        receivers: list[_Session] = []
        try:
            for pair in range(self._pairs):
                receivers.append(await self._sign_in(self._receiver, f"r{pair}"))
                self._senders.append(await self._sign_in(self._sender, f"s{pair}"))
            return await self._measure(seconds)
        finally:
            self._over = True
            for session in (*receivers, *self._senders):
                if session.transport is not None:
                    session.transport.disconnect()

    async def _measure(self, seconds: float) -> Outcome:
        used = _cpu_s()
        began = time.perf_counter()
        self._sending = True
        for pair in range(self._pairs):
            for _ in range(self._window):
                self._send(pair)
        await asyncio.sleep(seconds)
        self._sending = False
        outcome = self._outcome
        outcome.seconds = time.perf_counter() - began
        outcome.own_cores = (_cpu_s() - used) / outcome.seconds
        if not self._under_way:
            self._idle.set()
        with contextlib.suppress(TimeoutError):  # the rest is counted as lost below
            await asyncio.wait_for(self._idle.wait(), LAST_S)
        if self._failure:
            raise LoadError(f"the relay ended a session: {self._failure}")
        outcome.lost = max(0, self._under_way)
        outcome.latencies_s.sort()
        return outcome

    def arrived(self, data: bytes) -> None:
        """Process a message that arrived at one of the sessions."""
        now = time.perf_counter()
        if len(data) not in self._sizes:  # not a message of this load, but one of the relay
            self._told(data)
            return
        sent_at, pair, number = _STAMP.unpack_from(data, self._sizes[len(data)])
        expected = self._next[pair]
        if number < expected:
            self._outcome.doubled += 1
            return
        if number > expected:
            self._outcome.disordered += 1
        self._next[pair] = number + 1
        self._outcome.latencies_s.append(now - sent_at)
        self._settled()
        if self._sending:
            self._send(pair)

    def broken(self, why: str) -> None:
        """Record that a connection ended."""
        if not self._over and not self._failure:
            self._failure = why
            self._idle.set()

    def _told(self, data: bytes) -> None:
        envelope = pb.Envelope.FromString(data)
        text = envelope.error.message or "an answer nobody asked for"
        self._outcome.errors[text] = self._outcome.errors.get(text, 0) + 1
        self._settled()

    def _settled(self) -> None:
        """Record that a message arrived or was refused."""
        self._under_way -= 1
        if not self._under_way and not self._sending:
            self._idle.set()

    def _send(self, pair: int) -> None:
        transport = self._senders[pair].transport
        if transport is None:
            return
        template, at = self._templates[pair]
        stamp = _STAMP.pack(time.perf_counter(), pair, self._sent[pair])
        self._sent[pair] += 1
        self._under_way += 1
        transport.send(WSMsgType.BINARY, template[:at] + stamp + template[at + _STAMP.size :])

    async def _sign_in(self, twin: DemoTwin, name: str) -> _Session:
        mini_secret = seeds.parse_secret(twin.secret).mini_secret
        key = SigningKey.from_mini_secret(mini_secret, KeyType.SR25519)
        token = tokens.issue(key, twin.id, self._sid(name), int(time.time()))
        session = _Session(self)
        try:
            async with asyncio.timeout(SIGN_IN_S):
                await ws_connect(lambda: session, f"{self._url}/?{token}")
        except (OSError, WSError, TimeoutError) as error:
            why = str(error) or f"no answer in {SIGN_IN_S:g} s"
            raise LoadError(f"{self._url} does not let twin {twin.id} in: {why}") from None
        return session

    def _sid(self, name: str) -> str:
        return f"load-{self._run}-{name}"

    def _template(self, pair: int, size_bytes: int) -> tuple[bytes, int]:
        """Return the envelope of a pair, and the offset of its stamp."""
        envelope = pb.Envelope(
            uid=str(uuid4()),
            timestamp=int(time.time()),
            expiration=300,
            source=pb.Address(twin=self._sender.id, connection=self._sid(f"s{pair}")),
            destination=pb.Address(twin=self._receiver.id, connection=self._sid(f"r{pair}")),
            request=pb.Request(command="load"),
            plain=_MARK + os.urandom(size_bytes - len(_MARK)),
        )
        data = envelope.SerializeToString()
        return data, data.index(_MARK)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
