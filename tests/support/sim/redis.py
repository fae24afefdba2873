"""SimRedis: an in-memory Redis that speaks RESP2 bytes.

A connection is fed request bytes and answers through its sink. All writes are kept as a log of
atomic units (a command, an EXEC, a script), like an append-only file: `crash(lose)` forgets the
last of them, and `restart` replays the rest, which is how Redis goes back in time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Protocol

import hiredis

from tests.support.sim.keyspace import COMMANDS, Args, Keyspace
from tests.support.sim.scripts import SCRIPTS, script_name
from tests.support.sim.values import OK, QUEUED, ReplyError, Status, encode_reply

OUT_OF_MEMORY = "OOM command not allowed when used memory > 'maxmemory'."
LOADING = "LOADING Redis is loading the dataset in memory"
NOT_AN_INTEGER = "ERR value is not an integer or out of range"

SERVER_COMMANDS = {
    "auth": -2,
    "client": -2,
    "config": -2,
    "discard": 1,
    "eval": -3,
    "exec": 1,
    "info": -1,
    "multi": 1,
    "ping": -1,
    "publish": 3,
    "pubsub": -2,
    "select": 2,
    "subscribe": -2,
    "unsubscribe": -1,
}
"""Commands that need the server or the connection, with their arity."""

SUBSCRIBED_COMMANDS = {"subscribe", "unsubscribe", "ping"}


class Sink(Protocol):
    """Destination of a connection's replies."""

    def deliver(self, data: bytes) -> None: ...
    def close(self) -> None: ...


class ServerConnection:
    """One client as the server sees it."""

    def __init__(self, server: SimRedis, client_id: int, sink: Sink) -> None:
        self.server = server
        self.client_id = client_id
        self.sink = sink
        self.name = b""
        self.open = True
        self.queue: list[Args] | None = None  # commands since MULTI
        self.refused = False  # one of them was refused
        self.channels: dict[bytes, None] = {}
        self.reader = hiredis.Reader()

    def feed(self, data: bytes) -> None:
        """Execute every complete command in bytes from the client at once, in order."""
        self.reader.feed(data)
        while self.open:
            request = self.reader.gets()
            if request is False:
                return
            self.server.handle(self, [part for part in request])

    def reply(self, reply: Any) -> None:
        if self.open:
            self.sink.deliver(encode_reply(reply))

    def closed(self) -> None:
        """Handle the end of the connection by the client."""
        if self.open:
            self.open = False
            self.server.forget(self)

    def close(self) -> None:
        """End the connection by the server."""
        if self.open:
            self.closed()
            self.sink.close()


class SimRedis:
    """The server. Time and randomness are injected, so it depends only on its inputs."""

    def __init__(
        self,
        clock: Callable[[], float],
        rng: random.Random | None = None,
        *,
        like_62: bool = False,
    ) -> None:
        """
        Args:
            clock: function that returns Unix time in seconds.
            rng: source of the run ids.
            like_62: whether to behave as Redis 6.2 where newer servers differ: out of memory, it
                refuses every command between MULTI and EXEC, not only those that grow.
        """
        self.clock = clock
        self.like_62 = like_62
        self.clock_offset_s = 0.0  # simulates a fail-over to a machine whose clock is behind
        self.rng = rng or random.Random(0)
        self.maxmemory_bytes = 0
        self.policy = b"noeviction"
        self.up = True
        self.commands_run = 0
        self.on_write: Callable[[list[Args]], None] | None = None  # observes each atomic unit
        self.on_publish: Callable[[bytes, bytes], None] | None = None
        self.on_lost: Callable[[list[Args]], None] | None = None  # ... each one lost in a crash
        self.log: list[tuple[int, list[Args]]] = []
        self._unit: list[Args] | None = None  # written so far by the unit in progress
        self._start()

    # Faults

    def crash(self, lose: int = 0) -> int:
        """Crash (kill -9): reset every connection and forget the last `lose` atomic writes.

        Returns:
            Number of writes that were really lost.
        """
        self.up = False
        lost = min(lose, len(self.log))
        for _ in range(lost):
            _, unit = self.log.pop()
            if self.on_lost is not None:
                self.on_lost(unit)
        for connection in list(self.connections.values()):
            connection.close()
        return lost

    def restart(self, loading_s: float = 0.0) -> None:
        """Start again from the log, with a new run id and client ids from the beginning."""
        log = self.log
        self._start()
        self.log = log
        self._replay(log)
        self._loading_until = self.clock() + loading_s
        self.up = True

    def fill_memory(self) -> None:
        """Be out of memory from now on, whatever is removed."""
        self.maxmemory_bytes = 1

    def free_memory(self) -> None:
        self.maxmemory_bytes = 0

    @property
    def writes(self) -> int:
        return len(self.log)

    @property
    def out_of_memory(self) -> bool:
        return bool(self.maxmemory_bytes) and self.db.used_memory() > self.maxmemory_bytes

    # Connections

    def accept(self, sink: Sink) -> ServerConnection:
        if not self.up:
            raise ConnectionRefusedError("the simulated Redis is down")
        connection = ServerConnection(self, self._next_client_id, sink)
        self.connections[self._next_client_id] = connection
        self._next_client_id += 1
        return connection

    def forget(self, connection: ServerConnection) -> None:
        self.connections.pop(connection.client_id, None)
        for channel in connection.channels:
            self._unsubscribe(connection, channel)
        connection.channels = {}

    def run(self, *args: bytes | str | int) -> Any:
        """Run one command or script outside any connection, as an omniscient observer."""
        argv = [a if isinstance(a, bytes) else str(a).encode() for a in args]
        self._tick()
        return self._run_logged(None, argv)

    # Commands

    def handle(self, connection: ServerConnection, argv: Args) -> None:
        """Answer one request of a connection."""
        self.commands_run += 1
        self._tick()
        name = argv[0].lower().decode("ascii", "replace")
        try:
            self._check(connection, name, argv)
        except ReplyError as error:
            if connection.queue is not None:
                connection.refused = True
            connection.reply(error)
            return
        if connection.queue is not None and name not in ("exec", "discard", "multi"):
            connection.queue.append(argv)
            connection.reply(QUEUED)
        elif name in SUBSCRIBED_COMMANDS - {"ping"}:
            self._change_subscriptions(connection, name, argv[1:])
        elif connection.channels and name == "ping":
            connection.reply([b"pong", argv[1] if len(argv) > 1 else b""])
        elif name == "exec":
            self._exec(connection)
        else:
            connection.reply(self._run_logged(connection, argv))

    def _check(self, connection: ServerConnection, name: str, argv: Args) -> None:
        """Raise the error of a command that is refused before it is queued or run."""
        known = COMMANDS.get(name)
        arity = known.arity if known is not None else SERVER_COMMANDS.get(name)
        if arity is None:
            shown = argv[0].decode("ascii", "replace")
            raise ReplyError(f"ERR unknown command `{shown}`, with args beginning with: ")
        if (arity > 0 and len(argv) != arity) or len(argv) < -arity:
            raise ReplyError(f"ERR wrong number of arguments for '{name}' command")
        if self.clock() < self._loading_until and name not in ("auth", "select", "client"):
            raise ReplyError(LOADING)
        grows = known is not None and known.grows
        queued = connection.queue is not None and name not in ("exec", "discard")
        if queued and name == "multi" and not self.like_62:
            raise ReplyError("ERR Command 'multi' not allowed inside a transaction")
        if (grows or (queued and self.like_62)) and self.out_of_memory:
            raise ReplyError(OUT_OF_MEMORY)
        if connection.channels and name not in SUBSCRIBED_COMMANDS:
            raise ReplyError(
                f"ERR Can't execute '{name}': only (P)SUBSCRIBE / (P)UNSUBSCRIBE / PING / QUIT"
                " / RESET are allowed in this context"
            )

    def _exec(self, connection: ServerConnection) -> None:
        queue = connection.queue
        if queue is None:
            connection.reply(ReplyError("ERR EXEC without MULTI"))
            return
        connection.queue = None
        if connection.refused:
            connection.reply(
                ReplyError("EXECABORT Transaction discarded because of previous errors.")
            )
            return
        if self.out_of_memory and any(
            (known := COMMANDS.get(argv[0].lower().decode())) and known.grows for argv in queue
        ):
            connection.reply(
                ReplyError(f"EXECABORT Transaction discarded because of: {OUT_OF_MEMORY}")
            )
            return
        outer, self._unit = self._unit, []
        replies = [self._run(connection, argv) for argv in queue]
        self._commit_unit(outer)
        connection.reply(replies)

    def _run_logged(self, connection: ServerConnection | None, argv: Args) -> Any:
        """Run one command as a separate atomic unit."""
        outer, self._unit = self._unit, []
        reply = self._run(connection, argv)
        self._commit_unit(outer)
        return reply

    def _commit_unit(self, outer: list[Args] | None) -> None:
        unit, self._unit = self._unit, outer
        if unit:
            self.log.append((self.db.now_us, unit))
            if self.on_write is not None:
                self.on_write(unit)

    def _run(self, connection: ServerConnection | None, argv: Args) -> Any:
        """Run one admitted command; return its reply, or its error."""
        name = argv[0].lower().decode()
        try:
            if name in COMMANDS:
                known = COMMANDS[name]
                reply = known.run(self.db, argv[1:])
                if known.write and self._unit is not None:
                    self._unit.append(argv)
                return reply
            return getattr(self, f"_{name}")(connection, argv[1:])
        except ReplyError as error:
            return error

    def _replay(self, log: list[tuple[int, list[Args]]]) -> None:
        for now_us, unit in log:
            self.db.now_us = now_us
            for argv in unit:
                COMMANDS[argv[0].lower().decode()].run(self.db, argv[1:])
        self._tick()

    def _start(self) -> None:
        self.run_id = f"{self.rng.getrandbits(160):040x}"
        self.db = Keyspace()
        self.connections: dict[int, ServerConnection] = {}
        self.subscribers: dict[bytes, dict[int, ServerConnection]] = {}
        self._next_client_id = 3
        self._loading_until = float("-inf")
        self.log = []

    def _tick(self) -> None:
        self.db.now_us = round((self.clock() + self.clock_offset_s) * 1e6)

    # Pub/sub

    def _change_subscriptions(
        self, connection: ServerConnection, name: str, channels: list[bytes]
    ) -> None:
        if name == "unsubscribe" and not channels:
            channels = list(connection.channels)
            if not channels:
                connection.reply([b"unsubscribe", None, 0])
        for channel in channels:
            if name == "subscribe":
                connection.channels[channel] = None
                self.subscribers.setdefault(channel, {})[connection.client_id] = connection
            elif channel in connection.channels:
                del connection.channels[channel]
                self._unsubscribe(connection, channel)
            connection.reply([name.encode(), channel, len(connection.channels)])

    def _unsubscribe(self, connection: ServerConnection, channel: bytes) -> None:
        listeners = self.subscribers.get(channel, {})
        listeners.pop(connection.client_id, None)
        if not listeners:
            self.subscribers.pop(channel, None)

    def _publish(self, connection: ServerConnection | None, args: Args) -> int:
        channel, message = args
        if self.on_publish is not None:
            self.on_publish(channel, message)
        listeners = list(self.subscribers.get(channel, {}).values())
        for listener in listeners:
            listener.reply([b"message", channel, message])
        return len(listeners)

    def _pubsub(self, connection: ServerConnection | None, args: Args) -> list[Any]:
        if args[0].upper() != b"NUMSUB":
            raise ReplyError("ERR syntax error")
        return [
            part
            for channel in args[1:]
            for part in (channel, len(self.subscribers.get(channel, {})))
        ]

    # The other commands that need the server or the connection

    def _multi(self, connection: ServerConnection, args: Args) -> Any:
        if connection.queue is not None:
            raise ReplyError("ERR MULTI calls can not be nested")
        connection.queue, connection.refused = [], False
        return OK

    def _discard(self, connection: ServerConnection, args: Args) -> Any:
        if connection.queue is None:
            raise ReplyError("ERR DISCARD without MULTI")
        connection.queue = None
        return OK

    def _eval(self, connection: ServerConnection | None, args: Args) -> Any:
        script = SCRIPTS.get(script_name(args[0]))
        if script is None:
            raise ReplyError("ERR the simulated Redis does not know this script")
        key_count = int(args[1])
        out_of_memory = self.out_of_memory
        wrote = False

        def call(*argv: bytes) -> Any:
            nonlocal wrote
            known = COMMANDS.get(argv[0].lower().decode())
            # Full memory stops a script only before its first write.
            if known is not None and known.grows and out_of_memory and not wrote:
                raise ReplyError(OUT_OF_MEMORY)
            wrote = wrote or (known is not None and known.write)
            reply = self._run(connection, list(argv))
            if isinstance(reply, ReplyError):
                raise reply
            return reply

        return script(call, args[2 : 2 + key_count], args[2 + key_count :])

    def _client(self, connection: ServerConnection, args: Args) -> Any:
        action = args[0].upper()
        if action == b"ID" and len(args) == 1:
            return connection.client_id
        if action == b"SETNAME" and len(args) == 2:
            connection.name = args[1]
            return OK
        if action == b"GETNAME" and len(args) == 1:
            return connection.name or None
        if action == b"KILL" and len(args) == 3 and args[1].upper() == b"ID":
            if not args[2].isdigit() or int(args[2]) < 1:
                raise ReplyError("ERR client-id should be greater than 0")
            victim = self.connections.get(int(args[2]))
            if victim is None or victim is connection:  # SKIPME is on by default
                return 0
            victim.close()
            return 1
        raise ReplyError("ERR syntax error")

    def _ping(self, connection: ServerConnection | None, args: Args) -> Any:
        return args[0] if args else Status("PONG")

    def _auth(self, connection: ServerConnection | None, args: Args) -> Any:
        raise ReplyError(
            "ERR AUTH <password> called without any password configured for the default user."
            " Are you sure your configuration is correct?"
        )

    def _select(self, connection: ServerConnection | None, args: Args) -> Any:
        if not args[0].isdigit():
            raise ReplyError(NOT_AN_INTEGER)
        if int(args[0]) > 15:
            raise ReplyError("ERR DB index is out of range")
        return OK

    def _info(self, connection: ServerConnection | None, args: Args) -> bytes:
        sections = {
            "server": {
                "redis_version": "6.2.0" if self.like_62 else "9.0.0",
                "run_id": self.run_id,
                "tcp_port": 6379,
            },
            "memory": {
                "used_memory": self.db.used_memory(),
                "maxmemory": self.maxmemory_bytes,
                "maxmemory_policy": self.policy.decode(),
            },
        }
        wanted = [arg.decode().lower() for arg in args] or list(sections)
        lines: list[str] = []
        for section in wanted:
            if section in sections:
                lines.append(f"# {section.capitalize()}")
                lines.extend(f"{name}:{value}" for name, value in sections[section].items())
        return ("\r\n".join(lines) + "\r\n").encode()

    def _config(self, connection: ServerConnection | None, args: Args) -> Any:
        settings = {b"maxmemory": b"%d" % self.maxmemory_bytes, b"maxmemory-policy": self.policy}
        if args[0].upper() == b"GET" and len(args) == 2:
            value = settings.get(args[1].lower())
            return [] if value is None else [args[1].lower(), value]
        if args[0].upper() == b"SET" and len(args) == 3 and args[1].lower() == b"maxmemory":
            self.maxmemory_bytes = int(args[2])
            return OK
        raise ReplyError("ERR syntax error")
