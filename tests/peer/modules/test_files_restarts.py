"""How a receiver of uploads handles what it finds in its folder at its start."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest

from peer.errors import RemoteError
from peer.modules.files_folder import UploadFolder
from peer.modules.files_receiver import Receiver
from proto.files.bounds import CHUNK_BYTES, UploadLimits
from proto.files.errors import FileCode
from proto.files.messages import CLOSE, NEGOTIATE, WRITE, chunk_tags
from tests.peer.modules.test_files import RECEIVER, World, content, sha256
from tests.support.waiting import eventually

DAY_S = UploadLimits().keep_s
DATA = content(3 * CHUNK_BYTES)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    found = await World(tmp_path).start()
    yield found
    await found.receiver.stop()


def receiver_of(world: World) -> Receiver:
    found = world.receiver.modules.by_prefix["file"]._receiver  # type: ignore[attr-defined]
    assert isinstance(found, Receiver)
    return found


async def offer(world: World, **fields: Any) -> dict[str, Any]:
    fields = {"size": len(DATA), "name": "a.bin", "sha256": sha256(DATA), **fields}
    answer = await world.sender.call(RECEIVER, NEGOTIATE, json.dumps(fields).encode())
    status: dict[str, Any] = json.loads(answer.payload)
    return status


async def write(world: World, id: str, *indexes: int) -> None:
    for index in indexes:
        chunk = DATA[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES]
        await world.sender.call(RECEIVER, WRITE, chunk, tags=chunk_tags(id, index))


def the(world: World, suffix: str) -> Path:
    (found,) = (world.folder / ".incoming").glob(f"*.{suffix}")
    return found


def backdate(world: World, offered: float, written: float) -> None:
    """Change the times of an unfinished upload of a stopped receiver."""
    record = the(world, "json")
    record.write_text(json.dumps(json.loads(record.read_text()) | {"at": offered}))
    os.utime(the(world, "part"), (written, written))


@pytest.mark.parametrize(
    ("offered_s", "written_s", "kept"),
    [(2 * DAY_S, 60, True), (60, 2 * DAY_S, True), (2 * DAY_S, 2 * DAY_S, False)],
)
async def test_an_upload_is_as_old_as_its_newest_chunk(
    world: World, offered_s: float, written_s: float, kept: bool
) -> None:
    id = (await offer(world))["id"]
    await write(world, id, 0)
    await world.receiver.stop()
    backdate(world, time.time() - offered_s, time.time() - written_s)
    await world.start()
    await receiver_of(world)._sweep()
    assert len(world.left()) == (2 if kept else 0)
    assert (await offer(world))["have"] == (1 if kept else 0)


async def test_an_upload_from_the_future_is_kept_for_a_day(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await offer(world)
    await world.receiver.stop()
    later = time.time() + 100 * DAY_S
    backdate(world, later, later)  # the clock was wrong
    await world.start()
    receiver = receiver_of(world)
    monkeypatch.setattr(receiver, "_clock", lambda: time.time() + DAY_S - 60)
    await receiver._sweep()
    assert len(world.left()) == 2
    monkeypatch.setattr(receiver, "_clock", lambda: time.time() + DAY_S + 60)
    await receiver._sweep()
    assert world.left() == []


class Disk:
    """Makes one function of the folder fail while the disk is broken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, function: str, code: int) -> None:
        self.broken = False
        self.tried = 0
        """Number of calls while it was broken."""
        works = getattr(UploadFolder, function)

        def fails(folder: UploadFolder, *arguments: Any) -> Any:
            if self.broken:
                self.tried += 1
                raise OSError(code, os.strerror(code))
            return works(folder, *arguments)

        monkeypatch.setattr(UploadFolder, function, fails)


async def close(world: World, id: str) -> dict[str, Any]:
    answer = await world.sender.call(RECEIVER, CLOSE, json.dumps({"id": id}).encode())
    status: dict[str, Any] = json.loads(answer.payload)
    return status


async def refused(asked: Awaitable[Any]) -> int:
    with pytest.raises(RemoteError) as caught:
        await asked
    return caught.value.code


async def called(world: World, times: int) -> None:
    """Check that the command on arrival was called exactly so many times."""
    await eventually(lambda: len(world.receiver.delivered) >= times)
    await receiver_of(world)._sweep()
    assert len(world.receiver.delivered) == times


async def stopped_while_it_moved(world: World, **fields: Any) -> str:
    """Stop a receiver that has all of an upload but could not rename the file; return its id."""
    id: str = (await offer(world, cmd="photos.new", **fields))["id"]
    await write(world, id, 0, 1, 2)
    blocks = world.arrived().parent
    blocks.write_text("no folder")
    assert await refused(close(world, id)) == FileCode.FAILED
    await world.receiver.stop()
    assert json.loads(the(world, "json").read_text())["stage"] == "moving"
    return id


async def test_a_file_that_can_get_no_name_at_the_start_gets_it_later(world: World) -> None:
    id = await stopped_while_it_moved(world)
    await world.start()
    assert len(world.left()) == 2
    assert await refused(close(world, id)) == FileCode.BUSY
    assert await refused(write(world, id, 0)) == FileCode.BUSY
    assert await refused(offer(world, cmd="photos.new")) == FileCode.BUSY
    world.arrived().parent.unlink()
    await receiver_of(world)._sweep()
    assert world.arrived().read_bytes() == DATA
    assert (await close(world, id))["state"] == "done"
    await called(world, 1)


async def test_an_offer_has_what_waits_taken_up_at_once(world: World) -> None:
    await stopped_while_it_moved(world)
    await world.start()
    world.arrived().parent.unlink()
    assert (await offer(world, cmd="photos.new"))["state"] == "done"
    await called(world, 1)


async def test_a_disk_that_is_full_at_the_start_loses_no_arrival(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = await stopped_while_it_moved(world)
    world.arrived().parent.unlink()
    disk = Disk(monkeypatch, "save", errno.ENOSPC)
    disk.broken = True
    await world.start()
    assert world.arrived().read_bytes() == DATA
    await called(world, 1)
    assert (await close(world, id))["state"] == "done"
    disk.broken = False
    await receiver_of(world)._sweep()
    await called(world, 1)


async def test_a_file_that_has_its_name_is_not_moved_again_for_a_full_disk(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = (await offer(world, cmd="photos.new"))["id"]
    await write(world, id, 0, 1, 2)
    disk = Disk(monkeypatch, "save", errno.ENOSPC)
    place = UploadFolder.place

    def full_from_now_on(folder: UploadFolder, *arguments: Any) -> tuple[int, int, int]:
        disk.broken = True
        return place(folder, *arguments)

    monkeypatch.setattr(UploadFolder, "place", full_from_now_on)
    assert (await close(world, id))["state"] == "done"
    await called(world, 1)
    assert disk.tried == 2  # the file has its name, and its command was called


async def test_a_file_that_was_taken_away_is_not_waited_for(world: World) -> None:
    id = await stopped_while_it_moved(world)
    world.arrived().parent.unlink()
    the(world, "part").unlink()
    await world.start()
    assert world.left() == []
    assert await refused(close(world, id)) == FileCode.UNKNOWN


async def test_a_name_that_was_taken_meanwhile_is_not_waited_for(world: World) -> None:
    await stopped_while_it_moved(world)
    world.arrived().parent.unlink()
    world.arrived().parent.mkdir()
    world.arrived().write_bytes(b"other")
    await world.start()
    assert world.left() == []
    assert world.arrived().read_bytes() == b"other"


@pytest.mark.parametrize("function", ["open_part", "load"])
async def test_chunks_are_kept_while_the_disk_cannot_be_read(
    world: World, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    id = (await offer(world))["id"]
    await write(world, id, 0, 1)
    await world.receiver.stop()
    disk = Disk(monkeypatch, function, errno.EIO)
    disk.broken = True
    await world.start()
    assert disk.tried
    assert await refused(write(world, id, 2)) == FileCode.BUSY
    assert await refused(offer(world)) == FileCode.BUSY
    await receiver_of(world)._sweep()
    assert len(world.left()) == 2
    disk.broken = False
    await receiver_of(world)._sweep()
    await write(world, id, 2)
    assert (await close(world, id))["state"] == "done"
    assert world.arrived().read_bytes() == DATA


async def test_what_waits_for_the_disk_counts_in_the_limits(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = UploadLimits(min_free_bytes=0, max_open_per_twin=1)
    id = (await offer(world))["id"]
    await write(world, id, 0)
    await world.receiver.stop()
    disk = Disk(monkeypatch, "open_part", errno.EIO)
    disk.broken = True
    await world.start(limits)
    disk.broken = False
    assert await refused(offer(world, name="other")) == FileCode.BUSY
    assert (await offer(world))["have"] == 1


@pytest.mark.parametrize("ended", [False, True])
async def test_a_receiver_that_stops_is_busy(world: World, ended: bool) -> None:
    id = (await offer(world, cmd="photos.new"))["id"]
    await write(world, id, 0, 1)
    other = (await offer(world, size=0, sha256=sha256(b""), name="empty"))["id"]
    before = {path: path.read_bytes() for path in (world.folder / ".incoming").iterdir()}
    stopping = asyncio.create_task(world.receiver.stop())
    await (stopping if ended else asyncio.sleep(0))
    asked = (write(world, id, 2), write(world, id, 0), close(world, id), close(world, other))
    assert await asyncio.gather(*map(refused, asked)) == [FileCode.BUSY] * 4
    assert await refused(offer(world)) == FileCode.BUSY
    await stopping
    assert before == {path: path.read_bytes() for path in (world.folder / ".incoming").iterdir()}
    await world.start()
    assert (await offer(world, cmd="photos.new"))["have"] == 2
