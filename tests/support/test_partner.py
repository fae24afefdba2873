"""Tests of the partner servers: they behave as described."""

from __future__ import annotations

import asyncio

import pytest

from proto.federation import batch
from tests.support import envelopes, partner, raw_http
from tests.support.partner import Behaviour, OurKind
from tests.support.redis_servers import free_port

ENVELOPE = envelopes.request((1, None), (2, None), b"x").SerializeToString()


def post(path: str, body: bytes, headers: str = "") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\n{headers}content-length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def ask(behave: Behaviour, *requests: bytes) -> list[raw_http.Answer]:
    async with partner.partner(free_port(), behave) as running:
        async with raw_http.tcp(running.port) as (reader, writer):
            answers = []
            for request in requests:
                writer.write(request)
                answers.append(await raw_http.read_answer(reader, 2))
        assert len(running.deliveries) == len(requests)
        return answers


async def test_answers_on_one_connection() -> None:
    behave = partner.in_turn(partner.answer(500, b"no"), partner.answer(202, retry_after="1"))
    first, second, third = await ask(behave, *[post("/", ENVELOPE)] * 3)
    assert (first.status, first.body) == (500, b"no")
    assert (second.status, second.headers["retry-after"], third.status) == (202, "1", 202)


async def test_odd_answers() -> None:
    assert (await ask(partner.hang_up, post("/", ENVELOPE)))[0].status == 0
    for behave in (partner.silence, partner.endless_body(202), partner.endless_head()):
        with pytest.raises((TimeoutError, asyncio.LimitOverrunError)):
            async with asyncio.timeout(0.2):
                await ask(behave, post("/", ENVELOPE))


async def test_our_kind_takes_each_delivery_once() -> None:
    records = [batch.Record(b"0-%d" % number, False, ENVELOPE) for number in range(2)]
    again = [record._replace(retry=True) for record in records]
    kind = OurKind()
    single, first, second = await ask(
        kind,
        post("/", ENVELOPE, "RMB-Delivery: relay/0-0\r\n"),
        post(batch.PATH, batch.encode(b"relay", [again[0], records[1]])),
        post(batch.PATH, batch.encode(b"relay", again)),
    )
    assert (single.status, single.headers["rmb-federation"]) == (202, batch.OFFER)
    assert batch.decode_answer(first.body, 2) == (208, 202)
    assert batch.decode_answer(second.body, 2) == (208, 208)
    assert list(kind.payloads()) == [b"x", b"x"]


async def test_the_reference_kind_knows_no_batches() -> None:
    (refused,) = await ask(OurKind(offer=False), post(batch.PATH, b""))
    assert refused.status == 404
