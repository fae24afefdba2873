"""Fuzz the input from partner relays: batches, answers, envelopes, bodies, domains.

A partner relay is not trusted: each input gets a verdict with a short text that names the fault,
and what is read equals what was written.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from proto.federation import batch, domains, inbound
from proto.federation.answers import MEANINGS, InboundReason
from proto.federation.batch import Record
from proto.federation.domains import DomainError
from proto.federation.errors import BatchError
from proto.rmb import types_pb2 as pb
from proto.rmb.bounds import Bounds
from proto.rmb.reasons import MessageReason
from proto.websocket.bounds import PartialBudget
from relay.federation.inbound_body import BodyError, read_body
from tests.interop.recorded import recorded

LONGEST_TEXT = 200
BODY_LIMIT_BYTES = 300
BUDGET_BYTES = 400
_ENVELOPES = [bytes.fromhex(entry["hex"]) for entry in recorded("envelopes")]
_UVARINTS = [b"\x80" * n + bytes((last,)) for n in range(7) for last in (0, 1, 127)]
_DOMAIN_PARTS = [
    *("a", "B", "0", "9", "-", ".", "..", ":", ":80", ":0", ":65535", ":65536", "[", "]", "::1"),
    *("[::1]", "1.2.3.4", "é", "٣", ":٣", "/", "?", "#", "@", "%", "\\", " ", "\n", "\0", "_"),
    *("xn--", "relay.example", "a" * 63, "a." * 100, "127.0.0.1", "\uff10", "\u3002"),
]


def targets() -> list[tuple[str, Callable[[random.Random], None]]]:
    """Return the name and the function of each target."""
    return [
        ("federation: random batches", _random_batch),
        ("federation: damaged batches", _damaged_batch),
        ("federation: batches", _batch),
        ("federation: answers", _answer),
        ("federation: envelopes", _envelope),
        ("federation: bodies", _body),
        ("federation: domains", _domain),
    ]


def _read(body: bytes) -> tuple[bytes, list[Record]] | None:
    try:
        relay_id, records = batch.decode(body)
    except BatchError as error:
        assert len(str(error)) < LONGEST_TEXT
        return None
    assert 0 < len(relay_id) <= batch.MAX_ID_BYTES
    assert len(records) <= batch.MAX_MESSAGES
    assert all(0 < len(record.id) <= batch.MAX_ID_BYTES for record in records)
    assert sum(len(record.envelope) for record in records) <= len(body)
    assert batch.decode(batch.encode(relay_id, records)) == (relay_id, records)
    return relay_id, records


def _records(rng: random.Random) -> tuple[bytes, list[Record]]:
    def name() -> bytes:
        return rng.randbytes(rng.choice((1, 2, 20, batch.MAX_ID_BYTES)))

    def content() -> bytes:
        return rng.choice((b"", rng.randbytes(127), rng.randbytes(128), rng.choice(_ENVELOPES)))

    count = rng.choice((0, 1, 2, 10, 10, batch.MAX_MESSAGES if rng.random() < 0.02 else 3))
    return name(), [Record(name(), rng.random() < 0.5, content()) for _ in range(count)]


def _random_batch(rng: random.Random) -> None:
    parts = [rng.choice((rng.randbytes(rng.randrange(9)), *_UVARINTS)) for _ in range(20)]
    _read(b"".join(parts[: rng.randrange(20)]))


def _batch(rng: random.Random) -> None:
    relay_id, records = _records(rng)
    assert _read(batch.encode(relay_id, records)) == (relay_id, records)


def _damaged_batch(rng: random.Random) -> None:
    relay_id, records = _records(rng)
    data = bytearray(batch.encode(relay_id, records))
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at:at] = rng.choice((*_UVARINTS, rng.randbytes(3)))
            case 2:
                del data[at : at + rng.randint(1, 8)]
            case 3:
                data += data[at:]
            case _:
                del data[at:]
    _read(bytes(data[: batch.MAX_BODY_BYTES + 1]))


def _answer(rng: random.Random) -> None:
    statuses = [rng.choice((202, 208, 400, 403, 503, 0, 65535)) for _ in range(rng.randrange(9))]
    body = batch.encode_answer(statuses)
    assert batch.decode_answer(body, len(statuses)) == tuple(statuses)
    body, messages = rng.randbytes(rng.randrange(20)), rng.randrange(10)
    try:
        found = batch.decode_answer(body, messages)
    except BatchError as error:
        assert len(str(error)) < LONGEST_TEXT
        assert len(body) != 2 * messages
    else:
        assert batch.encode_answer(found) == body


def _envelope(rng: random.Random) -> None:
    data = bytearray(rng.choice(_ENVELOPES) if rng.random() < 0.9 else rng.randbytes(60))
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(data) + 1)
        data[at : at + rng.randrange(4)] = rng.randbytes(rng.randrange(4))
    raw = bytes(data)
    bounds = Bounds(connection_bytes=rng.choice((1, 128)), tags_bytes=rng.choice((1, 1024)))
    envelope, destination, source, reason = inbound.examine(raw, bounds)
    assert (reason is None) == (destination is not None)
    if reason is not None:
        assert reason in MEANINGS
        return
    assert envelope == pb.Envelope.FromString(raw)
    assert destination is not None
    assert destination[0] == envelope.destination.twin != 0
    assert len((destination[1] or "").encode()) <= bounds.connection_bytes
    assert source == envelope.source.twin
    assert source or envelope.HasField("error")


def _body(rng: random.Random) -> None:
    """Read a body in pieces of any size, complete or not, beside others that fill the budget."""
    events: list[dict[str, Any]] = []
    sent = b""
    for _ in range(rng.randint(1, 6)):
        piece = rng.randbytes(rng.choice((0, 1, 50, 150, BODY_LIMIT_BYTES)))
        sent += piece
        events.append({"type": "http.request", "body": piece, "more_body": True})
    ends = rng.random() < 0.8
    if ends:
        events[-1]["more_body"] = False
    feed = iter([*events, {"type": "http.disconnect"}])
    budget = PartialBudget(BUDGET_BYTES)
    others = rng.choice((0, 0, BUDGET_BYTES - 50))
    budget.take(others)
    announced = rng.choice((b"", str(len(sent)).encode()))

    async def receive() -> dict[str, Any]:
        return next(feed)

    async def read() -> bytes:
        return await read_body(receive, announced, BODY_LIMIT_BYTES, budget)

    try:
        body = asyncio.run(read())
    except BodyError as error:
        assert (error.answer is None) == (error.reason is InboundReason.BODY_ENDED)
        if error.reason is MessageReason.TOO_LARGE:
            assert len(sent) > BODY_LIMIT_BYTES
        elif error.reason is InboundReason.BODY_ENDED:
            assert not ends
        else:
            assert error.reason is InboundReason.BODIES_FULL
            assert others + len(sent) > BUDGET_BYTES
    else:
        assert ends
        assert body == sent
        assert len(body) <= BODY_LIMIT_BYTES
    assert budget.used_bytes == others, "what was taken was given back"


def _domain(rng: random.Random) -> None:
    text = "".join(rng.choices(_DOMAIN_PARTS, k=rng.randint(0, 5)))
    try:
        host, port = domains.parse(text)
    except DomainError as error:
        assert len(str(error)) < LONGEST_TEXT
        return
    assert text.isascii(), "no digit or dot of another script"
    bare = f"[{host}]" if ":" in host else host
    assert text in (bare, f"[{host}]") if port is None else text.startswith(bare)
    assert not set(host) & set("/?#@%\\ \n\0_")
    assert port is None or 0 < port < 65536
