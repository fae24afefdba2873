"""Connections to SimRedis and to a real server that get the same commands."""

from __future__ import annotations

import random
import socket
import time
from typing import Any

import hiredis

from tests.support import redis_servers
from tests.support.sim.redis import SimRedis

Argv = tuple[Any, ...]


TEXTS_THAT_DIFFER = (
    "ERR invalid expire time in",
    "ERR wrong number of arguments for",
    # If a command was refused while queueing and memory is full, either reason may be reported.
    "EXECABORT Transaction discarded because of",
)
"""Beginnings of error texts whose rest differs even between the two real servers."""


class RealConnection:
    """A raw connection to a real server."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(10)
        self.socket.connect(path)
        self.reader = hiredis.Reader(replyError=_Error)

    def ask(self, *argv: Any) -> Any:
        self.socket.sendall(hiredis.pack_command(argv))
        return self.next_reply()

    def next_reply(self) -> Any:
        while (reply := self.reader.gets()) is False:
            self.reader.feed(self.socket.recv(65_536))
        return reply


class ModelConnection:
    """A connection to SimRedis, without event loop and network."""

    def __init__(self, server: SimRedis) -> None:
        self.reader = hiredis.Reader(replyError=_Error)
        self.connection = server.accept(self)
        self.ended = False

    def deliver(self, data: bytes) -> None:
        self.reader.feed(data)

    def close(self) -> None:
        self.ended = True

    def ask(self, *argv: Any) -> Any:
        self.connection.feed(hiredis.pack_command(argv))
        return self.next_reply()

    def next_reply(self) -> Any:
        reply = self.reader.gets()
        assert reply is not False, "no reply"
        return reply


class _Error(str):
    """An error reply that compares by its text."""


class Pair:
    """Equal connections to both servers; `ask` compares the replies."""

    def __init__(self, server: redis_servers.RedisServer) -> None:
        server.run("FLUSHALL")
        server.run("CONFIG", "SET", "maxmemory", 0)
        self.model = SimRedis(
            time.time, random.Random(1), like_62=server.run("INFO")["redis_version"] < "7"
        )
        self.real_path = server.socket_path
        self.connections: dict[int, tuple[ModelConnection, RealConnection]] = {}

    def __getitem__(self, number: int) -> tuple[ModelConnection, RealConnection]:
        if number not in self.connections:
            self.connections[number] = (
                ModelConnection(self.model),
                RealConnection(self.real_path),
            )
        return self.connections[number]

    def ask(self, *argv: Any, on: int = 0) -> Any:
        model, real = self[on]
        return self.same(argv, model.ask(*argv), real.ask(*argv))

    def ask_masked(self, *argv: Any, on: int = 0) -> tuple[Any, Any]:
        """Send a command to both servers, and return both replies, which may differ."""
        model, real = self[on]
        return model.ask(*argv), real.ask(*argv)

    def next_reply(self, on: int) -> Any:
        model, real = self[on]
        return self.same(("pushed",), model.next_reply(), real.next_reply())

    def same(self, argv: Argv, model: Any, real: Any) -> Any:
        if argv[0] == "SMEMBERS":
            model, real = sorted(model), sorted(real)
        for beginning in TEXTS_THAT_DIFFER:
            if str(model).startswith(beginning) and str(real).startswith(beginning):
                return model
        assert model == real, f"{argv}: the model says {model!r}, the server {real!r}"
        return model

    def close(self) -> None:
        for _, real in self.connections.values():
            real.socket.close()
