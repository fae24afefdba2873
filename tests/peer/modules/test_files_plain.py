"""Uploads to a receiver that answers as the reference gateway does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from peer.modules.api import NO_ANSWER, Answer, CommandError, Module, Request
from peer.modules.files import Uploads
from peer.modules.files_sender import SourceFile, UploadError, upload
from peer.modules.version import version_module
from proto.files.bounds import CHUNK_BYTES
from proto.files.messages import Offer
from tests.peer.modules.test_files import RECEIVER, World, content
from tests.peer.modules.test_files_jobs import ask, restart, state


class Reference(Module):
    """Appends chunks to a file named after its offer's uid, and answers only with errors."""

    def __init__(self) -> None:
        super().__init__("file")
        self.files: dict[str, bytes] = {}
        self.closed: set[str] = set()
        self.full_bytes = 2**30
        self.command("negotiate")(self._negotiate)
        self.command("write")(self._write)
        self.command("close")(self._close)

    async def _negotiate(self, request: Request) -> Answer:
        assert json.loads(request.payload)["size"] >= 0
        self.files[request.uid] = b""
        return None

    async def _write(self, request: Request) -> Answer:
        if request.uid not in self.files:
            raise CommandError(0, "write operation for an upload that does not exist")
        if len(self.files[request.uid]) >= self.full_bytes:
            raise CommandError(0, "failed to write chunk")
        self.files[request.uid] += request.payload
        return NO_ANSWER

    async def _close(self, request: Request) -> Answer:
        self.closed.add(request.uid)
        return NO_ANSWER


@pytest.fixture
async def reference() -> Reference:
    return Reference()


@pytest.fixture
async def world(tmp_path: Path, reference: Reference) -> AsyncIterator[World]:
    found = World(tmp_path)
    await found.receiver.start(reference, version_module())
    await found.sender.start(Uploads(None))
    yield found
    await found.sender.stop()
    await found.receiver.stop()


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, 5 * CHUNK_BYTES + 17])
async def test_a_file_arrives_as_it_was(world: World, reference: Reference, size: int) -> None:
    data = content(size)
    done = await world.send(data)
    assert reference.files == {done.name: data}
    assert reference.closed == {done.name}
    assert done.id == done.name


async def test_a_receiver_without_a_version_is_there_all_the_same(
    tmp_path: Path, reference: Reference
) -> None:
    world = World(tmp_path)

    async def unknown(request: Request) -> Answer:
        raise CommandError(500, f"unknown command: {request.command}")

    await world.receiver.start(reference, Module("rmb", unknown))
    data = content(2 * CHUNK_BYTES)
    assert reference.files.get((await world.send(data)).name) == data


async def test_a_job_is_told_of(world: World, reference: Reference) -> None:
    data = content(3 * CHUNK_BYTES)
    world.source.write_bytes(data)
    id = await ask(world, "upload", {"path": str(world.source)})
    assert (await state(world, id, "done"))["done"] == len(data)
    assert reference.files == {id: data}


async def test_a_job_begins_again_under_its_id_after_a_kill(
    world: World, reference: Reference
) -> None:
    blocked = asyncio.Event()

    async def all_but_the_third(request: Request) -> bool:
        if request.command == "file.write" and len(reference.files[request.uid]) == 2 * CHUNK_BYTES:
            blocked.set()
        return not blocked.is_set()

    world.memory.on_request = all_but_the_third
    data = content(3 * CHUNK_BYTES)
    world.source.write_bytes(data)
    id = await ask(world, "upload", {"path": str(world.source)})
    await blocked.wait()
    await restart(world)
    await state(world, id, "done")
    assert reference.files == {id: data}


async def test_a_refused_chunk_ends_it(world: World, reference: Reference) -> None:
    reference.full_bytes = CHUNK_BYTES
    with pytest.raises(UploadError, match=r"failed to write chunk .*upload it again"):
        await world.send(content(3 * CHUNK_BYTES))
    assert reference.closed == set()


async def test_a_receiver_that_goes_away_ends_it(world: World, reference: Reference) -> None:
    async def only_offers(request: Request) -> bool:
        return request.command == "file.negotiate"

    world.memory.on_request = only_offers
    world.source.write_bytes(data := content(CHUNK_BYTES))
    with (
        SourceFile(world.source) as source,
        pytest.raises(UploadError, match="no answer"),
    ):
        await upload(world.sender, RECEIVER, source, Offer(len(data), "a"), stall_s=0.05)
    assert list(reference.files.values()) == [b""]
