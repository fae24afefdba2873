"""Connections whose clients send more than their share, or do not read."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proto.websocket.bounds import MAX_CALL_FRAMES
from proto.websocket.frames import close_payload
from relay.server.limits import DISCARDED_BYTES_PER_S, PINGS_PAUSE_S, ServerLimits
from relay.server.socket import HIGH_WATER_BYTES
from relay.server.turns import TURN_MESSAGES
from tests.relay.server.running import (
    EchoApp,
    Recorded,
    frame,
    raw_websocket,
    read_close,
    running,
    serving_on,
    websocket_on,
)

Run = Callable[[Any], None]


class Turns:
    """A counter of event loop turns, which starts at `begin`.

    Attributes:
        reads: Turn of each call of `note`.
    """

    def __init__(self) -> None:
        self.reads: list[int] = []
        self._now = 0

    def begin(self) -> None:
        self._now += 1
        asyncio.get_running_loop().call_soon(self.begin)

    def note(self) -> None:
        self.reads.append(self._now)


def test_ping_flood_of_a_client_that_does_not_read_stays_bounded(run: Run) -> None:
    async def main() -> None:
        async with running(EchoApp(echo=False)) as server:
            _reader, writer, recorded = await raw_websocket(server)
            writer.transport.pause_reading()
            before = recorded.socket.last_received
            flood = frame(b"p" * 125, 9) * 500
            for _ in range(10):
                writer.write(flood)
                await writer.drain()
            while recorded.socket.last_received == before:
                await asyncio.sleep(0.001)
            # The pongs of one read may exceed the mark; after that one pong answers all pings.
            assert recorded.socket.buffered_bytes() < 1024 * 1024
            writer.transport.abort()
            await recorded.ended.wait()

    run(main())


def test_pings_have_a_rate(run: Run) -> None:
    count = 10 * MAX_CALL_FRAMES

    async def main() -> None:
        async with running(EchoApp(echo=False)) as server:
            reader, writer, recorded = await raw_websocket(server)
            began = asyncio.get_running_loop().time()
            writer.write(frame(b"", 9) * count)
            assert await reader.readexactly(2 * count) == b"\x8a\x00" * count
            took_s = asyncio.get_running_loop().time() - began
            assert took_s >= (count // MAX_CALL_FRAMES - 1) * PINGS_PAUSE_S
            # A message after the pings is still read.
            writer.write(frame(b"message"))
            while not recorded.messages:
                await asyncio.sleep(0)

    run(main())


@pytest.mark.parametrize("kind", ["tls", "unix"])
@pytest.mark.parametrize("size", [HIGH_WATER_BYTES + 1, 1_000_000])
def test_writable_after_the_high_water_mark(
    run: Run, certificate: tuple[str, str], tmp_path: Path, kind: str, size: int
) -> None:
    async def main() -> None:
        async with serving_on(kind, certificate, tmp_path) as server:
            reader, writer, recorded = await websocket_on(kind, server)
            writer.transport.pause_reading()
            while recorded.socket.buffered_bytes() < size:
                recorded.socket.send_messages([b"m" * 10_000])
                await asyncio.sleep(0)
            assert not recorded.writable_again.is_set()
            writer.transport.resume_reading()
            async with asyncio.timeout(10):
                while not recorded.writable_again.is_set():
                    assert await reader.read(1 << 20)

    run(main())


def test_paused_reading_holds_messages_back(run: Run) -> None:
    async def main() -> None:
        async with running() as server:
            reader, writer, recorded = await raw_websocket(server)
            recorded.socket.pause_reading()
            recorded.socket.pause_reading()
            writer.write(frame(b"held"))
            await asyncio.sleep(0.05)
            assert recorded.messages == []
            assert recorded.socket.last_received == math.inf, "nobody hears whether it is idle"
            recorded.socket.resume_reading()
            assert recorded.socket.last_received <= asyncio.get_running_loop().time()
            recorded.socket.resume_reading()
            assert await reader.readexactly(6) == b"\x82\x04held"
            writer.close()

    run(main())


def test_who_sends_much_is_read_once_a_turn(run: Run) -> None:
    """Other connections get a turn between two reads of megabytes that are waiting."""

    async def main() -> None:
        turns = Turns()
        async with running(EchoApp(echo=False)) as server:
            _reader, writer, recorded = await raw_websocket(server)
            recorded.messages_received = (  # type: ignore[method-assign]
                lambda messages: turns.note()
            )
            recorded.socket.pause_reading()
            message = frame(b"m" * 1000)
            while not writer.transport.get_write_buffer_size():  # the kernel takes more
                writer.write(message * 500)
                await asyncio.sleep(0)
            turns.begin()
            recorded.socket.resume_reading()
            await writer.drain()
            assert len(turns.reads) > 2
            assert len(set(turns.reads)) == len(turns.reads)
            writer.transport.abort()
            await recorded.ended.wait()

    run(main())


def test_a_read_of_many_small_frames_is_taken_in_portions(run: Run) -> None:
    """Other connections get a turn between portions, and a receiver can pause the reading."""
    count = 5 * MAX_CALL_FRAMES + 7

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with running(EchoApp(echo=False)) as server:
            reader, writer, recorded = await raw_websocket(server)
            turns = Turns()
            paused = asyncio.Event()

            def received(messages: list[bytes]) -> None:
                turns.note()
                Recorded.messages_received(recorded, messages)
                if len(turns.reads) == 2:
                    recorded.socket.pause_reading()
                    loop.call_later(0.01, paused.set)

            recorded.messages_received = received  # type: ignore[method-assign]
            turns.begin()
            closing = frame(b"\x03\xe8", opcode=8)
            recorded.socket.data_received(frame(b"") * count)  # type: ignore[attr-defined]
            writer.write(closing)
            await paused.wait()
            assert recorded.reads == [MAX_CALL_FRAMES] * 2
            recorded.socket.resume_reading()
            assert await read_close(reader) == (1000, "")
            assert recorded.reads == [MAX_CALL_FRAMES] * 5 + [7]
            assert len(set(turns.reads)) == len(turns.reads)
            writer.close()
            await recorded.ended.wait()

    run(main())


def test_many_who_send_much_share_a_turn(run: Run) -> None:
    """The messages of all connections in one turn are bounded, and no connection is skipped."""
    count, senders = 3 * MAX_CALL_FRAMES, 12

    async def main() -> None:
        async with running(EchoApp(echo=False)) as server:
            turns = Turns()
            taken: list[tuple[int, int]] = []  # turn and sender, for each message
            everybody = [(await raw_websocket(server))[2] for _ in range(senders)]
            for number, recorded in enumerate(everybody):

                def received(messages: list[bytes], number: int = number) -> None:
                    turns.note()
                    taken.extend([(turns.reads[-1], number)] * len(messages))

                recorded.messages_received = received  # type: ignore[method-assign]
            turns.begin()
            for recorded in everybody:
                recorded.socket.data_received(frame(bytes(64)) * count)  # type: ignore[attr-defined]
            while len(taken) < senders * count:
                await asyncio.sleep(0)
            in_turn = Counter(turn for turn, _ in taken)
            # The last connection may exceed the bound by its portion.
            assert max(in_turn.values()) < TURN_MESSAGES + MAX_CALL_FRAMES
            firsts = [number for number, _ in itertools.groupby(number for _, number in taken)]
            assert Counter(firsts) == dict.fromkeys(range(senders), 3)
            # Connections that were read in the first turn are one portion ahead of the others.
            assert set(firsts[: 2 * senders]) == set(range(senders))

    run(main())


def test_a_message_alone_is_read_though_the_turn_has_read_enough(run: Run) -> None:
    async def main() -> None:
        async with running(EchoApp(echo=False)) as server:
            *much, alone = [(await raw_websocket(server))[2] for _ in range(10)]
            for recorded in much:
                recorded.socket.data_received(frame(bytes(64)) * 300)  # type: ignore[attr-defined]
            assert not much[-1].messages
            alone.socket.data_received(frame(b"alone"))  # type: ignore[attr-defined]
            assert alone.messages == [b"alone"]
            while len(much[-1].messages) < 300:
                await asyncio.sleep(0)

    run(main())


def test_pauses_do_not_add_turns(run: Run) -> None:
    """A receiver that pauses and resumes within a call still gets one portion per turn."""

    async def main() -> None:
        async with running(EchoApp(echo=False)) as server:
            _, writer, recorded = await raw_websocket(server)
            turns = Turns()

            def received(messages: list[bytes]) -> None:
                turns.note()
                recorded.socket.pause_reading()
                recorded.socket.resume_reading()

            recorded.messages_received = received  # type: ignore[method-assign]
            turns.begin()
            recorded.socket.data_received(  # type: ignore[attr-defined]
                frame(b"") * (10 * MAX_CALL_FRAMES)
            )
            while len(turns.reads) < 10:
                await asyncio.sleep(0)
            assert len(set(turns.reads)) == len(turns.reads)
            writer.close()
            await recorded.ended.wait()

    run(main())


def test_what_waits_of_a_read_is_taken_before_the_end(run: Run) -> None:
    async def main() -> None:
        async with running(EchoApp(echo=False)) as server:
            _, writer, recorded = await raw_websocket(server)
            count = 3 * MAX_CALL_FRAMES
            recorded.socket.data_received(frame(b"") * count)  # type: ignore[attr-defined]
            recorded.socket.eof_received()  # type: ignore[attr-defined]
            assert len(recorded.messages) == count
            writer.close()
            await recorded.ended.wait()

    run(main())


def test_who_sends_on_while_being_closed_is_read_slowly(run: Run) -> None:
    async def main() -> None:
        async with running(limits=ServerLimits(close_timeout_s=20)) as server:
            reader, writer, recorded = await raw_websocket(server)
            recorded.socket.close(4001, "replaced")
            assert await read_close(reader) == (4001, "replaced")
            began = asyncio.get_running_loop().time()
            writer.write(frame(bytes(1000)) * (DISCARDED_BYTES_PER_S // 1000))
            writer.write(frame(close_payload(4001, ""), 8))
            async with asyncio.timeout(15):
                assert await reader.read() == b""
            # Some of these reads are not full.
            assert asyncio.get_running_loop().time() - began >= 0.4
            writer.close()
            await recorded.ended.wait()

    run(main())
