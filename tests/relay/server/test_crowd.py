"""Many simultaneous connections, on real sockets; asyncio's own loop accepts all of them itself."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from relay.server.crowd import DEEP, IN_A_TURN, Crowd, queued

CLIENTS = DEEP + 100
pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux reports the length of the queue"
)


class Served(asyncio.Protocol):
    """A protocol that sends the connection's number, in the order of acceptance."""

    made: list[Served]

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.made.append(self)
        transport.write(b"%d\n" % len(self.made))


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    Served.made = []
    with socket.create_server(("127.0.0.1", 0), backlog=2 * CLIENTS) as listener:
        yield listener


@contextlib.asynccontextmanager
async def serving(listener: socket.socket, **tls: Any) -> AsyncIterator[Crowd]:
    """Run a server, and end it with all its connections."""
    crowd = Crowd(listener, Served, tls)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(crowd.accepted, sock=listener, **tls)
    try:
        yield crowd
    finally:
        server.close()
        crowd.close()
        for each in Served.made:
            each.transport.abort()
        await asyncio.sleep(0)


def connect(listener: socket.socket, count: int) -> list[socket.socket]:
    clients = [socket.create_connection(listener.getsockname()) for _ in range(count)]
    for client in clients:
        client.settimeout(10)
    return clients


def no_delay(transport: asyncio.Transport) -> int:
    connection = transport.get_extra_info("socket")
    return int(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))


def test_a_crowd_leaves_the_kernels_queue_and_is_served(listener: socket.socket) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        clients = connect(listener, CLIENTS)
        assert queued(listener) == CLIENTS
        async with serving(listener) as crowd:
            most = 0
            while len(Served.made) < CLIENTS:
                await asyncio.sleep(0)
                most = max(most, len(crowd.held))
            assert most > DEEP / 2
            assert queued(listener) == 0
            assert not crowd.held
            answers = [await loop.run_in_executor(None, client.recv, 99) for client in clients]
            assert sorted(map(int, answers)) == list(range(1, CLIENTS + 1))
            assert len({no_delay(each.transport) for each in Served.made}) == 1
            for client in clients:
                client.close()
            while any(not each.transport.is_closing() for each in Served.made):
                await asyncio.sleep(0)

    uvloop.run(main())


def test_a_few_are_accepted_by_the_loop(listener: socket.socket) -> None:
    async def main() -> None:
        clients = connect(listener, DEEP // 2)
        async with serving(listener) as crowd:
            while len(Served.made) < len(clients):
                await asyncio.sleep(0)
                assert not crowd.held
            for client in clients:
                client.close()

    uvloop.run(main())


def test_those_that_wait_are_cut_at_the_end(listener: socket.socket) -> None:
    async def main() -> None:
        clients = connect(listener, CLIENTS)
        async with serving(listener) as crowd:
            while not crowd.held:
                await asyncio.sleep(0)
            crowd.close()
            await asyncio.sleep(0.01)
            assert len(Served.made) <= CLIENTS - DEEP + IN_A_TURN
            cut = clients[len(Served.made) :]
            assert [client.recv(99) for client in cut[1:]] == [b""] * (len(cut) - 1)
            for client in clients:
                client.close()

    uvloop.run(main())


def test_who_gave_up_is_not_served(listener: socket.socket) -> None:
    """Closed connections are not served: they could take the session's key from their successor."""

    async def main() -> None:
        clients = connect(listener, CLIENTS)
        async with serving(listener) as crowd:
            while not crowd.held:
                await asyncio.sleep(0)
            waiting = len(crowd.held)
            for client in clients:
                client.close()
            served = len(Served.made)
            while crowd.held:
                await asyncio.sleep(0)
            assert waiting > DEEP / 2
            assert len(Served.made) <= served + IN_A_TURN

    uvloop.run(main())


def test_one_that_does_not_speak_tls_harms_nobody(
    listener: socket.socket, certificate: tuple[str, str]
) -> None:
    async def main() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        clients = connect(listener, CLIENTS)
        for client in clients:
            client.sendall(b"this is no TLS\r\n\r\n")
        async with serving(listener, ssl=context, ssl_handshake_timeout=5):
            loop = asyncio.get_running_loop()
            for client in clients:
                with client:
                    await loop.run_in_executor(None, read_all, client)
            assert not Served.made

    uvloop.run(main())


def read_all(client: socket.socket) -> None:
    with contextlib.suppress(ConnectionResetError):
        while client.recv(4096):
            pass


def test_a_unix_socket_has_no_crowd(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen(10)
        assert queued(listener) == 0
