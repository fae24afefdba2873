"""Programs and services of gateways in one process: `python -m tests.bench.queue_load`.

It is controlled like `load.py`. A caller is one connection to Redis: it pushes a request, blocks on
its own list, and pushes the next request when the answer has arrived. A server takes requests from
the command's list and pushes the answers, one after another.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import os
import resource
import time
from collections import Counter
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import hiredis
import uvloop

from tests.bench import load

BLOCK_S = "30"
POLL_S = 0.001


class _Lane(asyncio.Protocol):
    """One connection; `on_reply` is called with each reply."""

    def __init__(self, on_reply: Callable[[Any], None]) -> None:
        self.reader = hiredis.Reader()
        self.on_reply = on_reply
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.reader.feed(data)
        while (reply := self.reader.gets()) is not False:
            self.on_reply(reply)


class Caller:
    """A program with one request in progress at a time."""

    def __init__(self, command: str, twin: int, payload: bytes) -> None:
        self.ret = f"ret-{os.urandom(16).hex()}"
        self.lane = _Lane(self._on_reply)
        self.latencies: list[int] = []
        self.sent = self.answered = self.wrong = 0
        self.running = False
        self._payload = base64.b64encode(payload).decode()
        self._body = {
            "ver": 1,
            "ref": "",
            "cmd": command,
            "exp": 60,
            "dat": self._payload,
            "tag": None,
            "dst": [twin],
            "ret": self.ret,
            "shm": "application/json",
            "now": 0,
        }
        self._sent_ns = 0

    def send(self) -> None:
        """Push a request, and wait for its answer."""
        self.sent += 1
        self._body["ref"] = str(self.sent)
        self._body["now"] = int(time.time())
        self._sent_ns = perf_counter_ns()
        self.lane.transport.write(
            hiredis.pack_command(("LPUSH", "msgbus.system.local", json.dumps(self._body)))
            + hiredis.pack_command(("BLPOP", self.ret, BLOCK_S))
        )

    def _on_reply(self, reply: Any) -> None:
        if isinstance(reply, int):
            return  # of LPUSH
        answer = json.loads(reply[1]) if isinstance(reply, list) else {}
        self.answered += 1
        if (
            answer.get("ref") != str(self.sent)
            or answer.get("dat") != self._payload
            or answer.get("err")
        ):
            self.wrong += 1
        self.latencies.append((perf_counter_ns() - self._sent_ns) // 1000)
        if self.running:
            self.send()


class Server:
    """A service that sends back what it receives."""

    def __init__(self, command: str) -> None:
        self._take = hiredis.pack_command(("BRPOP", f"msgbus.{command}", BLOCK_S))
        self.lane = _Lane(self._on_reply)

    def begin(self) -> None:
        """Begin to wait for the first request."""
        self.lane.transport.write(self._take)

    def _on_reply(self, reply: Any) -> None:
        if isinstance(reply, int):
            return  # of LPUSH
        if reply is None:
            self.lane.transport.write(self._take)
            return
        request = json.loads(reply[1])
        answer = {
            "ver": 1,
            "ref": request["ref"],
            "dat": request["dat"],
            "dst": request["src"],
            "shm": request["shm"],
            "now": int(time.time()),
            "err": None,
        }
        self.lane.transport.write(
            hiredis.pack_command(("LPUSH", request["ret"], json.dumps(answer))) + self._take
        )


class QueueGenerator:
    """The calls that the bench can make."""

    def __init__(self) -> None:
        self._callers: list[Caller] = []
        self._servers: list[Server] = []

    async def serve(self, path: str, command: str, count: int) -> None:
        """Begin to serve a command on this many connections."""
        for _ in range(count):
            server = Server(command)
            await _connect(path, server.lane)
            self._servers.append(server)
            server.begin()

    async def prepare(
        self, path: str, command: str, twin: int, count: int, payload_size_bytes: int
    ) -> None:
        """Create callers; earlier ones are dropped."""
        for caller in self._callers:
            caller.lane.transport.abort()
        payload = os.urandom(payload_size_bytes)
        self._callers = [Caller(command, twin, payload) for _ in range(count)]
        for caller in self._callers:
            await _connect(path, caller.lane)

    async def start(self) -> None:
        """Let every caller send its first request."""
        gc.collect()
        gc.freeze()
        gc.disable()
        for caller in self._callers:
            caller.running = True
            caller.send()

    async def mark(self) -> dict[str, Any]:
        """Return the figures since the last mark."""
        latencies: Counter[int] = Counter()
        for caller in self._callers:
            taken, caller.latencies = caller.latencies, []
            latencies.update(taken)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "at_ns": perf_counter_ns(),
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "messages": sum(latencies.values()),
            "lanes": {"all": list(latencies.items())},
        }

    async def stop(self, timeout_s: float) -> dict[str, Any]:
        """Send no more requests, wait for those in progress, and return the account."""
        for caller in self._callers:
            caller.running = False
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and any(c.sent != c.answered for c in self._callers):
            await asyncio.sleep(POLL_S)
        gc.enable()
        lost = sum(caller.sent - caller.answered for caller in self._callers)
        wrong = sum(caller.wrong for caller in self._callers)
        account = {"lost": lost, "duplicates": 0, "out_of_order": 0, "strays": wrong}
        return {"account": account, "notices": {}, "closes": {}}


async def _connect(path: str, lane: _Lane) -> None:
    await asyncio.get_running_loop().create_unix_connection(lambda: lane, path)


if __name__ == "__main__":
    uvloop.run(load.serve(QueueGenerator()))
