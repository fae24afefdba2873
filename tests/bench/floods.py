"""A hostile client: `python -m tests.bench.floods JSON` floods a relay until stdin ends.

It signs in, sends one kind of pointless message as fast as the relay reads, and discards the
answers. When its connection ends it signs in again at once. It prints `ready` when the relay has
answered, or after a time-out, and continues to flood.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import uvloop

from proto.identity import tokens
from proto.rmb.tags import FAIL_FAST
from proto.rmb.types_pb2 import Envelope
from proto.websocket.frames import PING, masked_frame
from tests.bench import twins as bench_twins
from tests.bench.clients import source_address

UNKNOWN_TWIN = 4_000_000_000
ELSEWHERE_TWIN = 900_001
"""A twin whose relay does not exist."""
ABSENT_TWIN = 900_002
"""A twin of this relay that is never signed in."""
FULL_TWIN = 900_003
"""A twin that is never signed in and whose queue other clients have filled."""
EXPIRING_TWIN = 900_004
"""A twin that signs in periodically, when the messages in its queue have expired."""
PAYLOAD_BYTES = 256
CHUNK_MESSAGES = 200
EXPIRES_S = 1
TOKEN_TTL_S = 7_200
CHURN_S = 0.05
ANSWERED_S = 5.0
SETTLE_S = 1.0
"""Seconds from the first answer to `ready`: by then queues are full and back-pressure has begun."""


def request(source: int, sid: str | None, destination: int, **fields: Any) -> Envelope:
    envelope = Envelope(uid="f" * 36, timestamp=int(time.time()), expiration=3600)
    envelope.plain = bytes(PAYLOAD_BYTES)
    envelope.source.twin = source
    if sid is not None:
        envelope.source.connection = sid
    if destination:
        envelope.destination.twin = destination
    envelope.request.command = "flood"
    for name, value in fields.items():
        setattr(envelope, name, value)
    return envelope


def _ping(source: int, sid: str | None) -> bytes:
    envelope = request(source, sid, source)
    envelope.ping.SetInParent()
    return _binary(envelope)


def _binary(envelope: Envelope) -> bytes:
    return masked_frame(envelope.SerializeToString(), os.urandom(4))


def _to(destination: int, **fields: Any) -> Callable[[int, str | None], bytes]:
    return lambda source, sid: _binary(request(source, sid, destination, **fields))


KINDS: dict[str, Callable[[int, str | None], bytes]] = {
    "unknown_twin": _to(UNKNOWN_TWIN),
    "missing_destination": _to(0),
    "wrong_source": lambda source, sid: _binary(request(source + 1, sid, ABSENT_TWIN)),
    "unparsable": lambda source, sid: masked_frame(b"\xff" * PAYLOAD_BYTES, os.urandom(4)),
    "limit_count": _to(ABSENT_TWIN),
    "source_share": _to(ABSENT_TWIN),
    "queue_full": _to(FULL_TWIN),
    "outbox_full": _to(ELSEWHERE_TWIN),
    "offline_failfast": _to(ABSENT_TWIN, tags=FAIL_FAST),
    "expired": _to(EXPIRING_TWIN, expiration=EXPIRES_S),
    "new_sids": _to(ABSENT_TWIN),
    "ping": _ping,
    "websocket_ping": lambda source, sid: bytes((0x80 | PING, 0x80)) + os.urandom(4),
}


class Flood:
    """One run of this program."""

    def __init__(self, port: int, kind: str) -> None:
        self._port = port
        self._kind = kind
        self._frame = KINDS.get(kind, KINDS["ping"])
        self.answered = asyncio.Event()
        self.sent = self.sign_ins = 0

    async def connect(
        self, twin: int, sid: str | None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        now = int(time.time())
        token = tokens.issue(bench_twins.signing_key(twin), twin, sid, now, TOKEN_TTL_S)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self._port, local_addr=(source_address(twin), 0)
        )
        writer.write(
            f"GET /?{token} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
            "".encode()
        )
        head = await reader.readuntil(b"\r\n\r\n")
        self.sign_ins += 1
        if b" 101 " not in head:
            writer.close()
            raise ConnectionError(head.split(b"\r\n")[0].decode())
        return reader, writer

    async def send(self, twin: int, sid: str | None, most: int | None = None) -> None:
        """Flood on one connection, and on a new one whenever it ends.

        `most` limits the number of messages; without it, this does not return.
        """
        chunk = self._frame(twin, sid) * CHUNK_MESSAGES
        fresh = self._kind == "new_sids"
        while most is None or most > 0:
            writer = None
            try:
                reader, writer = await self.connect(twin, sid)
                reading = asyncio.ensure_future(self._read(reader))
                while not reading.done() and (most is None or most > 0):
                    writer.write(self._to_new_sids(twin, sid) if fresh else chunk)
                    await writer.drain()
                    self.sent += CHUNK_MESSAGES
                    most = None if most is None else most - CHUNK_MESSAGES
                if most is not None:
                    await asyncio.sleep(SETTLE_S)
            except (OSError, asyncio.IncompleteReadError):
                self.answered.set()
                await asyncio.sleep(0)
            finally:
                if writer is not None:
                    writer.transport.abort()

    def _to_new_sids(self, twin: int, sid: str | None) -> bytes:
        """Return a chunk of messages to sessions that have never existed."""
        frames = []
        for number in range(CHUNK_MESSAGES):
            envelope = request(twin, sid, ABSENT_TWIN, expiration=60)
            envelope.destination.connection = f"{os.getpid()}-{self.sent + number}"
            frames.append(_binary(envelope))
        return b"".join(frames)

    async def churn(self, twin: int) -> None:
        """Repeatedly sign in with a new session id, send a message to it, read it, and leave."""
        while True:
            sid = f"{os.getpid()}-{self.sign_ins}"
            reader, writer = await self.connect(twin, sid)
            envelope = request(twin, sid, twin)
            envelope.destination.connection = sid
            writer.write(_binary(envelope))
            await writer.drain()
            self.sent += 1
            self.answered.set()
            await reader.read(1 << 16)
            await asyncio.sleep(CHURN_S)  # TCP acknowledges it: nothing stays queued
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while await reader.read(1 << 18):
                self.answered.set()

    async def read_now_and_then(self, twin: int) -> None:
        """Sign in periodically, when the queued messages have expired."""
        while True:
            _, writer = await self.connect(twin, None)
            await asyncio.sleep(EXPIRES_S / 4)
            writer.transport.abort()
            await asyncio.sleep(2 * EXPIRES_S)


async def main(port: int, kind: str, connections: list[tuple[int, str | None]]) -> None:
    flood = Flood(port, kind)
    if kind == "queue_full":
        # The relay lets no single source fill a queue.
        fillers = [bench_twins.FIRST_TWIN + 2_000 + number for number in range(4)]
        await asyncio.gather(*(flood.send(twin, None, 2_600) for twin in fillers))
    flooding = flood.send if kind != "churn" else lambda twin, sid: flood.churn(twin)
    tasks = [asyncio.ensure_future(flooding(*each)) for each in connections]
    if kind == "expired":
        tasks.append(asyncio.ensure_future(flood.read_now_and_then(EXPIRING_TWIN)))
    with contextlib.suppress(TimeoutError):  # not every flood is answered
        async with asyncio.timeout(ANSWERED_S):
            await flood.answered.wait()
    await asyncio.sleep(SETTLE_S)
    print("ready", flush=True)
    before, began = (flood.sent, flood.sign_ins), time.monotonic()
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    await reader.read()
    took_s = time.monotonic() - began
    done = {"sent_per_s": (flood.sent - before[0]) / took_s}
    done["sign_ins_per_s"] = (flood.sign_ins - before[1]) / took_s
    print(json.dumps(done), flush=True)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    uvloop.run(main(options["port"], options["kind"], options["connections"]))
