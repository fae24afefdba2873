"""Clients of the stream server that break the protocol, over sockets.

Each test also has a bystander on another connection, which is not affected.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from peer.mux import MuxBounds, MuxSession, MuxStream, connect
from proto.mux import frames, varint
from proto.mux.errors import Violation
from proto.mux.events import FailReason
from tests.relay.server.running import frame
from tests.support.mux_server import MuxServer, echo, mux_server
from tests.support.raw_mux import RawMux, raw_mux
from tests.support.waiting import eventually

WINDOW = 4096
BOUNDS = MuxBounds(stream_bytes=WINDOW, max_streams=8)
ACCEPT = frames.ack(b"\0", WINDOW).hex()  # of stream 0
GRANT = "00000100100000"  # opens stream 0, or grants it 1 MiB
FLOOD = 20_000

pytestmark = pytest.mark.asyncio(loop_scope="module")
running_handlers: set[MuxStream] = set()


async def handler(stream: MuxStream) -> None:
    running_handlers.add(stream)
    try:
        await echo(stream)
    finally:
        running_handlers.discard(stream)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[MuxServer]:
    async with mux_server(handler, bounds=BOUNDS) as server:
        yield server


class Hostile:
    """A client, and the server's side of its connection."""

    def __init__(self, client: RawMux, session: MuxSession) -> None:
        self.client = client
        self.session = session
        self.mux = session.mux

    async def opened(self) -> Hostile:
        """Open stream 0."""
        self.client.send(GRANT)
        assert await self.client.read(1) == [ACCEPT]
        return self

    async def still_echoes(self, stream_id: int = 6) -> None:
        """Use another stream of this connection, and check that it works."""
        prefix = varint.encode(stream_id)
        mine = frames.ack(prefix, WINDOW).hex()
        data = frames.data(prefix, b"on we go").hex()
        self.client.send(mine)
        await self.client.until(mine)
        self.client.send(data)
        await self.client.until(data)


@pytest_asyncio.fixture(loop_scope="module")
async def hostile(server: MuxServer) -> AsyncIterator[Hostile]:
    """Open a connection beside another one, and check that the other one keeps working."""
    async with (
        connect(f"ws://127.0.0.1:{server.port}/") as bystander,
        bystander.open() as stream,
    ):
        await server.session()
        await stream.write(b"before")
        assert await stream.read() == b"before"
        client = await raw_mux(server.server)
        yield Hostile(client, await server.session())
        await stream.write(b"after")
        assert await stream.read() == b"after"
        client.vanish()
    await eventually(lambda: not running_handlers)


# --- what ends the connection ---------------------------------------------------------------------

MALFORMED = {
    "no type": "00",
    "half a type": "0000",
    "type 4": "000004",
    "type ffff": "00ffff",
    "short ACK": "0000010010",
    "CLOSE without half": "000003",
    "CLOSE of half 2": "00000302",
    "ERROR without half": "000002",
    "ERROR of half 2": "0000020200",
    "ERROR without code": "00000200",
    "ERROR with half a code": "0000020040",
}


@pytest.mark.parametrize("sent", MALFORMED.values(), ids=MALFORMED)
async def test_malformed_frames(hostile: Hostile, sent: str) -> None:
    await hostile.opened()
    hostile.client.send(sent)
    code, text = await hostile.client.closed()
    assert code == 1002
    assert text
    await hostile.session.ended.wait()
    assert hostile.mux.counts.violation is Violation.MALFORMED


OTHERS = {
    "an empty message": ([""], Violation.EMPTY, "a message is empty"),
    "half an id of 2 bytes": (["40"], Violation.BAD_ID, "the id of a stream is cut off"),
    "half an id of 4 bytes": (["800000"], Violation.BAD_ID, "the id of a stream is cut off"),
    "half an id of 8 bytes": (["c0" * 7], Violation.BAD_ID, "the id of a stream is cut off"),
    "a short opening": (["0000010010"], Violation.MALFORMED, "an ACK has 2 of 4 bytes"),
    "our parity": (["01000100000040"], Violation.UNKNOWN_ID, "stream 1 was never opened"),
    "our parity, not an ACK": (["03000061"], Violation.UNKNOWN_ID, "stream 3 was never opened"),
    "bytes behind an end": (
        [GRANT, "00000300", "00000061"],
        Violation.DATA_AFTER_END,
        "stream 0 got bytes after its end",
    ),
    "bytes behind a failure": (
        [GRANT, "0000020007", "00000061"],
        Violation.DATA_AFTER_END,
        "stream 0 got bytes after its end",
    ),
}


@pytest.mark.parametrize(("sent", "violation", "text"), OTHERS.values(), ids=OTHERS)
async def test_violations(
    hostile: Hostile, sent: list[str], violation: Violation, text: str
) -> None:
    hostile.client.send(*sent)
    assert await hostile.client.closed() == (1002, text)
    await hostile.session.ended.wait()
    assert hostile.mux.counts.violation is violation


async def test_text(hostile: Hostile) -> None:
    hostile.client.send_text("hello")
    assert await hostile.client.closed() == (1002, "text_frame")


async def test_a_message_larger_than_any_frame_may_be(hostile: Hostile) -> None:
    hostile.client.send("00" * (WINDOW + 11))
    assert await hostile.client.closed() == (1009, "too_large")


async def test_frames_behind_a_violation_do_nothing(hostile: Hostile) -> None:
    hostile.client.send("", *[GRANT] * 100)
    assert await hostile.client.closed() == (1002, "a message is empty")
    assert hostile.mux.counts.accepted == 0


# --- what fails one stream, or nothing ------------------------------------------------------------


async def test_more_bytes_than_granted(hostile: Hostile) -> None:
    """Both halves of the stream fail; other streams continue."""
    client = (await hostile.opened()).client
    data = frames.data(b"\0", bytes(WINDOW)).hex()
    client.send(data, "00000061", "00000300")
    assert await client.read(2) == ["0000020100", "0000020000"]
    await hostile.still_echoes()
    assert hostile.mux.counts.failed[FailReason.OVERFLOW] == 2  # both halves of the stream


async def test_ids_in_longer_forms(hostile: Hostile) -> None:
    """Longer forms name the same id, and answers use the shortest form."""
    client = hostile.client
    client.send("4000000100100000")
    assert await client.read(1) == [ACCEPT]
    client.send("80000000000061")
    assert await client.read(2) == ["00000100000001", "00000061"]
    client.send("c000000000000000000300")
    assert await client.read(2) == ["00000301", "00000300"]


async def test_an_id_that_was_used(hostile: Hostile) -> None:
    client = (await hostile.opened()).client
    client.send("0000020100", "0000020000")
    assert sorted(await client.read(2)) == ["0000020000", "0000020100"]
    client.send(GRANT, "00000061", "00000300", "0000ffff")
    await hostile.still_echoes()
    assert hostile.mux.counts.ignored == 4


async def test_an_id_that_begins_otherwise(hostile: Hostile) -> None:
    """The id counts as used, as in the reference: a later opening is ignored too."""
    hostile.client.send("00000061", GRANT, "02000300", "02000100100000")
    await hostile.still_echoes()
    assert (hostile.mux.counts.ignored, hostile.mux.counts.accepted) == (4, 1)


async def test_misused_ends(hostile: Hostile) -> None:
    """Confirming an end that was never sent fails the server's writing half."""
    client = (await hostile.opened()).client
    client.send("00000301")
    assert (await client.read(1)) == ["0000020000"]
    await hostile.still_echoes()
    assert hostile.mux.counts.failed[FailReason.MISUSE] == 1


@pytest.mark.parametrize(
    "sent",
    ["00000100000001", "00000100000000", "000000", "02000300", "0200010000"],
    ids=["credit", "no credit", "no bytes", "ends of a dead stream", "malformed for a dead stream"],
)
async def test_floods_of_small_frames(hostile: Hostile, sent: str) -> None:
    """Floods of small frames use no memory, and get no answer."""
    client = hostile.client
    client.send(GRANT, "02000061")  # the second uses up its id
    assert await client.read(1) == [ACCEPT]
    for _ in range(FLOOD // 1000):
        client.send(*[sent] * 1000)
        await client.writer.drain()
    await hostile.still_echoes()
    assert len(hostile.mux) == 2


async def test_a_flood_of_openings(hostile: Hostile) -> None:
    """The allowed number of openings is accepted; the others are refused and use no memory."""
    client = hostile.client
    ids = [varint.encode(2 * number) for number in range(1000)]
    client.send(*(frames.ack(each, WINDOW).hex() for each in ids))
    last = ids[-1].hex()
    await client.until(f"{last}00020100")
    counts = hostile.mux.counts
    assert (counts.accepted, counts.refused, len(hostile.mux)) == (8, 992, 8)


async def test_a_window_of_single_bytes(hostile: Hostile) -> None:
    client = (await hostile.opened()).client
    client.send(*["00000061"] * WINDOW)
    found = b""
    while len(found) < WINDOW:
        (answer,) = await client.read(1)
        if answer.startswith("000000"):
            found += bytes.fromhex(answer[6:])
    assert found == b"a" * WINDOW


async def test_a_client_that_does_not_read(tmp_path: Path) -> None:
    """The server stops reading requests while the client reads no answers."""
    ids = [varint.encode(2 * number) for number in range(FLOOD)]
    # A Unix socket has small kernel buffers.
    async with mux_server(None, bounds=BOUNDS, path=str(tmp_path / "s")) as server:
        client = await raw_mux(server.server)
        session = await server.session()
        client.send(*(frames.ack(each, WINDOW).hex() for each in ids))
        held = await settled(lambda: session.mux.counts.refused)
        assert 0 < held < FLOOD
        await client.until(f"{ids[-1].hex()}00020100")
        assert session.mux.counts.refused == FLOOD
        client.vanish()


async def settled(figure: Callable[[], int]) -> int:
    """Return a figure once it has not changed for a while."""
    same, last = 0, -1
    while same < 10:
        await asyncio.sleep(0.02)
        same, last = (same + 1 if figure() == last else 0), figure()
    return last


# --- callers that vanish --------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [[], ["00000061"], ["00000300"]], ids=["idle", "bytes", "end"])
async def test_a_client_that_vanishes(hostile: Hostile, sent: list[str]) -> None:
    client = (await hostile.opened()).client
    client.send(*sent)
    client.vanish()
    await hostile.session.ended.wait()
    assert len(hostile.mux) == 0


async def test_a_client_that_vanishes_within_a_message(hostile: Hostile) -> None:
    client = (await hostile.opened()).client
    client.writer.write(frame(bytes(1000))[:500])
    await client.writer.drain()
    client.vanish()
    await hostile.session.ended.wait()
    assert len(hostile.mux) == 0
