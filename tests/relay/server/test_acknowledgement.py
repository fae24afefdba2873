"""What counts as acknowledged, on open, stalled, reset and closed connections, with both loops."""

from __future__ import annotations

import array
import asyncio
import fcntl
import os
import socket
import struct
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relay.server.limits import ServerLimits
from relay.server.socket import RelaySocket
from tests.proto.websocket.oracle import FrameSpec
from tests.relay.server.running import (
    HANDSHAKE,
    EchoApp,
    Recorded,
    Running,
    raw_websocket,
    running,
    serving_on,
    tls_websocket,
    websocket_on,
)

Run = Callable[[Any], None]
STUCK_BYTES = 4_000_000


def unread(client: socket.socket) -> int:
    """Return how many bytes the client's kernel holds that the client did not read."""
    size = array.array("i", [0])
    fcntl.ioctl(client, termios.FIONREAD, size)
    return size[0]


def reset(client: socket.socket) -> None:
    """End a connection with RST."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


async def plain_client(server: Running) -> tuple[socket.socket, Recorded]:
    """Connect a client that reads nothing, so that only its kernel receives."""
    family = socket.AF_UNIX if isinstance(server.address, str) else socket.AF_INET
    client = socket.socket(family)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, server.address)
    await loop.sock_sendall(client, HANDSHAKE)
    return client, await server.app.connections.get()


async def stuck(relay_socket: RelaySocket) -> None:
    """Write until megabytes wait in the transport and the kernel accepts no more."""
    while relay_socket.buffered_bytes() < STUCK_BYTES:
        relay_socket.send_messages([b"m" * 100_000])
        await asyncio.sleep(0)
    before = -1
    while before != relay_socket.acknowledged():
        before = relay_socket.acknowledged()
        await asyncio.sleep(0.05)


def test_all_is_acknowledged_by_a_client_whose_kernel_takes_it(run: Run) -> None:
    async def main() -> None:
        async with running(EchoApp(echo=False)) as server:
            client, recorded = await plain_client(server)
            position = recorded.socket.send_messages([b"one", b"two"])
            while recorded.socket.acknowledged() < position:
                await asyncio.sleep(0)
            assert recorded.socket.acknowledged() == recorded.socket.written == position
            assert recorded.socket.drained()
            assert unread(client) == position  # the client has read none of it
            client.close()
            await recorded.ended.wait()
            assert recorded.socket.acknowledged() == position

    run(main())


def test_a_stalled_client_has_acknowledged_what_its_kernel_holds(run: Run) -> None:
    async def main() -> None:
        async with running(EchoApp(echo=False)) as server:
            client, recorded = await plain_client(server)
            await stuck(recorded.socket)
            while recorded.socket.acknowledged() != unread(client):
                await asyncio.sleep(0.001)
            assert recorded.socket.written > unread(client) + STUCK_BYTES
            assert not recorded.socket.drained()
            reset(client)
            await recorded.ended.wait()

    run(main())


@pytest.mark.parametrize("looks", ["at every turn", "at the end only"])
@pytest.mark.parametrize("writes", [True, False])
def test_reset_with_megabytes_in_transport_and_kernel(run: Run, looks: str, writes: bool) -> None:
    async def main() -> None:
        async with running(EchoApp(echo=False)) as server:
            client, recorded = await plain_client(server)
            await stuck(recorded.socket)
            arrived = unread(client)
            reset(client)
            # The kernel knows about the reset now, but the loop does not.
            position = 0
            for _ in range(1000):
                if writes:
                    position = recorded.socket.send_messages([b"into the void"])
                if looks == "at every turn":
                    assert recorded.socket.acknowledged() <= arrived
                if recorded.ends:
                    break
                await asyncio.sleep(0)
            await recorded.ended.wait()
            assert recorded.ends == [(1006, None)]
            assert recorded.socket.acknowledged() <= arrived
            assert recorded.socket.acknowledged() > arrived - 1_000_000
            # Other sockets soon reuse the descriptor's number.
            others = [socket.socket() for _ in range(20)]
            assert (
                recorded.socket.acknowledged() <= arrived < max(position, recorded.socket.written)
            )
            assert recorded.socket.send_messages([b"late"]) > arrived
            for other in others:
                other.close()

    run(main())


def test_reset_while_a_discarded_connection_drains_ends_it_at_once(run: Run) -> None:
    async def main() -> None:
        limits = ServerLimits(close_timeout_s=20)
        async with running(EchoApp(echo=False), limits) as server:
            client, recorded = await plain_client(server)
            await stuck(recorded.socket)
            loop = asyncio.get_running_loop()
            recorded.socket.close(4001, "replaced")
            await asyncio.sleep(0.05)
            assert recorded.ends == []
            assert not recorded.socket.drained()
            started = loop.time()
            arrived = unread(client)
            reset(client)
            await recorded.ended.wait()
            assert loop.time() - started < limits.close_timeout_s / 2
            assert recorded.socket.acknowledged() <= arrived

    run(main())


def test_reset_in_the_middle_of_reading_counts_to_the_byte(run: Run) -> None:
    async def main() -> None:
        async with running(EchoApp(echo=False)) as server:
            client, recorded = await plain_client(server)
            await stuck(recorded.socket)
            read = len(client.recv(50_000))
            while recorded.socket.acknowledged() != read + unread(client):
                await asyncio.sleep(0.001)
            arrived = recorded.socket.acknowledged()
            reset(client)
            await recorded.ended.wait()
            assert recorded.socket.acknowledged() == arrived

    run(main())


def test_clean_close_of_a_client_that_read_all_leaves_nothing_open(run: Run) -> None:
    async def main() -> None:
        async with running(EchoApp(echo=False)) as server:
            for _ in range(20):
                reader, writer, recorded = await raw_websocket(server)
                # No look happens between this write and the end.
                position = recorded.socket.send_messages([b"m" * 1000])
                await reader.readexactly(1004)
                writer.write(FrameSpec(8, b"\x03\xe8").serialize())
                assert await reader.read() == b"\x88\x02\x03\xe8"
                writer.close()
                await recorded.ended.wait()
                assert recorded.socket.acknowledged() >= position

    run(main())


def test_an_answer_before_the_upgrade_counts_for_no_message(run: Run) -> None:
    class Large(EchoApp):
        async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
            if scope["type"] != "http":
                await super().__call__(scope, receive, send)
                return
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": bytes(5 * STUCK_BYTES)})

    async def main() -> None:
        async with running(Large(echo=False)) as server:
            loop = asyncio.get_running_loop()
            client = socket.socket()
            client.setblocking(False)
            await loop.sock_connect(client, server.address)
            await loop.sock_sendall(client, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            received = len(await loop.sock_recv(client, 65536))
            await loop.sock_sendall(client, HANDSHAKE)
            recorded = await server.app.connections.get()
            recorded.socket.send_messages([b"message"])
            while received < 3 * STUCK_BYTES:
                received += len(await loop.sock_recv(client, 65536))
            reset(client)
            await recorded.ended.wait()
            assert recorded.socket.acknowledged() <= 0

    run(main())


def test_end_without_close_frame_leaves_nothing_open(run: Run) -> None:
    async def main() -> None:
        async with running(EchoApp(echo=False)) as server:
            reader, writer, recorded = await raw_websocket(server)
            position = recorded.socket.send_messages([b"m" * 1000])
            await reader.readexactly(1004)
            writer.close()
            await recorded.ended.wait()
            assert recorded.socket.acknowledged() == position

    run(main())


def test_what_is_written_after_close_began_never_arrives(run: Run) -> None:
    async def main() -> None:
        async with running(EchoApp(echo=False)) as server:
            reader, writer, recorded = await raw_websocket(server)
            answer = recorded.socket.written
            recorded.socket.close(4001, "replaced")
            position = recorded.socket.send_messages([b"late"])
            writer.write(FrameSpec(8, b"").serialize())
            close = await reader.read()
            writer.close()
            await recorded.ended.wait()
            assert recorded.socket.acknowledged() == answer + len(close) < position
            assert recorded.socket.drained()

    run(main())


class Behind:
    """A transport whose kernel accepts its buffer only once `buffered_bytes` is 0."""

    def __init__(self, transport: Any) -> None:
        self.transport = transport
        self.buffered_bytes = 1

    def get_write_buffer_size(self) -> int:
        return self.buffered_bytes

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)


def test_what_is_written_before_a_late_close_frame_never_arrives(run: Run) -> None:
    """A discarded message does not count as acknowledged.

    The close frame waits for the kernel, which accepts the rest in the same turn; the frame then
    follows a message that was discarded meanwhile.
    """

    async def main() -> None:
        async with running(EchoApp(echo=False)) as server:
            reader, writer, recorded = await raw_websocket(server)
            answer = recorded.socket.written
            recorded.socket._transport = behind = Behind(recorded.socket._transport)
            reason = "longer than the message"
            recorded.socket.close(4001, reason)
            position = recorded.socket.send_messages([b"late"])
            behind.buffered_bytes = 0
            close = await reader.readexactly(4 + len(reason))
            writer.write(FrameSpec(8, b"").serialize())
            assert await reader.read() == b""
            writer.close()
            await recorded.ended.wait()
            assert recorded.socket.acknowledged() == answer + len(close) < position
            assert recorded.socket.drained()

    run(main())


def test_unix_socket_counts_what_the_peer_took(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with running(EchoApp(echo=False), path=str(tmp_path / "s")) as server:
            client, recorded = await plain_client(server)
            position = recorded.socket.send_messages([b"m" * 1000])
            await asyncio.sleep(0.01)
            assert recorded.socket.acknowledged() < position
            assert len(await asyncio.get_running_loop().sock_recv(client, 65536)) == position
            assert recorded.socket.acknowledged() == position
            await stuck(recorded.socket)
            acknowledged = recorded.socket.acknowledged()
            assert acknowledged <= position
            client.close()  # with megabytes unread: an empty queue proves nothing then
            await recorded.ended.wait()
            assert recorded.socket.acknowledged() == acknowledged

    run(main())


def test_unix_client_that_died_in_this_turn_read_nothing(run: Run, tmp_path: Path) -> None:
    """Unread data that the kernel discarded is not acknowledged, even before the loop notices."""

    async def main() -> None:
        async with running(EchoApp(echo=False), path=str(tmp_path / "s")) as server:
            client, recorded = await plain_client(server)
            position = recorded.socket.send_messages([b"m" * 1000])
            while unread(client) != position:
                await asyncio.sleep(0)
            client.close()
            assert recorded.socket.acknowledged() < position
            await recorded.ended.wait()
            assert recorded.socket.acknowledged() < position

    run(main())


def test_tls_counts_when_nothing_waits_anywhere(run: Run, certificate: tuple[str, str]) -> None:
    async def main() -> None:
        options = {"ssl_certfile": certificate[0], "ssl_keyfile": certificate[1]}
        async with running(EchoApp(echo=False), **options) as server:
            reader, writer, recorded = await tls_websocket(server)
            first = recorded.socket.written
            while recorded.socket.acknowledged() < first:
                await asyncio.sleep(0.001)
            # In the turn of the write the bytes may be in neither queue that the process can read.
            position = recorded.socket.send_messages([b"secret"])
            assert recorded.socket.acknowledged() == first
            assert await reader.readexactly(8) == b"\x82\x06secret"
            while recorded.socket.acknowledged() < position:
                await asyncio.sleep(0.001)

            writer.transport.pause_reading()
            for _ in range(100):
                recorded.socket.send_messages([b"m" * 100_000])
                await asyncio.sleep(0.001)
                assert recorded.socket.acknowledged() < recorded.socket.written
            acknowledged = recorded.socket.acknowledged()
            recorded.socket.close(4001, "replaced")
            writer.transport.abort()
            await recorded.ended.wait()
            assert recorded.socket.acknowledged() == acknowledged

    run(main())


def test_tls_client_that_ended_while_it_was_not_read(
    run: Run, certificate: tuple[str, str]
) -> None:
    """Nothing is acknowledged: the TLS layer discards writes after the end, without an error."""

    async def main() -> None:
        options = {"ssl_certfile": certificate[0], "ssl_keyfile": certificate[1]}
        async with running(EchoApp(echo=False), **options) as server:
            _, writer, recorded = await tls_websocket(server)
            while not recorded.socket.drained():
                await asyncio.sleep(0.001)
            recorded.socket.pause_reading()
            with socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno())) as client:
                client.shutdown(socket.SHUT_WR)
            await asyncio.sleep(0.05)
            position = recorded.socket.send_messages([b"into the void"])
            for _ in range(20):
                assert recorded.socket.acknowledged() < position
                await asyncio.sleep(0.001)
            recorded.socket.abort()
            await recorded.ended.wait()

    run(main())


@pytest.mark.parametrize("kind", ["tls", "unix"])
def test_a_client_that_says_goodbye_is_answered_when_it_has_everything(
    run: Run, certificate: tuple[str, str], tmp_path: Path, kind: str
) -> None:
    async def main() -> None:
        async with serving_on(kind, certificate, tmp_path) as server:
            for _ in range(20):
                reader, writer, recorded = await websocket_on(kind, server)
                # No look happens between this write and the end.
                position = recorded.socket.send_messages([b"m" * 1000])
                await reader.readexactly(1004)
                writer.write(FrameSpec(8, b"\x03\xe8").serialize())
                assert await reader.readexactly(4) == b"\x88\x02\x03\xe8"
                writer.transport.abort()  # immediately after the answer
                await recorded.ended.wait()
                assert recorded.ends == [(1000, None)]
                assert recorded.socket.acknowledged() >= position

    run(main())


@pytest.mark.parametrize("kind", ["tls", "unix"])
def test_a_client_that_answers_a_close_has_read_everything(
    run: Run, certificate: tuple[str, str], tmp_path: Path, kind: str
) -> None:
    async def main() -> None:
        async with serving_on(kind, certificate, tmp_path) as server:
            for _ in range(20):
                reader, writer, recorded = await websocket_on(kind, server)
                position = recorded.socket.send_messages([b"m" * 1000])
                recorded.socket.close(1012, "drained")
                never = recorded.socket.send_messages([b"never sent"])
                await reader.readexactly(1004)
                close = await reader.readexactly(11)
                writer.write(FrameSpec(8, close[2:4]).serialize())  # some clients omit the reason
                await writer.drain()
                writer.transport.abort()
                await recorded.ended.wait()
                assert recorded.ends == [(1012, None)]
                assert recorded.socket.acknowledged() == position + len(close) < never
                assert recorded.socket.drained()

    run(main())


def test_a_goodbye_that_crosses_ours_proves_nothing(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        limits = ServerLimits(close_timeout_s=0.2)
        async with running(EchoApp(echo=False), limits, path=str(tmp_path / "s")) as server:
            client, recorded = await plain_client(server)
            position = recorded.socket.send_messages([b"m" * 10_000])
            recorded.socket.close(1012, "drained")
            await asyncio.get_running_loop().sock_sendall(
                client, FrameSpec(8, b"\x03\xe8").serialize()
            )
            await recorded.ended.wait()
            assert recorded.socket.acknowledged() < position
            client.close()

    run(main())
