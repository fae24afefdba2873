"""What a receiver of uploads makes of what it finds at its start."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from peer.modules.files_receiver import Receiver
from proto.files.bounds import CHUNK_BYTES, UploadLimits
from proto.files.messages import NEGOTIATE, WRITE, chunk_tags
from tests.peer.modules.test_files import RECEIVER, World, content, sha256

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
    """Puts an unfinished upload of a receiver that is stopped at another time."""
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
