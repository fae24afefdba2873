"""Attacks with uploads by another twin, and odd entries in a folder: nothing leaves the folder."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import resource
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from peer.errors import RemoteError
from peer.modules.files import Uploads
from peer.modules.files_folder import Finished, FolderError, UploadFolder
from peer.modules.files_receiver import MAX_PENDING_WRITES
from proto.files.bounds import CHUNK_BYTES, WINDOW_CHUNKS, UploadLimits
from proto.files.errors import FileCode
from proto.files.messages import NEGOTIATE, WRITE, chunk_tags
from proto.files.records import Record
from tests.peer.modules.memory import MemoryPeer
from tests.peer.modules.test_files import RECEIVER, SENDER, World, content, sha256

LIMITS = UploadLimits(
    max_file_bytes=4 * CHUNK_BYTES,
    quota_bytes=6 * CHUNK_BYTES,
    max_files=5,
    max_open=3,
    max_open_per_twin=2,
    min_free_bytes=0,
)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    found = await World(tmp_path).start(LIMITS)
    yield found
    await found.receiver.stop()


async def offer(world: World, peer: MemoryPeer | None = None, **fields: Any) -> dict[str, Any]:
    fields = {"size": 10, "name": "a", "sha256": sha256(b""), **fields}
    asked = (peer or world.sender).call(RECEIVER, NEGOTIATE, json.dumps(fields).encode())
    status: dict[str, Any] = json.loads((await asked).payload)
    return status


async def refused(asked: Any) -> int:
    with pytest.raises(RemoteError) as caught:
        await asked
    assert 0 < len(caught.value.message) < 300
    return caught.value.code


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../a", "a/b", "/etc/passwd", "a\\b", ".hidden", ".incoming", "a\0b"),
        *("a\nb", "a\u202etxt.exe", "\ud800", "x" * 256, "é" * 128, "a ", " a", "a.", "con"),
        *("LPT1.txt", "a:b", "a*", "e\u0301", "\u2028"),
    ],
)
async def test_names_that_are_refused(world: World, name: str) -> None:
    before = tree(world.folder)
    assert await refused(offer(world, name=name)) == FileCode.BAD_REQUEST
    assert tree(world.folder) == before


@pytest.mark.parametrize("name", ["a", "Grüße.txt", "a b", "a..b", "-rf", "日本.bin", "x" * 255])
async def test_names_that_are_taken(world: World, name: str) -> None:
    status = await offer(world, size=0, name=name)
    await world.sender.call(RECEIVER, "file.close", json.dumps({"id": status["id"]}).encode())
    assert world.arrived(name).read_bytes() == b""


@pytest.mark.parametrize(
    "fields",
    [
        *({"size": -1}, {"size": True}, {"size": 1.5}, {"size": "1"}, {"size": None}),
        *({"name": 7}, {"name": ["a"]}, {"sha256": "xyz"}, {"sha256": 1}, {"replace": 1}),
        *({"nonce": "x" * 65}, {"nonce": 1}, {"cmd": ""}, {"cmd": "a b"}, {"cmd": "x" * 129}),
        *({"cmd": "system.local"}, {"cmd": "file.write"}, {"cmd": "rmb.version"}, {"cmd": "a\n"}),
    ],
)
async def test_offers_that_break_a_rule(world: World, fields: dict[str, Any]) -> None:
    assert await refused(offer(world, **fields)) == FileCode.BAD_REQUEST


@pytest.mark.parametrize(
    "payload", [b"", b"\xff", b"[]", b"null", b"[" * 5000, b'{"size":' + b"9" * 5000, b"x" * 9000]
)
@pytest.mark.parametrize("command", [NEGOTIATE, "file.close"])
async def test_payloads_that_are_no_object(world: World, command: str, payload: bytes) -> None:
    code = await refused(world.sender.call(RECEIVER, command, payload))
    assert code in (FileCode.BAD_REQUEST, FileCode.UNKNOWN)


async def test_limits_of_size_quota_and_number(world: World) -> None:
    size = LIMITS.max_file_bytes
    assert await refused(offer(world, size=size + 1)) == FileCode.TOO_LARGE
    assert await refused(offer(world, size=2**50)) == FileCode.TOO_LARGE
    await offer(world, size=size, name="first")
    # The promised size counts, whether the data came or not.
    assert await refused(offer(world, size=size, name="second")) == FileCode.TOO_LARGE
    await offer(world, size=1, name="second")
    assert await refused(offer(world, size=1, name="third")) == FileCode.BUSY
    other = MemoryPeer(world.memory, 9)
    await offer(world, other, size=size)
    third = MemoryPeer(world.memory, 10)
    assert await refused(offer(world, third)) == FileCode.BUSY


class SlowDisk:
    """Holds up records on their way to the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.saving = threading.Semaphore(0)
        self.goes_on = threading.Semaphore(0)
        save = UploadFolder.save

        def slow(folder: UploadFolder, key: str, record: Record) -> None:
            self.saving.release()
            assert self.goes_on.acquire(timeout=10)
            save(folder, key, record)

        monkeypatch.setattr(UploadFolder, "save", slow)


def open_parts() -> int:
    names = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
    return sum(os.readlink(name).endswith(".part") for name in names if os.path.islink(name))


async def test_offers_nobody_waits_for_any_more_count(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SlowDisk(monkeypatch)
    for name in ("first", "second"):
        asked = asyncio.create_task(offer(world, name=name, sha256=sha256(name.encode())))
        assert await asyncio.to_thread(disk.saving.acquire, timeout=10)
        asked.cancel()  # as at the deadline of the request
        await asyncio.gather(asked, return_exceptions=True)
        disk.goes_on.release()
    # It waits for the others, and does not get its turn at the disk.
    assert await refused(offer(world, name="third")) == FileCode.BUSY
    assert len(world.left()) == 4 and open_parts() == 2
    await world.receiver.stop()
    assert open_parts() == 0
    await world.start(LIMITS)
    assert open_parts() == 2


async def test_an_end_waits_for_the_offer_that_is_looked_at(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SlowDisk(monkeypatch)
    first = asyncio.create_task(offer(world))
    second = asyncio.create_task(offer(world, name="second"))
    assert await asyncio.to_thread(disk.saving.acquire, timeout=10)
    stopped = asyncio.create_task(world.receiver.stop())
    await asyncio.sleep(0)
    disk.goes_on.release()
    await stopped
    assert (await first)["state"] == "open"
    assert await refused(second) == FileCode.BUSY
    assert len(world.left()) == 2 and open_parts() == 0
    await world.start(LIMITS)


async def test_an_offer_whose_file_cannot_be_made_leaves_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: UploadFolder, key: str, size_bytes: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as broken:
        broken.setattr(UploadFolder, "open_part", full)
        assert await refused(offer(world)) == FileCode.NO_SPACE
    assert world.left() == []


@pytest.mark.parametrize(
    "lower",
    [
        {"max_open_per_twin": 1},
        {"max_open": 1, "max_open_per_twin": 1},
        {"quota_bytes": CHUNK_BYTES},
        {"max_files": 1},
    ],
)
async def test_limits_hold_for_what_is_taken_up_at_the_start(
    world: World, lower: dict[str, int]
) -> None:
    first = await offer(world, size=CHUNK_BYTES, name="first", sha256=sha256(b"1"))
    await offer(world, size=CHUNK_BYTES, name="second", sha256=sha256(b"2"))
    await world.receiver.stop()
    await world.start(replace(LIMITS, **lower))
    assert len(world.left()) == 2 and open_parts() == 1
    again = await offer(world, size=CHUNK_BYTES, name="first", sha256=sha256(b"1"))
    assert again == first


async def test_one_that_ends_while_an_offer_is_looked_at_counts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = content(LIMITS.max_file_bytes)
    counted, goes_on = threading.Event(), threading.Event()
    count = UploadFolder.finished

    def slow(folder: UploadFolder, twin: int) -> Finished:
        found = count(folder, twin)
        counted.set()
        assert goes_on.wait(10)
        return found

    status = await offer(world, size=len(data), name="first", sha256=sha256(data))
    id = status["id"]
    for index in range(len(data) // CHUNK_BYTES):
        chunk = data[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES]
        await world.sender.call(RECEIVER, WRITE, chunk, tags=chunk_tags(id, index))
    monkeypatch.setattr(UploadFolder, "finished", slow)
    asked = asyncio.create_task(offer(world, size=len(data), name="second"))
    assert await asyncio.to_thread(counted.wait, 10)
    await world.sender.call(RECEIVER, "file.close", json.dumps({"id": id}).encode())
    goes_on.set()
    assert await refused(asked) == FileCode.TOO_LARGE


async def test_finished_files_count_too(world: World) -> None:
    await world.send(content(LIMITS.max_file_bytes), "a.bin")
    assert await refused(offer(world, size=3 * CHUNK_BYTES)) == FileCode.TOO_LARGE
    for number in range(4):
        await world.send(b"", f"{number}.bin")
    assert await refused(offer(world, size=0)) == FileCode.TOO_LARGE


async def test_space_that_must_stay_free(world: World) -> None:
    await world.receiver.stop()
    free = os.statvfs(world.folder)
    limits = UploadLimits(min_free_bytes=free.f_bavail * free.f_frsize + 2**40)
    await world.start(limits)
    assert await refused(offer(world)) == FileCode.NO_SPACE


async def test_only_some_twins_may(world: World) -> None:
    await world.receiver.stop()
    await world.start(UploadLimits(min_free_bytes=0, twins=frozenset((9,))))
    assert await refused(offer(world)) == FileCode.NOT_ALLOWED
    await offer(world, MemoryPeer(world.memory, 9))


async def test_chunks_that_are_none_of_the_file(world: World) -> None:
    id = (await offer(world, size=3 * CHUNK_BYTES + 5))["id"]
    chunk = bytes(CHUNK_BYTES)

    async def write(index: Any, payload: bytes, id: str = id) -> int:
        tags = chunk_tags(id, index)
        return await refused(world.sender.call(RECEIVER, WRITE, payload, tags=tags))

    assert await write(4, chunk) == FileCode.BAD_REQUEST
    assert await write(10**9, chunk) == FileCode.BAD_REQUEST
    assert await write(10**10, chunk) == FileCode.BAD_REQUEST
    assert await write(-1, chunk) == FileCode.BAD_REQUEST
    assert await write("٣", chunk) == FileCode.BAD_REQUEST
    assert await write(0, chunk[1:]) == FileCode.BAD_REQUEST
    assert await write(0, chunk + b"x") == FileCode.BAD_REQUEST
    assert await write(3, chunk) == FileCode.BAD_REQUEST
    assert await write(0, chunk, "0" * 32) == FileCode.UNKNOWN
    assert await write(0, chunk, "../../etc/passwd") == FileCode.BAD_REQUEST
    # The id alone gives no access: it belongs to the twin that offered the file.
    other = MemoryPeer(world.memory, 9)
    tags = chunk_tags(id, 0)
    assert await refused(other.call(RECEIVER, WRITE, chunk, tags=tags)) == FileCode.UNKNOWN


async def test_the_window_bounds_what_is_kept_in_memory(tmp_path: Path) -> None:
    world = await World(tmp_path).start()
    try:
        size = 200 * CHUNK_BYTES
        id = (await offer(world, size=size))["id"]
        chunk = bytes(CHUNK_BYTES)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        codes = await asyncio.gather(
            *(
                world.sender.call(RECEIVER, WRITE, chunk, tags=chunk_tags(id, index))
                for index in (*range(1, 200), *range(1, 200))
            ),
            return_exceptions=True,
        )
        taken = [code for code in codes if not isinstance(code, BaseException)]
        assert len(taken) < 2 * WINDOW_CHUNKS <= MAX_PENDING_WRITES
        refusals = {code.code for code in codes if isinstance(code, RemoteError)}
        assert refusals <= {FileCode.BUSY, FileCode.AHEAD} and refusals
        grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown_kib * 1024 < MAX_PENDING_WRITES * CHUNK_BYTES
    finally:
        await world.receiver.stop()


async def test_a_close_too_early_only_tells_what_is_missing(world: World) -> None:
    id = (await offer(world, size=3 * CHUNK_BYTES))["id"]
    await world.sender.call(RECEIVER, WRITE, bytes(CHUNK_BYTES), tags=chunk_tags(id, 2))
    answer = await world.sender.call(RECEIVER, "file.close", json.dumps({"id": id}).encode())
    status = json.loads(answer.payload)
    assert (status["state"], status["have"], status["beyond"]) == ("open", 0, [2])
    assert not world.arrived("a").exists()


async def test_many_closes_at_a_time_end_it_once(world: World) -> None:
    data = content(3 * CHUNK_BYTES)
    id = (await offer(world, size=len(data), sha256=sha256(data), cmd="done"))["id"]
    for index in range(3):
        chunk = data[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES]
        await world.sender.call(RECEIVER, WRITE, chunk, tags=chunk_tags(id, index))
    close = json.dumps({"id": id}).encode()
    closes = [world.sender.call(RECEIVER, "file.close", close) for _ in range(20)]
    assert {json.loads(found.payload)["state"] for found in await asyncio.gather(*closes)} == {
        "done"
    }
    assert world.arrived("a").read_bytes() == data
    assert len(world.receiver.delivered) == 1


async def test_a_folder_that_is_a_link_is_not_followed(world: World, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (world.folder / str(SENDER)).symlink_to(outside)
    assert await refused(offer(world)) == FileCode.FAILED
    assert list(outside.iterdir()) == []


async def test_a_file_that_is_a_link_is_replaced_and_not_written_through(
    world: World, tmp_path: Path
) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("mine")
    world.arrived().parent.mkdir()
    world.arrived().symlink_to(outside)
    assert await refused(offer(world, name="a.bin")) == FileCode.EXISTS
    await world.send(b"theirs", replace=True)
    assert outside.read_text() == "mine"
    assert world.arrived().read_bytes() == b"theirs" and not world.arrived().is_symlink()


async def test_a_part_that_is_a_link_is_not_opened(world: World, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("mine")
    await offer(world, size=6)
    (part,) = [name for name in world.left() if name.endswith(".part")]
    await world.receiver.stop()
    path = world.folder / ".incoming" / part
    path.unlink()
    path.symlink_to(outside)
    await world.start(LIMITS)
    assert outside.read_text() == "mine"
    assert world.left() == []


@pytest.mark.parametrize("damage", [b"", b"{}", b"[]", b"\xff", b"null", b'{"id": 1}'])
async def test_damaged_records_are_dropped(world: World, damage: bytes) -> None:
    await offer(world, size=6)
    await world.receiver.stop()
    (record,) = (world.folder / ".incoming").glob("*.json")
    record.write_bytes(damage)
    (world.folder / ".incoming" / "stray.part").write_bytes(b"x")
    await world.start(LIMITS)
    assert world.left() == []


async def test_a_cut_part_begins_anew(world: World) -> None:
    data = content(3 * CHUNK_BYTES)
    id = (await offer(world, size=len(data), sha256=sha256(data), name="a.bin"))["id"]
    tags = chunk_tags(id, 0)
    await world.sender.call(RECEIVER, WRITE, data[:CHUNK_BYTES], tags=tags)
    await world.receiver.stop()
    (part,) = (world.folder / ".incoming").glob("*.part")
    os.truncate(part, 100)
    await world.start(LIMITS)
    done = await world.send(data)
    assert done.resumed_bytes == 0
    assert world.arrived().read_bytes() == data


async def test_bytes_that_changed_on_disk_are_found(world: World) -> None:
    data = content(3 * CHUNK_BYTES)
    id = (await offer(world, size=len(data), sha256=sha256(data), name="a.bin"))["id"]
    tags = chunk_tags(id, 0)
    await world.sender.call(RECEIVER, WRITE, data[:CHUNK_BYTES], tags=tags)
    await world.receiver.stop()
    (part,) = (world.folder / ".incoming").glob("*.part")
    with part.open("r+b") as file:
        file.write(b"damage")
    await world.start(LIMITS)
    await world.send(data)  # gets an error, and sends all of it again
    assert world.arrived().read_bytes() == data


async def test_an_upload_that_is_left_makes_room(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await offer(world, size=1, name="first")
    await offer(world, size=1, name="second")
    receiver = world.receiver.modules.by_prefix["file"]._receiver  # type: ignore[attr-defined]
    clock = receiver._clock
    monkeypatch.setattr(receiver, "_clock", lambda: clock() + 61)
    await offer(world, size=1, name="third")
    tags = chunk_tags(first["id"], 0)
    assert await refused(world.sender.call(RECEIVER, WRITE, b"x", tags=tags)) == FileCode.UNKNOWN
    monkeypatch.setattr(receiver, "_clock", lambda: clock() + LIMITS.keep_s + 100)
    await receiver._sweep()
    assert world.left() == []


def test_a_folder_has_one_peer(tmp_path: Path) -> None:
    folder = UploadFolder(tmp_path)
    with pytest.raises(FolderError, match="another peer"):
        UploadFolder(tmp_path)
    folder.close()
    UploadFolder(tmp_path).close()
    with pytest.raises(FolderError, match="No such file"):
        UploadFolder(tmp_path / "missing")
    assert Uploads(None).prefix == "file"
