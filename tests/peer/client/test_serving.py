"""The number of requests that a client accepts before it stops reading."""

from __future__ import annotations

import asyncio
import time

import pytest

from peer.client.bounds import MAX_REQUEST_BYTES
from peer.client.serving import Service
from peer.modules.api import CommandError, Modules, Request, Response
from proto.rmb.address import Address

LARGE = 16 << 20


async def respond(request: Request, outcome: Response | CommandError) -> None:
    """Discard the answers."""


@pytest.mark.parametrize("part", ["payload", "tags", "schema", "command"])
async def test_what_is_beside_the_payload_counts(part: str) -> None:
    may_end, room = asyncio.Event(), asyncio.Event()

    async def wait(request: Request) -> None:
        await may_end.wait()

    service = Service(Modules(), respond, room.set)
    service.add({"wait": wait})
    text = "wait" if part == "command" else "ä" * LARGE
    value = bytes(LARGE) if part == "payload" else text
    request = Request("uid", Address(1, "s"), "wait", b"", None, None, int(time.time()) + 60)
    large = request._replace(**{part: value})
    taken = 0
    while not service.full and taken < 2 * MAX_REQUEST_BYTES // LARGE:
        assert service.take(large)
        taken += 1
        text.encode()  # as displaying it does: the text takes more memory from now on
    if part == "command":
        assert not service.full, "they are small"
    else:
        assert taken <= MAX_REQUEST_BYTES // LARGE
    may_end.set()
    await service.idle()
    assert room.is_set() == (part != "command")
    assert service._bytes == 0
    await service.aclose()
