"""Tests of `redispipe.pipe` on the workers' event loop: requests on a connection that ends."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
import uvloop

from redispipe import resp
from redispipe.address import SEND_BUFFER_BYTES, RedisAddress
from redispipe.errors import LinkLost
from redispipe.pipe import LOOKS, RedisPipe
from tests.support.certificates import make_certificate
from tests.support.redis_servers import RedisServer
from tests.support.stream_server import stream_server
from tests.support.tcp_proxy import tcp_proxy

ANSWER_S = 0.5


@pytest.mark.parametrize("at_once", [False, True])
def test_a_request_on_a_connection_that_is_closing_is_lost(
    valkey: RedisServer, at_once: bool
) -> None:
    """A request on a closing connection fails with LinkLost.

    Requests are written at the end of a turn of the loop, when the connection may have ended.
    """

    async def main() -> None:
        loop = asyncio.get_running_loop()
        failures: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda loop, context: failures.append(context))
        usable = asyncio.Event()
        pipe = _pipe(valkey, usable)
        pipe.start()
        await usable.wait()
        usable.clear()
        pipe.drop()
        replies: asyncio.Queue[Any] = asyncio.Queue()
        pipe.submit(resp.command("PING"), replies.put_nowait, at_once=at_once)
        assert isinstance(await replies.get(), LinkLost)
        await usable.wait()
        assert await pipe.call("PING") == b"PONG"
        await pipe.close()
        assert failures == []

    uvloop.run(main())


@pytest.mark.parametrize("at_once", [False, True])
def test_pieces_are_written_in_the_order_of_the_requests(
    valkey: RedisServer, at_once: bool
) -> None:
    """Large commands, which are not joined with others before writing, keep their order."""
    values = [bytes([65 + number]) * 300_000 for number in range(4)]
    head = b"*2\r\n$4\r\nECHO\r\n$300000\r\n"

    async def main() -> None:
        usable = asyncio.Event()
        pipe = _pipe(valkey, usable)
        pipe.start()
        await usable.wait()
        replies: asyncio.Queue[Any] = asyncio.Queue()
        for value in values:
            pipe.submit(resp.command("PING"), replies.put_nowait)
            pipe.submit([head, value, resp.CRLF], replies.put_nowait, at_once=at_once)
        pipe.submit(resp.command("PING"), replies.put_nowait)
        for value in values:
            assert await replies.get() == b"PONG"
            assert await replies.get() == value
        assert await replies.get() == b"PONG"
        await pipe.close()

    uvloop.run(main())


async def test_a_unix_socket_takes_a_batch_at_once(valkey: RedisServer) -> None:
    """The send buffer of a Unix socket is as large as the system allows.

    A batch fits in it, so that Redis need not wait for the rest while this process is busy.
    """
    most = int(Path("/proc/sys/net/core/wmem_max").read_text())
    address = RedisAddress.parse(valkey.unix_url)
    transport = await address.connect(asyncio.Protocol)
    try:
        connection = transport.get_extra_info("socket")
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        assert found == 2 * min(SEND_BUFFER_BYTES, most)  # the kernel counts its own share too
    finally:
        transport.abort()


async def test_a_connection_that_is_dead_is_cut(valkey: RedisServer) -> None:
    """A connection that the network silently lost is closed, and a new connection works."""
    async with tcp_proxy(("127.0.0.1", valkey.port)) as proxy:
        usable = asyncio.Event()
        pipe = _pipe(valkey, usable, port=proxy.port, answer_s=ANSWER_S)
        pipe.start()
        await usable.wait()
        usable.clear()
        stalled = list(proxy.connections)
        for connection in stalled:
            connection.to_server.stall()
            connection.to_client.stall()
        with pytest.raises(LinkLost):
            await pipe.call("PING")
        await usable.wait()
        assert await pipe.call("PING") == b"PONG"
        assert not pipe.silent
        await pipe.close()


async def test_a_redis_that_is_paused_is_not_left(valkey: RedisServer) -> None:
    """The pipe keeps its connection to a paused Redis, which would not answer on another either."""
    usable = asyncio.Event()
    pipe = _pipe(valkey, usable, answer_s=ANSWER_S)
    pipe.start()
    await usable.wait()
    valkey.pause()
    try:
        answer = asyncio.create_task(pipe.call("PING"))
        while not pipe.silent:
            await asyncio.sleep(ANSWER_S / LOOKS)
        await asyncio.wait({answer}, timeout=2 * ANSWER_S)
    finally:
        valkey.resume()
    assert await answer == b"PONG"
    assert pipe.connections == 1
    await pipe.close()


async def test_an_answer_that_comes_behind_another_connections_is_waited_for(
    valkey: RedisServer,
) -> None:
    """The pipe waits for a late answer even if Redis has answered on another connection first.

    When Redis is back after a pause, the order in which it serves connections means nothing.
    """
    async with tcp_proxy(("127.0.0.1", valkey.port)) as proxy:
        usable = asyncio.Event()
        pipe = _pipe(valkey, usable, port=proxy.port, answer_s=ANSWER_S)
        pipe.start()
        await usable.wait()
        (first,) = proxy.connections
        first.to_client.stall()
        answered = asyncio.Event()
        proxy.on_ended = lambda connection: answered.set()  # it opened another for a PING
        answer = asyncio.create_task(pipe.call("PING"))
        async with asyncio.timeout(10):
            await answered.wait()
        first.to_client.resume()
        assert await answer == b"PONG"
        assert pipe.connections == 1
        await pipe.close()


async def test_a_quiet_connection_of_a_subscriber_is_asked(valkey: RedisServer) -> None:
    """The pipe pings a subscriber's connection, as silence alone does not show that it is dead."""
    pushes: asyncio.Queue[Any] = asyncio.Queue()
    async with tcp_proxy(("127.0.0.1", valkey.port)) as proxy:
        usable = asyncio.Event()
        pipe = _pipe(
            valkey,
            usable,
            port=proxy.port,
            answer_s=ANSWER_S,
            pings=True,
            on_push=pushes.put_nowait,
        )
        pipe.start()
        await usable.wait()
        pipe.send(resp.command("SUBSCRIBE", "news"))
        async with asyncio.timeout(10):
            for _ in range(LOOKS):  # one in two looks, so this takes twice `ANSWER_S`
                while await pushes.get() != [b"pong", b""]:
                    pass
        assert pipe.connections == 1
        usable.clear()
        for connection in proxy.connections:
            connection.to_client.stall()
        await asyncio.wait_for(usable.wait(), 10)
        await pipe.close()


@pytest.mark.parametrize("tls", [False, True])
def test_what_tls_has_taken_is_not_flushed(tmp_path: Path, tls: bool) -> None:
    """Over TLS a pipe does not report data as flushed once the transport has accepted it.

    The TLS transport counts only what it holds itself, not what the transport below still has.
    """
    certificate, key = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def main() -> None:
        arrived, enough = asyncio.Event(), asyncio.Event()

        async def redis(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"test\r\n")
            writer.write(b"+OK\r\n")
            await reader.read(1)
            arrived.set()
            await enough.wait()

        async with stream_server(redis, ssl=context if tls else None) as server:
            url = f"redis{'s' if tls else ''}://localhost:{server.port}?ssl_ca_certs={certificate}"
            pipe = RedisPipe.to(url if tls else url.partition("?")[0], "test")
            pipe.start()
            await pipe.wait_usable()
            pipe.submit(resp.command("PING"), lambda reply: None, at_once=True)
            assert pipe.flushed != tls
            await arrived.wait()
            assert pipe.flushed != tls
            pipe.submit(bytes(32 << 20), lambda reply: None, at_once=True)
            assert not pipe.flushed
            await pipe.close()
            enough.set()

    uvloop.run(main())


async def test_requests_of_others_meanwhile_are_in_the_chosen_database(valkey: RedisServer) -> None:
    """Requests made while a connection opens run in the chosen database.

    Sent between two opening commands, they would run in whichever database is selected then.
    """
    valkey.run("ACL", "SETUSER", "rmb", "on", ">word", "~*", "&*", "+@all")
    pipe = RedisPipe.to(f"redis://rmb:word@127.0.0.1:{valkey.port}/1", "test")
    pipe.start()
    replies: list[Any] = []
    sent = 0
    while not pipe.usable:
        pipe.submit(resp.command("SET", f"key{sent}", "value"), replies.append)
        sent += 1
        await asyncio.sleep(0)
    await pipe.call("PING")
    assert len(replies) == sent
    stored = replies.count(b"OK")
    assert stored > 0
    assert await pipe.call("DBSIZE") == stored
    await pipe.close()


async def test_a_connection_whose_check_fails_is_opened_again(
    valkey: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Any failure of the check opens a new connection, so Redis does not seem to be unavailable."""
    checks = iter([True, True, False])

    async def check() -> None:
        if next(checks):
            raise ValueError("cannot be read")

    pipe = RedisPipe(RedisAddress.parse(valkey.url).connect, [], on_up=check)
    pipe.start()
    async with asyncio.timeout(10):
        await pipe.wait_usable()
    told = [each for each in caplog.records if "cannot be read" in each.message]
    assert len(told) == 1
    assert told[0].exc_info
    await pipe.close()


async def test_a_server_that_is_no_redis_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    asked = asyncio.Semaphore(0)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()
        asked.release()

    async with stream_server(answer) as server:
        pipe = RedisPipe.to(f"redis://127.0.0.1:{server.port}", "test")
        pipe.start()
        async with asyncio.timeout(10):
            for _ in range(3):
                await asked.acquire()
        await pipe.close()
    told = [each.message for each in caplog.records if each.name == "redispipe.pipe"]
    assert len(told) == 1
    assert "not RESP" in told[0]


@pytest.mark.parametrize("at_once", [False, True])
async def test_why_redis_turns_a_connection_away_is_told(
    at_once: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The reason why Redis refuses a connection is logged, such as too many clients.

    Redis sends it without a request or in answer to the first one, then closes the connection.
    """
    asked = asyncio.Semaphore(0)

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not at_once:
            await reader.read(100)
        writer.write(b"-ERR max number of clients reached\r\n")
        asked.release()

    async with stream_server(refuse) as server:
        pipe = RedisPipe.to(f"redis://rmb:word@127.0.0.1:{server.port}/1", "test")
        pipe.start()
        async with asyncio.timeout(10):
            for _ in range(3):
                await asked.acquire()
        await pipe.close()
    told = [each.message for each in caplog.records if each.name == "redispipe.pipe"]
    assert any("max number of clients reached" in each for each in told)
    assert all(each.startswith("no connection to redis") for each in told)


def test_info_is_read_whatever_names_it_holds() -> None:
    """INFO is read even if a file path in it is not UTF-8."""
    found = resp.info("run_id:1\r\nconfig_file:/tmp/m\u00e4.conf\r\n".encode("latin-1"))
    assert found == {"run_id": "1", "config_file": "/tmp/m\ufffd.conf"}


def _pipe(
    server: RedisServer, usable: asyncio.Event, *, port: int = 0, **options: Any
) -> RedisPipe:
    url = f"redis://127.0.0.1:{port}" if port else server.url
    return RedisPipe(
        RedisAddress.parse(url).connect,
        [],
        on_up=lambda: asyncio.sleep(0),
        on_usable=usable.set,
        on_down=lambda: None,
        **options,
    )
