"""Load generator that uses `peer.client`, controlled like `load.py`.

Run as `python -m tests.bench.client_load`. One process serves a command that answers each call
with its body; another calls it, with a given number of calls in progress. Every answer must equal
the body of its call: nothing may be lost, doubled or mixed up.
"""

from __future__ import annotations

import asyncio
import os
import resource
from time import perf_counter_ns
from typing import Any

import uvloop

from peer.client import CallError, Client, Request
from tests.bench import load

COMMAND = "bench.echo"
TIMEOUT_S = 30.0


class ClientGenerator:
    """The calls that the bench can make; see `load.py` for their form."""

    def __init__(self) -> None:
        self._client: Client | None = None
        self._callers: list[asyncio.Task[None]] = []
        self._running = False
        self._latencies_us: list[int] = []
        self._account = {"sent": 0, "received": 0, "lost": 0, "strays": 0}

    async def open(self, secret: str, url: str, twins: str, sid: str | None) -> None:
        """Sign in with this secret at the relay."""
        self._client = Client(secret, [url], twins, sid=sid, timeout=TIMEOUT_S)
        await self._client.__aenter__()

    async def serve(self) -> None:
        """Answer calls with their bodies."""

        async def echo(request: Request) -> bytes:
            return request.payload

        assert self._client is not None
        self._client.serve({COMMAND: echo})

    async def start(
        self, twin: int, outstanding: int, size_bytes: int, command: str = COMMAND
    ) -> None:
        """Call a command of a twin until `stop`, with this many calls in progress."""
        self._running = True
        self._callers = [
            asyncio.create_task(self._call(twin, command, os.urandom(size_bytes)))
            for _ in range(outstanding)
        ]

    async def mark(self) -> dict[str, Any]:
        """Return the figures since the last mark."""
        latencies, self._latencies_us = self._latencies_us, []
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "at_ns": perf_counter_ns(),
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "latencies_us": latencies,
        }

    async def stop(self) -> dict[str, int]:
        """Start no more calls, wait for those in progress, and return the account."""
        self._running = False
        await asyncio.gather(*self._callers)
        return self._account

    async def close(self) -> dict[str, int]:
        """Sign out and return the counters of the client."""
        assert self._client is not None
        counters = dict(self._client.counters)
        await self._client.__aexit__(None, None, None)
        return counters

    async def _call(self, twin: int, command: str, body: bytes) -> None:
        client, account = self._client, self._account
        assert client is not None
        while self._running:
            account["sent"] += 1
            began = perf_counter_ns()
            try:
                reply = await client.call(twin, command, body)
            except CallError:
                account["lost"] += 1
                continue
            self._latencies_us.append((perf_counter_ns() - began) // 1000)
            account["received"] += 1
            account["strays"] += reply.payload != body


if __name__ == "__main__":
    uvloop.run(load.serve(ClientGenerator()))
