"""Uploads between two peers in memory, with real files."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from peer.errors import RemoteError
from peer.modules.api import JSON_SCHEMA, Request, Response
from peer.modules.files import Uploads
from peer.modules.files_receiver import MAX_PENDING_WRITES
from peer.modules.files_sender import SourceFile, Uploaded, UploadError, upload
from proto.files.bounds import CHUNK_BYTES, SENDER_WINDOW_CHUNKS, WINDOW_CHUNKS, UploadLimits
from proto.files.errors import FileCode
from proto.files.messages import Offer, chunk_tags
from tests.peer.modules.memory import Memory, MemoryPeer
from tests.support.waiting import eventually

SENDER, RECEIVER = 7, 8


def content(size_bytes: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size_bytes)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class World:
    """A sender, and a receiver with a folder that outlives it."""

    def __init__(self, folder: Path) -> None:
        self.memory = Memory()
        self.sender = MemoryPeer(self.memory, SENDER)
        self.receiver = MemoryPeer(self.memory, RECEIVER)
        self.folder = folder / "uploads"
        self.folder.mkdir()
        self.source = folder / "source.bin"

    async def start(self, limits: UploadLimits | None = None) -> World:
        limits = limits or UploadLimits(min_free_bytes=0)
        await self.receiver.start(Uploads(self.folder, limits))
        return self

    async def send(self, data: bytes, name: str = "a.bin", **fields: object) -> Uploaded:
        self.source.write_bytes(data)
        offer = Offer(len(data), name, sha256(data), **fields)  # type: ignore[arg-type]
        with SourceFile(self.source) as source:
            return await upload(self.sender, RECEIVER, source, offer)

    def arrived(self, name: str = "a.bin") -> Path:
        return self.folder / str(SENDER) / name

    def stages(self) -> list[str]:
        """Return the stages of the uploads on record."""
        records = (self.folder / ".incoming").glob("*.json")
        return [json.loads(record.read_bytes())["stage"] for record in records]

    def left(self) -> list[str]:
        return sorted(name for name in os.listdir(self.folder / ".incoming") if name != "lock")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    found = await World(tmp_path).start()
    yield found
    await found.receiver.stop()
    await found.sender.stop()


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 20 * CHUNK_BYTES + 17])
async def test_a_file_arrives_as_it_was(world: World, size: int) -> None:
    data = content(size)
    done = await world.send(data)
    assert world.arrived().read_bytes() == data
    assert done.name == "a.bin" and done.sha256 == sha256(data)
    assert done.resumed_bytes == 0 and done.repeated_chunks == 0
    await eventually(lambda: not [name for name in world.left() if name.endswith(".part")])


async def test_lost_doubled_and_reordered_chunks(world: World) -> None:
    chance = random.Random(5)

    async def mangle(request: Request) -> bool:
        if request.command != "file.write":
            return True
        await asyncio.sleep(chance.random() * 0.01)  # overtaken by others
        if chance.random() < 0.3:
            await world.receiver.modules.find("file.write")(request)  # type: ignore[misc]
        return True

    world.memory.on_request = mangle
    data = content(40 * CHUNK_BYTES)
    await world.send(data)
    assert world.arrived().read_bytes() == data


async def test_no_more_than_the_window_is_under_way(world: World) -> None:
    under_way: set[str] = set()
    most = 0

    async def count(request: Request) -> bool:
        nonlocal most
        under_way.add(request.uid)
        most = max(most, len(under_way))
        await asyncio.sleep(0.001)
        return True

    async def answered(request: Request) -> bool:
        under_way.discard(request.uid)
        return True

    world.memory.on_request, world.memory.on_answer = count, answered
    await world.send(content(60 * CHUNK_BYTES))
    assert most == SENDER_WINDOW_CHUNKS


async def test_a_killed_sender_goes_on_where_it_was(world: World) -> None:
    data = content(30 * CHUNK_BYTES + 5)
    half = asyncio.Event()
    written = 0

    async def stop_half_way(request: Request) -> bool:
        nonlocal written
        written += request.command == "file.write"
        if written > 15:
            half.set()
        return written <= 15

    world.memory.on_request = stop_half_way
    sending = asyncio.create_task(world.send(data))
    await half.wait()
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    world.memory.on_request = None
    done = await world.send(data)
    assert world.arrived().read_bytes() == data
    assert 8 * CHUNK_BYTES <= done.resumed_bytes <= 15 * CHUNK_BYTES


async def test_a_receiver_that_comes_back_goes_on_where_it_was(world: World) -> None:
    data = content(30 * CHUNK_BYTES + 5)
    written = 0

    async def restart_half_way(request: Request) -> bool:
        nonlocal written
        written += request.command == "file.write"
        if written == 15:
            await world.receiver.stop()
            await world.start()
        return True

    world.memory.on_request = restart_half_way
    await world.send(data)
    assert world.arrived().read_bytes() == data
    # The chunks in progress, and those that came after a gap, are sent again.
    assert written <= 31 + SENDER_WINDOW_CHUNKS + WINDOW_CHUNKS


async def test_the_command_is_called_on_arrival(world: World) -> None:
    data = content(1000)
    done = await world.send(data, cmd="photos.new")
    await eventually(lambda: world.receiver.delivered)
    (request,) = world.receiver.delivered
    assert request.command == "photos.new" and request.source.twin == SENDER
    assert request.schema == JSON_SCHEMA
    assert json.loads(request.payload) == {
        "id": done.id,
        "path": str(world.arrived()),
        "name": "a.bin",
        "size": 1000,
        "sha256": sha256(data),
    }


async def test_the_command_is_called_after_a_crash_before_it(world: World) -> None:
    blocked = asyncio.Event()

    async def never(request: Request) -> None:
        blocked.set()
        await asyncio.Event().wait()

    deliver, world.receiver.deliver = world.receiver.deliver, never  # type: ignore[method-assign]
    await world.receiver.stop()
    await world.start()
    await world.send(content(10), cmd="photos.new")
    await blocked.wait()
    await world.receiver.stop()
    world.receiver.deliver = deliver  # type: ignore[method-assign]
    await world.start()
    # The command is called at least once: again until the call is on record.
    await eventually(lambda: world.stages() == ["done"])
    await world.receiver.stop()
    await world.start()
    await asyncio.sleep(0)
    assert len(world.receiver.delivered) == 1


async def test_a_name_that_is_taken_is_refused_unless_it_may_be_replaced(world: World) -> None:
    await world.send(content(10, seed=1))
    with pytest.raises(UploadError, match="is there already") as caught:
        await world.send(content(10, seed=2))
    assert caught.value.code == FileCode.EXISTS
    assert world.arrived().read_bytes() == content(10, seed=1)
    await world.send(content(10, seed=2), replace=True)
    assert world.arrived().read_bytes() == content(10, seed=2)


async def test_the_same_file_once_more_is_done_at_once(world: World) -> None:
    data = content(10 * CHUNK_BYTES)
    first = await world.send(data)
    again = await world.send(data)
    assert again.id == first.id and again.resumed_bytes == len(data)
    world.arrived().unlink()  # a service has taken it: then it arrives once more
    await world.send(data)
    assert world.arrived().read_bytes() == data


async def test_a_file_that_came_meanwhile_is_not_overwritten(world: World) -> None:
    async def other_is_faster(request: Request) -> bool:
        if request.command == "file.close":
            world.arrived().parent.mkdir(exist_ok=True)
            world.arrived().write_bytes(b"other")
        return True

    world.memory.on_request = other_is_faster
    with pytest.raises(UploadError, match="came while this one"):
        await world.send(content(10))
    assert world.arrived().read_bytes() == b"other"
    assert world.left() == []


async def test_what_arrives_damaged_is_deleted(world: World) -> None:
    world.source.write_bytes(content(10))
    offer = Offer(10, "a.bin", sha256(b"something else"))
    with SourceFile(world.source) as source, pytest.raises(UploadError) as caught:
        await upload(world.sender, RECEIVER, source, offer)
    assert caught.value.code == FileCode.CHECKSUM
    assert not world.arrived().exists() and world.left() == []


async def test_a_file_that_changes_is_not_sent(world: World) -> None:
    async def change(request: Request) -> bool:
        if request.command == "file.write":
            world.source.write_bytes(content(3 * CHUNK_BYTES, seed=9))
            os.utime(world.source, ns=(1, 1))
        return True

    world.memory.on_request = change
    with pytest.raises(UploadError, match="was changed"):
        await world.send(content(3 * CHUNK_BYTES))
    assert not world.arrived().exists()


async def test_progress_only_grows(world: World) -> None:
    seen: list[int] = []
    data = content(10 * CHUNK_BYTES)
    world.source.write_bytes(data)
    with SourceFile(world.source) as source:
        offer = Offer(len(data), "a.bin", await source.sha256())
        await upload(
            *(world.sender, RECEIVER, source, offer),
            on_progress=lambda progress: seen.append(progress.done_bytes),
        )
    assert seen == sorted(seen) and seen[-1] == len(data)


async def test_only_regular_files_are_sent(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "missing", Path("a\0b")):
        with pytest.raises(UploadError):
            SourceFile(path)


async def test_a_peer_without_a_folder_takes_nothing(world: World) -> None:
    await world.sender.start(Uploads(None))
    with pytest.raises(Exception, match="takes no uploads"):
        await world.receiver.call(SENDER, "file.negotiate", b'{"size": 1}')


async def test_a_sender_that_knows_only_the_sheet(world: World) -> None:
    """A sender works that gives only the size, and sends untagged chunks with the offer's uid."""
    data = content(3 * CHUNK_BYTES + 7)
    call, uid = world.sender.call, "3fa85f64-5717-4562-b3fc-2c963f66afa6"
    await call(RECEIVER, "file.negotiate", json.dumps({"size": len(data)}).encode(), uid=uid)
    for at in range(0, len(data), CHUNK_BYTES):
        await call(RECEIVER, "file.write", data[at : at + CHUNK_BYTES], uid=uid)
    status = json.loads((await call(RECEIVER, "file.close", uid=uid)).payload)
    assert status["state"] == "done"
    assert world.arrived(status["name"]).read_bytes() == data


@pytest.mark.parametrize("numbered", [False, True])
async def test_a_close_waits_for_the_chunks_before_it(world: World, numbered: bool) -> None:
    """A close waits for the chunks before it, as the reference sends all without waiting."""
    chunks = WINDOW_CHUNKS if numbered else 2 * WINDOW_CHUNKS
    data = content(chunks * CHUNK_BYTES - 7)
    call, uid = world.sender.call, "3fa85f6457174562b3fc2c963f66afa6"
    await call(RECEIVER, "file.negotiate", json.dumps({"size": len(data)}).encode(), uid=uid)
    sent = []
    for index in range(chunks):
        chunk = data[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES]
        tags = chunk_tags(uid, index) if numbered else None
        sent.append(call(RECEIVER, "file.write", chunk, tags=tags, uid=uid))
    *_, closed = await asyncio.gather(*sent, call(RECEIVER, "file.close", uid=uid))
    status = json.loads(closed.payload)
    assert status["state"] == "done"
    assert world.arrived(status["name"]).read_bytes() == data


async def test_no_chunk_takes_the_place_of_a_refused_one(world: World) -> None:
    data = content(3 * CHUNK_BYTES)
    first, second, third = (data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES))
    call = world.sender.call
    await call(RECEIVER, "file.negotiate", json.dumps({"size": len(data)}).encode(), uid="a")
    sent = (call(RECEIVER, "file.write", each, uid="a") for each in (first, second[:-1], third))
    answers = await asyncio.gather(*sent, return_exceptions=True)
    codes = [each.code if isinstance(each, RemoteError) else 0 for each in answers]
    assert codes == [0, FileCode.BAD_REQUEST, FileCode.BUSY]
    for chunk in (second, third):
        await call(RECEIVER, "file.write", chunk, uid="a")
    status = json.loads((await call(RECEIVER, "file.close", uid="a")).payload)
    assert status["state"] == "done"
    assert world.arrived(status["name"]).read_bytes() == data


async def test_no_chunk_takes_the_place_of_one_there_was_no_room_for(world: World) -> None:
    data = content((MAX_PENDING_WRITES + 2) * CHUNK_BYTES)
    call = world.sender.call

    def write(index: int) -> asyncio.Task[Response]:
        chunk = data[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES]
        return asyncio.create_task(call(RECEIVER, "file.write", chunk, uid="a"))

    await call(RECEIVER, "file.negotiate", json.dumps({"size": len(data)}).encode(), uid="a")
    sent = [write(index) for index in range(MAX_PENDING_WRITES + 1)]
    await sent[0]
    sent.append(write(len(sent)))  # now there is space for it
    answers = await asyncio.gather(*sent, return_exceptions=True)
    codes = [each.code for each in answers if isinstance(each, RemoteError)]
    assert codes == [FileCode.BUSY, FileCode.BUSY]
    for index in range(MAX_PENDING_WRITES, len(sent)):
        await write(index)
    status = json.loads((await call(RECEIVER, "file.close", uid="a")).payload)
    assert status["state"] == "done"
    assert world.arrived(status["name"]).read_bytes() == data


async def test_its_checksum_may_come_with_the_close(world: World) -> None:
    call = world.sender.call
    for uid, digest, state in (("a", sha256(b"xyz"), "done"), ("b", sha256(b"other"), None)):
        await call(RECEIVER, "file.negotiate", b'{"size": 3}', uid=uid)
        await call(RECEIVER, "file.write", b"xyz", uid=uid)
        close = call(RECEIVER, "file.close", json.dumps({"sha256": digest}).encode(), uid=uid)
        if state:
            assert json.loads((await close).payload)["state"] == state
        else:
            with pytest.raises(Exception, match="sha256 of what arrived"):
                await close
