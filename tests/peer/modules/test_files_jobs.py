"""Uploads requested by local programs: their answers, and what survives a kill."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from peer.modules.api import JSON_SCHEMA, CommandError, LocalRequest, Request, Response
from peer.modules.files import Uploads
from peer.modules.files_jobs import MAX_ENDED
from proto.files.bounds import CHUNK_BYTES, UploadLimits
from proto.files.errors import FileCode
from proto.rmb.address import Address
from tests.peer.modules.memory import MemoryPeer, MemoryStore
from tests.peer.modules.test_files import RECEIVER, SENDER, World, content
from tests.support.waiting import eventually


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    found = await World(tmp_path).start()
    await found.sender.start(Uploads(None))
    yield found
    await found.sender.stop()
    await found.receiver.stop()


async def ask(
    world: World, name: str, fields: Any = None, left_s: float = 30, twin: int = RECEIVER
) -> Any:
    """Call the sending peer as a local program does."""
    handler = world.sender.modules.find_local(f"file.{name}")
    assert handler is not None
    payload = b"" if fields is None else json.dumps(fields).encode()
    deadline = int(time.time() + left_s)
    request = LocalRequest((Address(twin),), f"file.{name}", payload, JSON_SCHEMA, None, deadline)
    found = await handler(request)
    assert isinstance(found, Response) and found.schema == JSON_SCHEMA
    return json.loads(found.payload)


async def state(world: World, id: str, wanted: str) -> dict[str, Any]:
    async def reached() -> dict[str, Any] | None:
        status = await ask(world, "status", {"id": id})
        return status if status["state"] == wanted else None

    return dict(await eventually(reached))


async def restart(world: World, changed: bytes | None = None) -> None:
    """Kill and restart the sender: only the store survives; the file may be changed in between."""
    store = world.sender.store
    values = dict(store.values)
    await world.sender.stop()
    if changed is not None:
        world.source.write_bytes(changed)
    world.memory.on_request = None
    world.sender = MemoryPeer(world.memory, SENDER, store)
    store.values = values
    await world.sender.start(Uploads(None))


async def test_an_upload_is_a_job_once_it_is_accepted(world: World) -> None:
    world.source.write_bytes(content(3 * CHUNK_BYTES))
    id = await ask(world, "upload", {"path": str(world.source), "name": "a.bin"})
    done = await state(world, id, "done")
    assert done == {
        **{"id": id, "state": "done", "twin": RECEIVER, "path": str(world.source)},
        **{"size": 3 * CHUNK_BYTES, "done": 3 * CHUNK_BYTES},
    }
    assert await ask(world, "status") == [done]
    assert world.arrived().read_bytes() == world.source.read_bytes()
    assert world.sender.store.values == {}


async def test_a_job_goes_on_after_a_kill(world: World) -> None:
    blocked = asyncio.Event()

    async def half(request: Request) -> bool:
        if request.tags and request.tags.endswith("chunk=5"):
            blocked.set()
            return False
        return True

    world.memory.on_request = half
    world.source.write_bytes(content(10 * CHUNK_BYTES))
    id = await ask(world, "upload", {"path": str(world.source), "name": "a.bin"})
    await blocked.wait()
    await restart(world)
    # The program's id leads to the upload at once, before anything is sent.
    assert (await ask(world, "status", {"id": id}))["state"] == "sending"
    await state(world, id, "done")
    assert world.arrived().read_bytes() == world.source.read_bytes()
    assert world.sender.store.values == {}


async def test_what_is_kept_and_can_not_be_read_is_forgotten(world: World) -> None:
    world.sender.store.values = {"a": b"{}", "b": b"\xff", "c": b"[]", "d": b'{"id": 1, "x": 2}'}
    await restart(world)
    assert world.sender.store.values == {}
    assert await ask(world, "status") == []


async def test_a_job_can_be_cancelled(world: World) -> None:
    async def nothing_arrives(request: Request) -> bool:
        return request.command == "file.negotiate"

    world.memory.on_request = nothing_arrives
    world.source.write_bytes(content(CHUNK_BYTES))
    id = await ask(world, "upload", {"path": str(world.source), "name": "a.bin"})
    cancelled = await ask(world, "cancel", {"id": id})
    assert cancelled["state"] == "failed" and cancelled["err"]["message"] == "cancelled"
    assert world.sender.store.values == {}
    assert await ask(world, "cancel", {"id": id}) == cancelled
    for command in ("cancel", "status"):
        with pytest.raises(CommandError, match="no such upload"):
            await ask(world, command, {"id": "other"})


async def test_a_program_does_not_wait_for_ever(world: World) -> None:
    async def nothing(request: Request) -> bool:
        return False

    world.memory.on_request = nothing
    world.source.write_bytes(b"x")
    with pytest.raises(CommandError, match=r"did not accept the file within [\d.]+ s$") as caught:
        await ask(world, "upload", {"path": str(world.source)}, left_s=1.5)
    assert caught.value.code == FileCode.BUSY
    (job,) = await ask(world, "status")
    assert job["state"] == "failed"


async def test_the_oldest_jobs_are_forgotten(world: World) -> None:
    for number in range(MAX_ENDED + 5):
        with pytest.raises(CommandError, match="can't read"):
            await ask(world, "upload", {"path": f"/missing/{number}", "name": "x"})
    jobs = await ask(world, "status")
    assert len(jobs) == MAX_ENDED
    assert jobs[-1]["path"] == f"/missing/{MAX_ENDED + 4}"


@pytest.mark.parametrize(
    "fields",
    [
        *({}, [], {"path": 1}, {"path": ""}, {"path": "/a", "name": 1}, {"path": "/a", "cmd": 1}),
        *({"path": "/a", "replace": "yes"}, {"path": "/a", "name": ".x"}, {"path": "/"}),
        *({"path": "/a", "cmd": "system.local"},),
    ],
)
async def test_requests_that_make_no_sense(world: World, fields: Any) -> None:
    with pytest.raises(CommandError) as caught:
        await ask(world, "upload", fields)
    assert caught.value.code == FileCode.BAD_REQUEST
    assert await ask(world, "status") == []


async def test_the_code_says_whose_fault_it_is(world: World, tmp_path: Path) -> None:
    """The error code says whose fault a failure is.

    503 would mean the receiver's disk, and programs would retry.
    """
    world.source.write_bytes(b"x")
    found = []
    for path, twin in (("/missing", RECEIVER), (tmp_path, RECEIVER), (world.source, 4711)):
        with pytest.raises(CommandError) as caught:
            await ask(world, "upload", {"path": str(path), "name": "x"}, twin=twin)
        found.append((caught.value.code, caught.value.message))
    assert found == [
        (400, "can't read /missing: No such file or directory"),
        (400, f"{tmp_path} is not a regular file"),
        (103, "there is no twin 4711"),
    ]


async def test_one_file_to_two_twins_is_two_uploads(world: World, tmp_path: Path) -> None:
    other = RECEIVER + 1
    folder = tmp_path / "other"
    folder.mkdir()
    held = MemoryPeer(world.memory, other)
    await held.start(Uploads(folder, UploadLimits(min_free_bytes=0)))

    async def on_request(request: Request) -> bool:
        return request.command != "file.write"

    world.memory.on_request = on_request
    world.source.write_bytes(content(CHUNK_BYTES))
    fields = {"path": str(world.source)}
    ids = {await ask(world, "upload", fields, twin=twin) for twin in (RECEIVER, other)}
    (id,) = ids  # receivers derive the id from the file
    for twin in (RECEIVER, other):
        assert (await ask(world, "status", {"id": id}, twin=twin))["twin"] == twin
    assert (await ask(world, "cancel", {"id": id}))["twin"] == RECEIVER
    assert (await ask(world, "status", {"id": id}, twin=other))["state"] == "sending"
    with pytest.raises(CommandError, match="no such upload to this twin"):
        await ask(world, "cancel", {"id": id}, twin=SENDER)
    await held.stop()


async def test_a_start_that_fails_leaves_the_folder_free(world: World) -> None:
    class Away(MemoryStore):
        async def all(self) -> dict[str, bytes]:
            raise ConnectionError("the store is away")

    await world.receiver.stop()
    with pytest.raises(ConnectionError):
        await MemoryPeer(world.memory, RECEIVER, Away()).start(Uploads(world.folder))
    world.receiver = await MemoryPeer(world.memory, RECEIVER).start(Uploads(world.folder))


async def half_sent(world: World) -> str:
    """Start a job and return its id once the first chunk is held back.

    The next start has its store, and the test may change its file.
    """
    blocked = asyncio.Event()

    async def nothing_is_written(request: Request) -> bool:
        if request.command == "file.write":
            blocked.set()
            return False
        return True

    world.memory.on_request = nothing_is_written
    world.source.write_bytes(content(3 * CHUNK_BYTES))
    id: str = await ask(world, "upload", {"path": str(world.source), "name": "a.bin"})
    await blocked.wait()
    return id


@pytest.mark.parametrize("size", [3 * CHUNK_BYTES, CHUNK_BYTES])
async def test_a_job_sends_no_other_file_than_was_accepted(world: World, size: int) -> None:
    id = await half_sent(world)
    before = set(os.listdir(world.folder / ".incoming"))
    await restart(world, content(size, seed=1))
    failed = await state(world, id, "failed")
    assert failed["err"]["message"] == f"{world.source} was changed while it was sent"
    assert (failed["id"], failed["size"]) == (id, 3 * CHUNK_BYTES)
    assert world.sender.store.values == {}
    # Nothing else was offered.
    assert set(os.listdir(world.folder / ".incoming")) == before
    assert not world.arrived().exists()


async def test_a_job_that_was_kept_without_its_checksum_goes_on(world: World) -> None:
    id = await half_sent(world)
    ((nonce, value),) = world.sender.store.values.items()
    before = {"twin", "path", "name", "cmd", "replace", "nonce", "id"}
    fields = {name: each for name, each in json.loads(value).items() if name in before}
    world.sender.store.values[nonce] = json.dumps(fields).encode()
    await restart(world)
    await state(world, id, "done")
    assert world.arrived().read_bytes() == world.source.read_bytes()
