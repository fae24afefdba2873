"""Connections whose incomplete messages together exceed the shared budget."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from relay.server.limits import ServerLimits
from tests.relay.server.running import EchoApp, frame, raw_websocket, read_close, running

Run = Callable[[Any], None]


async def hold(limits: ServerLimits, writer: asyncio.StreamWriter, size: int) -> None:
    """Send the beginning of a message, and wait until the server holds it."""
    held = limits.partial.used_bytes + size
    writer.write(frame(b"x" * 200_000)[:size])
    while limits.partial.used_bytes < held:
        await asyncio.sleep(0.001)


def test_who_holds_the_most_of_the_budget_makes_room(run: Run) -> None:
    async def main() -> None:
        limits = ServerLimits(partial_bytes=100_000)
        async with running(limits=limits) as server:
            _, small_writer, _ = await raw_websocket(server)
            await hold(limits, small_writer, 20_000)
            large, large_writer, recorded = await raw_websocket(server)
            large_writer.write(frame(b"whole"))
            assert await large.readexactly(7) == b"\x82\x05whole"
            await hold(limits, large_writer, 70_000)
            _, writer, _ = await raw_websocket(server)
            await hold(limits, writer, 10_000)
            message = frame(b"x" * 200_000)
            writer.write(message[10_000:30_000])
            assert await read_close(large) == (1013, "too_large: too many incomplete messages")
            assert limits.partial.used_bytes == 50_000
            large_writer.write(message[70_000:] + frame(b"", 8))
            large_writer.write_eof()
            assert await large.read() == b""
            await recorded.ended.wait()
            assert (recorded.ends, recorded.messages) == ([(1013, "too_large")], [b"whole"])
            assert limits.partial.refused == 1
            small_writer.close()
            writer.close()
            while limits.partial.used_bytes:
                await asyncio.sleep(0.001)

    run(main())


def test_connections_of_one_account_hold_together(run: Run) -> None:
    async def main() -> None:
        app = EchoApp()
        limits = ServerLimits(partial_bytes=100_000)
        async with running(app, limits) as server:
            app.account = 7
            many = [await raw_websocket(server) for _ in range(4)]
            for _, writer, _ in many:
                await hold(limits, writer, 20_000)
            app.account = 8
            _, honest, _ = await raw_websocket(server)
            await hold(limits, honest, 20_000)
            honest.write(frame(b"x" * 200_000)[20_000:45_000])
            while limits.partial.used_bytes != 40_000 + 45_000:
                await asyncio.sleep(0.001)
            assert limits.partial.refused == 2
            for _, writer, _ in many:
                writer.close()
            honest.close()

    run(main())


def test_the_budget_ends_what_is_closing_already(run: Run) -> None:
    """A connection that is already closing ends once, in time, and with its earlier code."""

    async def main() -> None:
        limits = ServerLimits(partial_bytes=100_000, close_timeout_s=0.3)
        async with running(limits=limits) as server:
            large, large_writer, recorded = await raw_websocket(server)
            await hold(limits, large_writer, 80_000)
            recorded.socket.close(4001, "replaced")
            assert await read_close(large) == (4001, "replaced")
            _, writer, _ = await raw_websocket(server)
            await hold(limits, writer, 10_000)
            writer.write(frame(b"x" * 200_000)[10_000:50_000])
            while limits.partial.used_bytes != 50_000:
                await asyncio.sleep(0.001)
            with contextlib.suppress(ConnectionResetError):
                assert await large.read() == b""
            await recorded.ended.wait()
            assert recorded.ends == [(4001, None)]
            large_writer.close()
            writer.close()

    run(main())


def test_the_budget_ends_a_connection_within_the_turn_of_another(run: Run) -> None:
    """A connection's budget is freed at once, but the connection itself changes later.

    Its own bytes, or its end, may come before it learns that it was chosen.
    """

    async def main() -> None:
        limits = ServerLimits(partial_bytes=100_000)
        async with running(limits=limits) as server:
            _, writer, _ = await raw_websocket(server)
            await hold(limits, writer, 10_000)
            message = frame(b"x" * 200_000)
            for rest in (b"", message[60_000:], None):
                large, large_writer, recorded = await raw_websocket(server)
                await hold(limits, large_writer, 60_000)
                _, asker_writer, asking = await raw_websocket(server)
                sent = recorded.socket.written
                asking.socket.data_received(message[:40_000])  # type: ignore[attr-defined]
                assert (limits.partial.used_bytes, recorded.socket.written) == (50_000, sent)
                if rest is None:
                    recorded.socket.abort()
                elif rest:
                    recorded.socket.data_received(rest)  # type: ignore[attr-defined]
                    assert recorded.socket.written > sent
                if rest is not None:
                    assert (await read_close(large))[0] == 1013
                large_writer.close()
                asker_writer.close()
                await asyncio.gather(recorded.ended.wait(), asking.ended.wait())
                expected = (1006, None) if rest is None else (1013, "too_large")
                assert recorded.ends == [expected]
                assert recorded.messages == []
                assert limits.partial.used_bytes == 10_000
            writer.close()

    run(main())


def test_a_message_that_outgrows_the_budget_is_told_so(run: Run) -> None:
    async def main() -> None:
        limits = ServerLimits(partial_bytes=100_000)
        async with running(limits=limits) as server:
            reader, writer, recorded = await raw_websocket(server)
            wire = frame(b"x" * 200_000)
            writer.write(wire[:50_000])
            while limits.partial.used_bytes < 50_000:
                await asyncio.sleep(0.001)
            writer.write(wire[50_000:150_000])
            assert await read_close(reader) == (1013, "too_large: too many incomplete messages")
            writer.close()
            await recorded.ended.wait()
            assert recorded.ends == [(1013, "too_large")]

    run(main())
