"""Tests of bad input to a provider and a caller: each call is answered, counted and forgotten."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import msgpack
import pytest
from nats.aio.msg import Msg

from lattice.caller import LatticeCaller
from lattice.connection import LatticeConnection
from lattice.errors import ObjectLostError, ResponseError
from lattice.objects import CHUNK_BYTES, Objects
from lattice.options import LatticeOptions
from lattice.provider import LatticeProvider
from lattice.serving import Call
from proto.lattice.entity import Entity
from proto.lattice.errors import Reason
from proto.lattice.invocation import ERROR_PREFIX
from proto.lattice.messages import (
    InvocationResponse,
    LinkDefinition,
    decode_invocation,
    decode_response,
)
from proto.lattice.subjects import SubjectKind, actor_subject, provider_subject
from tests.proto.lattice.identities import ACTOR, CLUSTER, HOST, IAT, PROVIDER, call
from tests.proto.lattice.test_variants import ACCEPTED, REFUSED, VARIANTS
from tests.support.waiting import eventually

TARGET = Entity.provider(PROVIDER.public, "default", "interop:echo")
LINK = LinkDefinition(ACTOR.public, PROVIDER.public, "default", "interop:echo", {"a": "1"})
LARGE = bytes(range(256)) * 3_601
BOMBS = (b"\x91" * 5_000, b"\x81" * 5_000, b"\xdf\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff")


@pytest.fixture
def options(options: LatticeOptions) -> LatticeOptions:
    return replace(options, cluster_seed=CLUSTER.seed, host_id=HOST.public)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the clock at the time of the recorded calls."""
    monkeypatch.setattr(time, "time", lambda: float(IAT))


@pytest.fixture
async def provider(connection: LatticeConnection) -> AsyncIterator[LatticeProvider]:
    started = LatticeProvider(connection, PROVIDER.public, "interop:echo", links=(LINK,))

    @started.operation("Echo.Echo")
    async def echo(call: Call) -> bytes:
        return call.payload

    await started.start()
    yield started
    await started.stop()


@pytest.mark.usefixtures("clock")
async def test_each_recorded_message_gets_its_answer(
    provider: LatticeProvider, connection: LatticeConnection
) -> None:
    assert VARIANTS.keys() == ACCEPTED | REFUSED.keys() and len(VARIANTS) == 44
    subject = provider_subject(connection.options.lattice, PROVIDER.public, "default")
    for name, entry in VARIANTS.items():
        body = bytes.fromhex(entry["body_hex"])
        response = decode_response(await connection.request(subject, body, 5))
        assert (response.error is None) == (name in ACCEPTED), name
        if name in ACCEPTED:
            assert response.msg == b"abcdef"
        else:
            assert (response.error or "").startswith(ERROR_PREFIX) and not response.msg, name
        decodable = REFUSED.get(name) is not Reason.UNDECODABLE
        assert response.invocation_id == (decode_invocation(body).id if decodable else ""), name
    expected = Counter(ok=len(ACCEPTED))
    expected.update(REFUSED.values())
    assert provider.serving.counts == expected
    caller = LatticeCaller(connection, ACTOR.public)
    assert await caller.call(TARGET, "Echo.Echo", b"honest") == b"honest"
    await eventually(lambda: provider.serving.running == 0)
    assert connection.outstanding == 0


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("length", [0, 5, 921_601, 2**63, 2**64 - 1])
async def test_lengths_that_lie(
    provider: LatticeProvider, connection: LatticeConnection, length: int
) -> None:
    invocation = call(target=TARGET, operation="Echo.Echo")
    subject = provider_subject(connection.options.lattice, PROVIDER.public, "default")
    body = replace(invocation, content_length=length).encode()
    response = decode_response(await connection.request(subject, body, 5))
    assert (response.invocation_id, response.msg) == (invocation.id, b"")
    assert "bytes" in (response.error or "")
    assert provider.serving.counts == {Reason.SIZE: 1}


async def _damage(objects: Objects, name: str, fault: str) -> None:
    js = await objects.jetstream()
    first = await objects.message(js, f"{objects.chunks}>", 1)
    assert first is not None and first.subject is not None
    description = objects.descriptions + urlsafe_b64encode(name.encode()).decode()
    if fault == "missing":
        await objects.purge(description)
        return
    if fault == "size":
        digest = urlsafe_b64encode(hashlib.sha256(LARGE).digest()).decode()
        about = {"nuid": "x", "size": len(LARGE) + 1, "digest": f"SHA-256={digest}"}
        await js.publish(description, json.dumps(about).encode(), headers={"Nats-Rollup": "sub"})
        return
    await objects.purge(first.subject)
    chunks = {"short": 2, "changed": 8, "endless": 50}[fault]
    for number in range(chunks):
        await js.publish(first.subject, bytes([number]) * (CHUNK_BYTES if fault != "short" else 9))


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("missing", "is missing"),
        ("size", "bytes instead of"),
        ("short", "lacks"),
        ("changed", "digest differs"),
        ("endless", "digest differs"),
    ],
)
async def test_payloads_that_the_object_store_damages(
    provider: LatticeProvider, connection: LatticeConnection, fault: str, text: str
) -> None:
    invocation = call(LARGE, target=TARGET, operation="Echo.Echo")
    assert invocation.moved
    objects = Objects(connection)
    await objects.put(invocation.id, LARGE)
    await _damage(objects, invocation.id, fault)
    subject = provider_subject(connection.options.lattice, PROVIDER.public, "default")
    response = decode_response(await connection.request(subject, invocation.encode(), 10))
    assert response.invocation_id == invocation.id
    assert (response.error or "").startswith(f"{ERROR_PREFIX}Error when chunking data: ")
    assert text in (response.error or "")
    assert provider.serving.counts == {Reason.PAYLOAD_MISSING: 1}
    await objects.put(invocation.id, LARGE)  # the same call with its payload: no state is left over
    response = decode_response(await connection.request(subject, invocation.encode(), 10))
    assert (response.error, response.size_bytes) == (None, len(LARGE))
    assert await objects.take(f"{invocation.id}-r", len(LARGE)) == LARGE
    await objects.close()


async def test_links_and_shutdowns_that_are_malformed(
    provider: LatticeProvider, connection: LatticeConnection
) -> None:
    def subject(kind: SubjectKind) -> str:
        return provider_subject(connection.options.lattice, PROVIDER.public, "default", kind)

    without_values = LINK.to_record() | {"actor_id": HOST.public}
    del without_values["values"]
    bad = [msgpack.packb(without_values), *BOMBS]
    for data in bad:
        await connection.publish(subject(SubjectKind.LINK_PUT), data)
        await connection.publish(subject(SubjectKind.LINK_DEL), data)
    bodies = (b"", b"[" * 100_000, b'{"host_id":5}', b'{"host_id":"a","host_id":"b"}')
    for data in bodies:
        await connection.publish(subject(SubjectKind.SHUTDOWN), data, "nobody")
    expected = {
        SubjectKind.LINK_PUT: len(bad),
        SubjectKind.LINK_DEL: len(bad),
        SubjectKind.SHUTDOWN: len(bodies),
    }
    await eventually(lambda: provider.unusable == expected)
    assert provider.links == {ACTOR.public: LINK} and not provider.stopped.is_set()
    health = await connection.request(subject(SubjectKind.HEALTH), BOMBS[0], 5)
    assert msgpack.unpackb(health) == {"healthy": True}
    caller = LatticeCaller(connection, ACTOR.public)
    assert await caller.call(TARGET, "Echo.Echo", b"honest") == b"honest"


@pytest.mark.parametrize(
    "lie",
    [
        *(b"[" * 100_000, b"\xff", b'{"links":null}', b'{"links":[{"actor_id":"x"}]}'),
        # A link of another provider, listed twice.
        json.dumps({"links": [LINK.to_record() | {"provider_id": "V"}] * 2}).encode(),
    ],
)
async def test_a_provider_starts_while_the_control_interface_lies(
    connection: LatticeConnection, lie: bytes
) -> None:
    answering: list[asyncio.Task[None]] = []

    def answer(message: Msg) -> None:
        answering.append(asyncio.create_task(connection.publish(message.reply, lie)))

    await connection.subscribe(f"wasmbus.ctl.{connection.options.lattice}.>", answer)
    provider = LatticeProvider(connection, PROVIDER.public, "interop:echo", links=(LINK,), name="")
    await provider.start()
    assert answering and provider.links == {ACTOR.public: LINK}
    await provider.stop()


def _answer(**changes: Any) -> bytes:
    """Return an answer to which the test adds the caller's id; `changes` may make it false."""
    record: dict[str, Any] = {"msg": b"", "invocation_id": "?", "content_length": 0}
    data: bytes = msgpack.packb(record | changes)
    return data


@pytest.mark.parametrize(
    ("lie", "error", "text"),
    [
        *((bomb, ResponseError, "the answer cannot be used") for bomb in BOMBS),
        (_answer(invocation_id="other"), ResponseError, "invocation ID mismatch"),
        (_answer(content_length=2**63), ResponseError, "limit: 67108864"),
        (_answer(content_length=5), ResponseError, "message size mismatch"),
        (_answer(content_length=1_000_000), ObjectLostError, "is missing"),
        (_answer(content_length=-1), ResponseError, "content_length"),
        (_answer(msg=[256]), ResponseError, "'msg'"),
    ],
)
async def test_answers_that_lie(
    connection: LatticeConnection, lie: bytes, error: type[Exception], text: str
) -> None:
    answering: list[asyncio.Task[None]] = []
    honest = False

    def answer(message: Msg) -> None:
        asked = decode_invocation(message.data).id
        data = lie.replace(b"\xa1?", b"\xd9\x20" + asked.encode())
        if honest:
            data = InvocationResponse.success(asked, b"hello").encode()
        answering.append(asyncio.create_task(connection.publish(message.reply, data)))

    await connection.subscribe(actor_subject(connection.options.lattice, ACTOR.public), answer)
    caller = LatticeCaller(connection, ACTOR.public)
    with pytest.raises(error, match=text):
        await caller.call(Entity.actor(ACTOR.public), "Echo.Echo")
    honest = True
    assert await caller.call(Entity.actor(ACTOR.public), "Echo.Echo") == b"hello"
    assert connection.outstanding == 0
