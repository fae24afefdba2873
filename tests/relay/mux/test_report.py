"""What a worker publishes about its connections: bounded, and with waiting streams first."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from proto.mux import frames, varint
from relay.mux import report
from relay.mux.connection import Connection
from relay.mux.report import ConnectionFigures, ConnectionReports, StreamFigures, describe
from relay.queues import keys
from tests.relay.mux.sides import Pair, Wire

GRANT = 1000


class Redis:
    """The parts of a worker that a report uses; it records the commands."""

    boot_id = "boot"

    def __init__(self) -> None:
        self.commit = SimpleNamespace(pipe=SimpleNamespace(usable=True), submit=self._submit)
        self.commands: list[list[bytes]] = []

    def _submit(self, payload: bytes, answered: Callable[[Any], None]) -> None:
        self.commands.append(payload.split(b"\r\n")[2::2])


def connect(pair: Pair, streams: int) -> Connection:
    """Open another connection, whose client has opened streams."""
    wire: Any = Wire()
    connection = pair.server.open(wire, "127.0.0.1", "client/1")
    connection.messages_received(
        [frames.ack(varint.encode(2 * number), GRANT) for number in range(streams)]
    )
    return connection


async def test_the_figures_of_a_connection() -> None:
    connection = connect(Pair(), streams=3)
    connection.sockets[2].session_text = "7:x"
    connection.sockets[2].accept()  # 4 bytes are written
    connection.messages_received([frames.data(varint.encode(4), b"\x05to")])  # a part of a token
    figures, streams = describe(connection, 2)
    assert figures == ConnectionFigures(
        number=2, address="127.0.0.1:5", user_agent="client/1",
        opened_at=connection.opened_at, streams=3, sessions=1, queued_bytes=4, held_bytes=0,
        unsent_bytes=0, stalls=0, bytes_in=3, bytes_out=0,
    )  # fmt: skip
    assert streams == [
        StreamFigures(2, "7:x", "open", GRANT, 4, 0),  # the stream with waiting bytes is first
        StreamFigures(0, "", "signing_in", GRANT, 0, 0),
    ]


async def test_a_report_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each connection gets a share of the streams; large ones get what small ones do not use."""
    monkeypatch.setattr(report, "MAX_CONNECTIONS", 3)
    monkeypatch.setattr(report, "MAX_STREAMS", 10)
    redis = Redis()
    pair = Pair()
    reports = ConnectionReports(
        [connect(pair, streams) for streams in (2, 40, 0, 40)], cast(Any, redis)
    )
    reports.publish()
    (_, name, listed, *expiry), (_, details_name, details, *_) = redis.commands
    assert (name.decode(), details_name.decode()) == (
        keys.connections("boot"),
        keys.streams("boot"),
    )
    assert expiry == [b"EX", b"10"]
    assert sorted(ConnectionFigures(*each).number for each in json.loads(listed)) == [2, 3, 5]
    shares = {number: len(streams) for number, streams in json.loads(details).items()}
    assert shares == {"2": 2, "3": 4, "5": 4}


async def test_nothing_is_published_of_nothing() -> None:
    redis = Redis()
    connections = [connect(Pair(), 1)]
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
