"""Tests of payloads in the object store: nats-py, damage, quota, janitor, missing JetStream."""

from __future__ import annotations

import json
import uuid
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lattice.connection import LatticeConnection
from lattice.errors import (
    ObjectLostError,
    ObjectStoreAwayError,
    QuotaExceededError,
    TooLargeError,
)
from lattice.janitor import Janitor
from lattice.objects import CHUNK_BYTES, Objects
from lattice.options import LatticeOptions
from tests.support.nats_server import nats_server

DATA = bytes(range(256)) * 4_000
NAME = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"


@pytest.fixture
async def objects(connection: LatticeConnection) -> AsyncIterator[Objects]:
    made = Objects(connection)
    yield made
    await made.close()


async def messages(objects: Objects) -> int:
    return int((await (await objects.jetstream()).stream_info(objects.stream)).state.messages)


async def test_a_payload_is_taken_once(objects: Objects) -> None:
    await objects.put(NAME, DATA)
    assert await objects.take(NAME, len(DATA)) == DATA
    await objects.close()
    assert await messages(objects) == 0
    with pytest.raises(ObjectLostError, match=f"object {NAME} is missing"):
        await objects.take(NAME, len(DATA))


async def test_nats_py_reads_and_writes_the_same(objects: Objects) -> None:
    await objects.put(NAME, DATA)
    theirs = await (await objects.jetstream()).object_store(objects.bucket)
    assert (await theirs.get(NAME)).data == DATA
    await theirs.put("other", DATA)
    assert await objects.take("other", len(DATA)) == DATA
    await theirs.delete(NAME)
    with pytest.raises(ObjectLostError, match="was deleted"):
        await objects.take(NAME, len(DATA))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"size": 5}, "has 5 bytes instead of"),
        ({"size": -1}, "malformed"),
        ({"size": "x"}, "malformed"),
        ({"nuid": "a.>"}, "malformed"),
        ({"nuid": "elsewhere"}, "lacks"),
        ({"digest": "SHA-256=AAAA"}, "digest differs"),
        ({"digest": 5}, "malformed"),
        (None, "malformed"),
    ],
)
async def test_damaged_objects(objects: Objects, change: dict[str, Any] | None, text: str) -> None:
    await objects.put(NAME, DATA)
    subject = objects.descriptions + urlsafe_b64encode(NAME.encode()).decode()
    found = await objects.message(await objects.jetstream(), subject)
    assert found is not None and found.data is not None
    body = json.dumps(json.loads(found.data) | change) if change is not None else "["
    js = await objects.jetstream()
    await js.publish(subject, body.encode(), headers={"Nats-Rollup": "sub"})
    with pytest.raises(ObjectLostError, match=text):
        await objects.take(NAME, len(DATA))


async def test_an_endless_object_is_not_read(objects: Objects) -> None:
    await objects.put(NAME, DATA[: CHUNK_BYTES + 1])
    js = await objects.jetstream()
    chunk = await objects.message(js, f"{objects.chunks}>", 1)
    assert chunk is not None and chunk.subject is not None
    await js.purge_stream(objects.stream, subject=chunk.subject)
    for _ in range(20):
        await js.publish(chunk.subject, DATA[:CHUNK_BYTES])
    with pytest.raises(ObjectLostError, match="digest differs"):
        await objects.take(NAME, CHUNK_BYTES + 1)


async def test_quota_and_size(options: LatticeOptions) -> None:
    small = replace(options, quota_bytes=2 * len(DATA), max_payload_bytes=len(DATA))
    async with LatticeConnection(small) as connection:
        objects = Objects(connection)
        with pytest.raises(TooLargeError):
            await objects.put(NAME, DATA + b"x")
        with pytest.raises(TooLargeError):
            await objects.take(NAME, 2**63)
        await objects.put(NAME, DATA)
        with pytest.raises(QuotaExceededError, match="exceed the quota"):
            await objects.put("second", DATA)
        await objects.close()


async def test_the_janitor_deletes_only_old_payloads(objects: Objects) -> None:
    await objects.put(NAME, DATA)
    await objects.put(f"{uuid.uuid4()}-r", DATA)
    await objects.put("someone's", DATA)
    js = await objects.jetstream()
    await js.publish(f"{objects.chunks}orphan", b"half")
    before = await messages(objects)
    janitor = Janitor(objects, 60)
    assert await janitor.clean(datetime.now(UTC)) == 0
    assert await messages(objects) == before
    assert await janitor.clean(datetime.now(UTC) + timedelta(seconds=120)) == 3
    assert await objects.take("someone's", len(DATA)) == DATA
    await objects.close()
    assert await messages(objects) == 0
    assert janitor.deleted == 3


async def test_without_jetstream(tmp_path: Path) -> None:
    with nats_server(tmp_path, jetstream=False) as server:
        async with LatticeConnection(LatticeOptions(servers=(server.url,))) as connection:
            objects = Objects(connection)
            with pytest.raises(ObjectStoreAwayError, match="enable it on the NATS server"):
                await objects.put(NAME, DATA)
            with pytest.raises(ObjectStoreAwayError):
                await objects.take(NAME, 5)
            await objects.close()
