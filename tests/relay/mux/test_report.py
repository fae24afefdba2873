"""What a worker publishes of its connections: bounded, and what waits first."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from proto.mux import frames, varint
from relay.mux import report
from relay.mux.connection import Connection
from relay.mux.options import mux_options
from relay.mux.report import ConnectionFigures, ConnectionReports, StreamFigures, describe
from relay.queues import keys
from rmbsite.config import Config

GRANT = 1000


class Wire:
    """A websocket that takes everything."""

    remote = "192.0.2.1:5000"

    def buffered_bytes(self) -> int:
        return 7

    def send_messages(self, payloads: list[bytes]) -> int:
        return 0


class Redis:
    """The part of a worker that a report needs: the commands it was given."""

    boot_id = "boot"

    def __init__(self) -> None:
        self.commit = SimpleNamespace(pipe=SimpleNamespace(usable=True), submit=self._submit)
        self.commands: list[list[bytes]] = []

    def _submit(self, payload: bytes, answered: Callable[[Any], None]) -> None:
        self.commands.append(payload.split(b"\r\n")[2::2])


@pytest.fixture
async def connect() -> Callable[..., Connection]:
    """`connect(3, streams=2)`: a connection with a number, whose client has opened streams."""
    server = cast(Any, SimpleNamespace(
        options=mux_options(Config()), opened=lambda *_: None, budget=None
    ))  # fmt: skip

    def connect(number: int, streams: int = 0) -> Connection:
        connection = Connection(server, number, cast(Any, Wire()), "192.0.2.1", "client/1")
        for each in range(streams):
            opening = frames.ack(varint.encode(2 * each), GRANT)
            connection.messages_received([opening])
        return connection

    return connect


async def test_the_figures_of_a_connection(connect: Callable[..., Connection]) -> None:
    connection = connect(3, streams=3)
    connection.sockets[2].session_text = "7:x"
    connection.sockets[2].accept()  # 4 bytes are written
    connection.messages_received([frames.data(varint.encode(4), b"\x05to")])  # of a token
    figures, streams = describe(connection, 2)
    assert figures == ConnectionFigures(
        number=3, address="192.0.2.1:5000", user_agent="client/1",
        opened_at=connection.opened_at, streams=3, sessions=1, queued_bytes=4, held_bytes=0,
        unsent_bytes=7, stalls=0, bytes_in=3, bytes_out=0,
    )  # fmt: skip
    assert streams == [
        StreamFigures(2, "7:x", "open", GRANT, 4, 0),  # what waits first
        StreamFigures(0, "", "signing_in", GRANT, 0, 0),
    ]


async def test_a_report_is_bounded(
    connect: Callable[..., Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each connection gets its share of the streams; what small ones leave, large ones get."""
    monkeypatch.setattr(report, "MAX_CONNECTIONS", 3)
    monkeypatch.setattr(report, "MAX_STREAMS", 10)
    redis = Redis()
    sizes = {1: 2, 2: 40, 3: 0, 4: 40}
    reports = ConnectionReports(
        [connect(number, streams) for number, streams in sizes.items()], cast(Any, redis)
    )
    reports.publish()
    (_, name, listed, *expiry), (_, details_name, details, *_) = redis.commands
    assert (name.decode(), details_name.decode()) == (
        keys.connections("boot"),
        keys.streams("boot"),
    )
    assert expiry == [b"EX", b"10"]
    assert sorted(ConnectionFigures(*each).number for each in json.loads(listed)) == [1, 2, 4]
    shares = {number: len(streams) for number, streams in json.loads(details).items()}
    assert shares == {"1": 2, "2": 4, "4": 4}


async def test_nothing_is_published_of_nothing(connect: Callable[..., Connection]) -> None:
    redis = Redis()
    connections = [connect(1)]
    reports = ConnectionReports(connections, cast(Any, redis))
    redis.commit.pipe.usable = False
    reports.publish()
    assert not redis.commands
    redis.commit.pipe.usable = True
    reports.publish()
    connections.clear()
    reports.publish()
    reports.publish()
    assert [each[0] for each in redis.commands] == [b"SET", b"SET", b"DEL"]
