"""Client that acts as another relay: HTTP requests by hand, on one persistent connection.

`FederationClient` sends exactly what a test specifies; it never repeats or reconnects.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from proto.federation import batch
from proto.rmb import challenge
from proto.rmb import types_pb2 as pb
from tests.support import envelopes
from tests.support.envelopes import SessionKey
from tests.support.identities import Twin
from tests.support.raw_http import Answer, read_answer, tcp
from tests.support.redis_servers import RedisServer


def signed(
    source: Twin,
    destination: SessionKey | None,
    payload: bytes = b"",
    sid: str | None = None,
    **fields: object,
) -> pb.Envelope:
    """Return a request signed by its source twin, as it arrives from the twin's own relay."""
    envelope = envelopes.request((source.id, sid), destination, payload, **fields)  # type: ignore[arg-type]
    challenge.sign(envelope, source.signing_key)
    return envelope


def record(number: int, envelope: pb.Envelope, *, retry: bool = False) -> batch.Record:
    """Return one message of a batch."""
    return batch.Record(b"3-%d-0" % number, retry, envelope.SerializeToString())


def decide(server: RedisServer, domain: str, flags: str) -> None:
    """Publish an operator's decision about a relay, as the pages do; no flags: none."""
    if flags:
        server.run("HSET", "relay:control", f"relay:{domain}", flags)
    else:
        server.run("HDEL", "relay:control", f"relay:{domain}")
    server.run("HINCRBY", "relay:control", "version", 1)


def queued(server: RedisServer, twin: Twin) -> list[bytes]:
    """Return the messages in the queue of a twin's session without sid."""
    return [fields[b"_"] for _, fields in server.run("XRANGE", f"stream:{twin.id}", "-", "+")]


class FederationClient:
    """Connection of another relay."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def post(
        self, body: bytes | pb.Envelope, path: str = "/", headers: dict[str, str] | None = None
    ) -> Answer:
        """Send one request with its body in one piece; return the answer."""
        content = body if isinstance(body, bytes) else body.SerializeToString()
        lines = [f"POST {path} HTTP/1.1", "Host: relay", f"Content-Length: {len(content)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + content)
        return await read_answer(self.reader)

    async def deliver(
        self,
        envelope: pb.Envelope,
        delivery: str = "",
        *,
        relay: str = "",
        relay_id: str = "aa",
        retry: bool = False,
    ) -> Answer:
        """Send a message in the single form, with the headers of our kind of relay."""
        headers = {"Content-Type": "application/octet-stream"}
        if relay:
            headers[batch.RELAY_HEADER] = relay
        if delivery:
            headers[batch.DELIVERY_HEADER] = batch.delivery_header(relay_id, delivery, retry)
        return await self.post(envelope, headers=headers)

    async def deliver_batch(
        self, records: Sequence[batch.Record], *, relay: str = "", relay_id: bytes = b"aa"
    ) -> tuple[int, ...]:
        """Send messages in the batch form; return the statuses if the answer is 200."""
        headers = {batch.RELAY_HEADER: relay} if relay else {}
        answer = await self.post(batch.encode(relay_id, records), batch.PATH, headers)
        assert answer.status == 200, answer
        return batch.decode_answer(answer.body, len(records))


@contextlib.asynccontextmanager
async def federation(port: int, address: str = "127.0.0.1") -> AsyncIterator[FederationClient]:
    """Open a connection during the block; `address` is that of the other relay."""
    async with tcp(port, address) as (reader, writer):
        yield FederationClient(reader, writer)
