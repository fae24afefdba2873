"""Many sessions over one connection, at a fake relay."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator
from http import HTTPStatus

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from peer.hub import Carrier, StreamLink
from peer.hub.carrier import BOUNDS, MAX_SIGN_INS, stream_url
from peer.hub.session import HIGH_WATER_BYTES
from proto.limits.backoff import Backoff
from proto.mux import varint
from proto.mux.messages import framed
from proto.rmb.bounds import MAX_MESSAGE_BYTES
from tests.support.stream_relay import Accepted, stream_relay
from tests.support.waiting import eventually

QUICK = Backoff(first_s=0.01, longest_s=0.02)


class Sessions:
    """Links of one carrier.

    Attributes:
        received: messages received, by name of the session.
    """

    def __init__(self, carrier: Carrier) -> None:
        self.carrier = carrier
        self.links: dict[str, StreamLink] = {}
        self.received: dict[str, list[bytes]] = {}

    def add(self, name: str) -> StreamLink:
        received = self.received[name] = []
        link = StreamLink(self.carrier, name, lambda: name, received.append, backoff=QUICK)
        self.links[name] = link
        link.start()
        return link

    @property
    def connected(self) -> int:
        return sum(link.connected for link in self.links.values())


@contextlib.asynccontextmanager
async def carried(url: str, count: int = 0, **options: object) -> AsyncIterator[Sessions]:
    carrier = Carrier(url, **{"backoff": QUICK, "slower": QUICK, **options})  # type: ignore[arg-type]
    sessions = Sessions(carrier)
    for number in range(count):
        sessions.add(str(number))
    try:
        yield sessions
    finally:
        await asyncio.gather(*(link.aclose() for link in sessions.links.values()))
        await carrier.aclose()


async def test_sessions_share_one_connection_and_no_messages() -> None:
    sizes = (0, 1, 63, 64, 20_000, 3 << 20)
    async with stream_relay() as relay, carried(relay.url, 3) as sessions:
        await eventually(lambda: sessions.connected == 3)
        assert relay.paths == ["/streams"]
        sent = {name: [os.urandom(size) for size in sizes] for name in sessions.links}
        for size in range(len(sizes)):
            for name, link in sessions.links.items():
                assert await link.writable(10)
                assert link.try_send(sent[name][size])
        await asyncio.gather(*(relay.sessions[name].send(*sent[name]) for name in sent))
        await eventually(lambda: sessions.received == sent)
        await eventually(lambda: all(relay.sessions[name].received == sent[name] for name in sent))


async def test_messages_that_come_with_the_answer() -> None:
    async with stream_relay() as relay, carried(relay.url) as sessions:
        tasks = []
        relay.on_session = lambda session: tasks.append(
            asyncio.create_task(session.send(b"first", b"second"))
        )
        link = sessions.add("1")
        link.pause()
        await eventually(lambda: link.connected)
        assert sessions.received["1"] == []
        link.resume()
        await eventually(lambda: sessions.received["1"] == [b"first", b"second"])


async def test_a_session_that_is_paused_holds_no_other_up() -> None:
    async with stream_relay() as relay, carried(relay.url, 2) as sessions:
        await eventually(lambda: sessions.connected == 2)
        sessions.links["0"].pause()
        big = [bytes(50_000)] * 20
        stuck = asyncio.create_task(relay.sessions["0"].send(*big))
        await relay.sessions["1"].send(*big)
        await eventually(lambda: len(sessions.received["1"]) == 20)
        assert len(sessions.received["0"]) <= 2
        assert not stuck.done()
        sessions.links["0"].resume()
        await stuck
        await eventually(lambda: len(sessions.received["0"]) == 20)


async def test_a_relay_that_does_not_read_a_session_fills_only_that_one() -> None:
    async with stream_relay() as relay, carried(relay.url, 2) as sessions:
        await eventually(lambda: sessions.connected == 2)
        relay.sessions["0"].reading.clear()
        link, other = sessions.links["0"], sessions.links["1"]
        sent = 0
        while await link.writable(0.2):
            assert link.try_send(bytes(20_000))
            sent += 1
        assert not link.try_send(b"more")
        assert link.busy_s > 0
        mux = sessions.carrier.session
        assert mux is not None
        assert 0 < mux.mux.queued_bytes < HIGH_WATER_BYTES + 20_000
        assert other.try_send(b"hello")
        await eventually(lambda: relay.sessions["1"].received == [b"hello"])
        relay.sessions["0"].reading.set()
        assert await link.writable(10)
        await eventually(lambda: len(relay.sessions["0"].received) == sent)


async def test_the_relay_ends_one_session_with_a_reason() -> None:
    async with stream_relay() as relay, carried(relay.url, 2) as sessions:
        await eventually(lambda: sessions.connected == 2)
        link = sessions.links["0"]
        relay.sessions["0"].close(4001)
        await eventually(lambda: link.close_code == 4001)
        assert "4001 replaced: this twin has signed in elsewhere" in link.last_error
        await eventually(lambda: link.connected)
        assert link.sessions == 2
        assert sessions.links["1"].sessions == 1
        assert sessions.carrier.connections == 1


async def test_a_session_that_is_lost_while_it_is_paused() -> None:
    async with stream_relay() as relay, carried(relay.url, 1) as sessions:
        await eventually(lambda: sessions.connected == 1)
        link = sessions.links["0"]
        link.pause()
        await asyncio.sleep(0)
        relay.sessions["0"].close(4003)
        await eventually(lambda: link.sessions == 2)
        assert "4003 kicked" in link.last_error


async def test_a_sign_in_that_is_refused() -> None:
    async with stream_relay() as relay, carried(relay.url) as sessions:
        relay.answer = lambda token: "401 invalid jwt: expired"
        link = sessions.add("1")
        await eventually(lambda: len(relay.sign_ins) > 2)
        assert link.last_error == "refused with status 401: invalid jwt: expired"
        assert not link.connected
        relay.answer = lambda token: "101 signed in"
        await eventually(lambda: link.connected)


@pytest.mark.parametrize("answer", ["", "hello", "1010 x", "²01 x", "x" * 1000])
async def test_an_answer_that_is_none(answer: str) -> None:
    async with stream_relay() as relay, carried(relay.url) as sessions:
        relay.answer = lambda token: answer
        link = sessions.add("1")
        await eventually(lambda: link.last_error.startswith("unexpected answer of the relay"))


async def test_a_message_above_the_bound_ends_the_session_alone() -> None:
    async with stream_relay() as relay, carried(relay.url, 2) as sessions:
        await eventually(lambda: sessions.connected == 2)
        link = sessions.links["0"]
        length = varint.encode(MAX_MESSAGE_BYTES + 1)
        await relay.sessions["0"].stream.write(framed([b"whole"]) + length)
        await eventually(lambda: link.sessions == 2)
        assert link.last_error == "message of 16777217 bytes: at most 16777216 are allowed"
        assert sessions.received["0"] == [b"whole"]
        assert sessions.links["1"].sessions == 1


async def test_a_session_that_ends_within_a_message() -> None:
    async with stream_relay() as relay, carried(relay.url, 1) as sessions:
        await eventually(lambda: sessions.connected == 1)
        link, stream = sessions.links["0"], relay.sessions["0"].stream
        await stream.write(framed([b"message"])[:-1])
        await stream.end()
        await eventually(lambda: link.sessions == 2)
        assert link.last_error == "ended 7 bytes into a message"


async def test_sign_ins_are_paced() -> None:
    """Only so many sign-ins wait for an answer; at the relay's limit, all of them pause."""
    async with stream_relay() as relay, carried(relay.url) as sessions:
        relay.may_answer.clear()
        count = MAX_SIGN_INS + 50
        for number in range(count):
            sessions.add(str(number))
        await eventually(lambda: len(relay.sign_ins) == MAX_SIGN_INS)
        left = iter(range(100))
        relay.answer = lambda token: (
            "101 signed in" if next(left, None) is not None else "429 ip_limit\n"
        )
        relay.may_answer.set()
        await eventually(lambda: sessions.connected == 100)
        assert relay.at_once == MAX_SIGN_INS
        left = iter(range(count))
        await eventually(lambda: sessions.connected == count)


async def test_all_come_back_after_the_connection_was_lost() -> None:
    count = 1000
    async with stream_relay() as relay, carried(relay.url, count) as sessions:
        await eventually(lambda: sessions.connected == count)
        began = time.monotonic()
        relay.cut()
        await eventually(lambda: sessions.connected == 0)
        assert "connection" in sessions.links["7"].last_error
        await eventually(lambda: sessions.connected == count)
        assert time.monotonic() - began < 10
        assert sessions.carrier.connections == 2
        assert all(link.sessions == 2 for link in sessions.links.values())
        await relay.sessions["7"].send(b"hello")
        await eventually(lambda: sessions.received["7"] == [b"hello"])


async def test_a_relay_that_does_not_answer_is_given_up() -> None:
    bounds = BOUNDS._replace(ping_interval_ms=50, ping_timeout_ms=300)
    async with stream_relay() as relay, carried(relay.url, 2, bounds=bounds) as sessions:
        await eventually(lambda: sessions.connected == 2)
        await asyncio.sleep(0.5)  # pings keep a connection that is idle
        assert sessions.carrier.connections == 1
        relay.wires[0].freeze()
        await eventually(lambda: sessions.carrier.connections == 2)
        await eventually(lambda: sessions.connected == 2)


async def test_sessions_move_when_the_relays_worker_restarts() -> None:
    """After a worker's restart, no session signs in on the connection to the old worker again."""
    async with stream_relay() as relay, carried(relay.url, 20) as sessions:
        await eventually(lambda: sessions.connected == 20)
        (old,) = relay.wires
        first, *others = relay.sessions.values()
        first.close(1012)
        await eventually(lambda: sessions.links["0"].sessions == 2)
        assert sessions.carrier.connections == 2
        assert all(link.sessions == 1 for name, link in sessions.links.items() if name != "0")
        for session in others:
            session.close(1012)
        await eventually(lambda: sessions.connected == 20)
        await eventually(lambda: len(old.session.mux) == 0)
        assert sessions.carrier.connections == 2


async def test_a_worker_that_restarts_refuses_sign_ins() -> None:
    async with stream_relay() as relay, carried(relay.url, 1) as sessions:
        await eventually(lambda: sessions.connected == 1)
        relay.answer = lambda token: "503 drained"
        link = sessions.add("2")
        await eventually(lambda: "503" in link.last_error)
        relay.answer = lambda token: "101"
        await eventually(lambda: link.connected)
        assert sessions.carrier.connections > 1


async def test_a_relay_that_is_away_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async with stream_relay() as relay:
        port = int(relay.url.rpartition(":")[2])
    async with carried(relay.url, 20) as sessions:
        links = sessions.links.values()
        await eventually(lambda: all("failed" in link.last_error for link in links))
        warned = [each for each in caplog.records if each.levelno >= logging.WARNING]
        assert len(warned) == 1
        async with stream_relay(port=port):
            await eventually(lambda: sessions.connected == 20)
            assert sessions.carrier.connections == 1


async def test_a_relay_without_streams() -> None:
    def refuse(connection: ServerConnection, request: Request) -> Response:
        return connection.respond(HTTPStatus.UNAUTHORIZED, "no token")

    async def handler(connection: ServerConnection) -> None:
        """Serve no connection; it is not called."""

    async with serve(handler, "127.0.0.1", 0, process_request=refuse) as server:
        url = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
        async with carried(url, 1) as sessions:
            link = sessions.links["0"]
            text = f"401: no token; the relay must serve streams at {url}/streams"
            await eventually(lambda: link.last_error.endswith(text))


async def test_a_reason_of_many_sessions_is_two_lines(caplog: pytest.LogCaptureFixture) -> None:
    async with stream_relay() as relay, carried(relay.url) as sessions:
        relay.answer = lambda token: "401 unknown twin"
        for number in range(7):
            sessions.add(str(number))
        links = sessions.links.values()
        await eventually(lambda: all("401" in link.last_error for link in links))
        sessions.carrier.reports.close()
        refused = "ws://127.0.0.1:PORT: refused with status 401: unknown twin"
        warned = [
            record.getMessage().replace(relay.url.rpartition(":")[2], "PORT")
            for record in caplog.records
            if record.levelno >= logging.WARNING
        ]
        assert warned == [
            f"session 0: {refused}",
            f"6 more sessions (1, 2, 3, 4, 5, ...): {refused}",
        ]


async def test_leaving_waits_for_the_relays_end() -> None:
    ended: list[Accepted] = []
    async with stream_relay() as relay:
        async with carried(relay.url, 3) as sessions:
            await eventually(lambda: sessions.connected == 3)
            ended += relay.sessions.values()
            assert sessions.links["1"].try_send(b"last")
        assert all(session.ended for session in ended)
        assert relay.sessions["1"].received == [b"last"]


def test_the_path_of_streams() -> None:
    assert stream_url("wss://relay.example") == "wss://relay.example/streams"
    assert stream_url("wss://relay.example:8443/") == "wss://relay.example:8443/streams"
    assert stream_url("wss://relay.example/other") == "wss://relay.example/other"
