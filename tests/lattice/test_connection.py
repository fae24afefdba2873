"""Tests of the connection to NATS: requests, answers, bounds, reconnecting, TLS and users."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from lattice.connection import ConnectionState, LatticeConnection
from lattice.embedded import EmbeddedNats
from lattice.errors import (
    CallTimeoutError,
    ConnectError,
    ConnectionLostError,
    NoRespondersError,
    NotConnectedError,
    TooLargeError,
    TooManyCallsError,
)
from lattice.options import LatticeOptions
from tests.support.certificates import make_certificate
from tests.support.nats_server import nats_server
from tests.support.waiting import eventually


@pytest.fixture
def own_nats(tmp_path: Path) -> Iterator[EmbeddedNats]:
    with nats_server(tmp_path) as server:
        yield server


def echo(connection: LatticeConnection) -> Callable[[Msg], None]:
    """Return a handler that answers with the data it receives."""
    running: set[asyncio.Task[None]] = set()

    def answer(message: Msg) -> None:
        task = asyncio.create_task(connection.publish(message.reply, message.data))
        running.add(task)
        task.add_done_callback(running.discard)

    return answer


async def test_requests_get_their_own_answers(connection: LatticeConnection) -> None:
    await connection.subscribe("echo", echo(connection))
    bodies = [str(number).encode() for number in range(500)]
    answers = await asyncio.gather(*[connection.request("echo", body, 5) for body in bodies])
    assert answers == bodies
    assert connection.outstanding == 0


async def test_a_subject_that_nobody_serves(connection: LatticeConnection) -> None:
    with pytest.raises(NoRespondersError, match="no responders on subject nobody"):
        await connection.request("nobody", b"", 5)


async def test_a_silent_responder(connection: LatticeConnection) -> None:
    heard: list[Msg] = []
    await connection.subscribe("silent", heard.append)
    with pytest.raises(CallTimeoutError, match=r"within 0\.05 s; the call may have been executed"):
        await connection.request("silent", b"", 0.05)
    await connection.publish(heard[0].reply, b"too late")
    await connection.flush()
    assert connection.outstanding == 0


async def test_requests_are_bounded(options: LatticeOptions) -> None:
    async with LatticeConnection(replace(options, max_outstanding=2)) as connection:
        await connection.subscribe("silent", lambda message: None)
        waiting = [asyncio.create_task(connection.request("silent", b"", 5)) for _ in range(2)]
        await eventually(lambda: connection.outstanding == 2)
        with pytest.raises(TooManyCallsError, match="2 calls wait"):
            await connection.request("silent", b"", 5)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        assert connection.outstanding == 0


async def test_a_message_larger_than_the_server_takes(connection: LatticeConnection) -> None:
    with pytest.raises(TooLargeError, match="1048577 bytes, at most 1048576"):
        await connection.publish("big", bytes(2**20 + 1))


async def test_answers_are_gathered_until_an_empty_one(connection: LatticeConnection) -> None:
    assert await connection.gather("hosts", b"", 5) == []  # ends at once: no responders
    for _ in range(3):
        await connection.subscribe("hosts", echo(connection))
    assert await connection.gather("hosts", b"me", 5, most=3) == [b"me"] * 3


async def test_drained_subscriptions_get_what_was_sent_before(
    connection: LatticeConnection, options: LatticeOptions
) -> None:
    heard: list[Msg] = []
    subscription = await connection.subscribe("work", heard.append)
    async with LatticeConnection(options) as other:
        for _ in range(100):
            await other.publish("work", b"x")
        await other.flush()
        await subscription.drain()
        await other.publish("work", b"late")
        await other.flush()
    await connection.flush()
    assert [message.data for message in heard] == [b"x"] * 100


async def test_a_flush_follows_what_was_sent() -> None:
    """A flush sends its PING after all earlier messages.

    The server only records what it reads: a real one is mostly fast enough to hide a wrong order.
    """
    seen: list[str] = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"version":"2.10.0","max_payload":1048576,"headers":true}\r\n')
        while line := (await reader.readline()).decode().strip():
            word, _, rest = line.partition(" ")
            if word == "PING":
                writer.write(b"PONG\r\n")
            if word != "CONNECT":
                seen.append(f"{word} {rest.partition(' ')[0]}".strip())
        writer.close()

    async with await asyncio.start_server(note, "127.0.0.1", 0) as server:
        url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with LatticeConnection(LatticeOptions(servers=(url,))) as connection:
            seen.clear()
            subscription = await connection.subscribe("work", lambda message: None)
            await connection.publish("work", b"x")
            await connection.publish("work", b"y")
            await connection.flush()
            await subscription.drain()
        assert seen == [
            *("SUB work", "PING"),
            *("PUB work", "x", "PUB work", "y", "PING"),
            *("UNSUB 2", "PING"),
        ]


async def test_a_killed_server_that_comes_back(own_nats: EmbeddedNats) -> None:
    back = asyncio.Event()
    async with LatticeConnection(LatticeOptions(servers=(own_nats.url,))) as connection:
        connection.on_connected(back.set)
        await connection.subscribe("echo", echo(connection), queue="group")
        await connection.subscribe("silent", lambda message: None)
        calling = asyncio.create_task(connection.request("silent", b"", 60))
        await eventually(lambda: connection.outstanding)
        own_nats.kill()
        with pytest.raises(ConnectionLostError, match="may have been executed"):
            await calling
        assert connection.state is ConnectionState.AWAY
        with pytest.raises(NotConnectedError, match="not connected to NATS"):
            await connection.publish("echo", b"x")
        with pytest.raises(NotConnectedError):
            await connection.request("echo", b"x", 0.05)
        waiting = asyncio.create_task(connection.request("echo", b"after", 20))
        await connection.subscribe("later", echo(connection))
        own_nats.start()
        assert await waiting == b"after"
        await asyncio.wait_for(back.wait(), 10)
        assert await connection.request("later", b"x", 5) == b"x"
        assert connection.losses == 1
    assert connection.state is ConnectionState.CLOSED


async def test_a_server_that_stops_answering(own_nats: EmbeddedNats) -> None:
    options = LatticeOptions(servers=(own_nats.url,), ping_interval_s=0.1, connect_timeout_s=0.2)
    async with LatticeConnection(options) as connection:
        await connection.subscribe("echo", echo(connection))
        own_nats.pause()
        await eventually(lambda: connection.losses)
        own_nats.resume()
        assert await connection.request("echo", b"x", 20) == b"x"


async def test_an_error_of_the_server_ends_no_subscription(connection: LatticeConnection) -> None:
    await connection.subscribe("echo", echo(connection))
    client = await connection.connected(1)
    await client._process_err("'maximum connections exceeded'")
    await eventually(lambda: connection.losses)
    assert await connection.request("echo", b"x", 20) == b"x"


async def test_no_server_at_all(options: LatticeOptions) -> None:
    closed = replace(options, servers=("nats://me:secret@127.0.0.1:1",))
    with pytest.raises(
        ConnectError, match=r"at 127\.0\.0\.1:1: .*refused|Connect call failed"
    ) as found:
        await LatticeConnection(closed).open()
    assert "secret" not in str(found.value)


async def test_waiting_for_the_first_server(tmp_path: Path) -> None:
    server = EmbeddedNats(tmp_path)
    server.start()
    server.stop()
    connection = LatticeConnection(LatticeOptions(servers=(server.url,)))
    opening = asyncio.create_task(connection.open(wait=True))
    try:
        await eventually(lambda: connection.last_error)
        server.start()
        await asyncio.wait_for(opening, 20)
        assert connection.state is ConnectionState.CONNECTED
    finally:
        await connection.close()
        server.stop()


async def test_users_and_tokens(tmp_path: Path) -> None:
    config = 'authorization { users [ { user: "me", password: "word" } ] }'
    with nats_server(tmp_path / "users", jetstream=False, config=config) as server:
        options = LatticeOptions(servers=(server.url,), user="me", password="word")
        async with LatticeConnection(options):
            pass
        with pytest.raises(ConnectError, match="Authorization Violation"):
            await LatticeConnection(replace(options, password="other")).open()
    config = 'authorization { token: "word" }'
    with nats_server(tmp_path / "token", jetstream=False, config=config) as server:
        async with LatticeConnection(LatticeOptions(servers=(server.url,), token="word")):
            pass


async def test_tls_is_never_given_up(tmp_path: Path, nats: EmbeddedNats) -> None:
    certificate, key = make_certificate(tmp_path)
    config = f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}'
    with nats_server(tmp_path / "nats", jetstream=False, config=config) as server:
        url = server.url.replace("nats://", "tls://").replace("127.0.0.1", "localhost")
        options = LatticeOptions(servers=(url,), tls_ca_file=str(certificate))
        async with LatticeConnection(options) as connection:
            await connection.subscribe("echo", echo(connection))
            assert await connection.request("echo", b"x", 5) == b"x"
        with pytest.raises(ConnectError, match="certificate verify failed"):
            await LatticeConnection(replace(options, tls_ca_file="")).open()
    with pytest.raises(ConnectError, match="does not require TLS"):
        await LatticeConnection(replace(options, servers=(nats.url,))).open()
    with pytest.raises(ssl.SSLError):
        replace(options, tls_ca_file=str(key)).tls_context()
