"""Base of the clients of all kinds: the calls that control them, and how they count.

`run` starts a number of workers of a kind on a connection, lets them warm up, counts for some
seconds, and ends them cleanly. The client in Node.js (`tests/interop/js/bench.js`) does the same.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import Any, Final

from tests.bench import layout

CHUNK_BYTES: Final = 64 * 1024
MESSAGE_BYTES: Final = 64
PARAMS: Final = {"name": "an operation", "twin": 1001, "values": [1, 2, 3], "text": "x" * 100}
WARM_UP_S: Final = 0.5


class Program:
    """A client. `kinds` are coroutine functions that work until `is_running` is false.

    Attributes:
        count: bytes, messages or calls so far.
        is_running: whether workers continue.
    """

    def __init__(self) -> None:
        self.count = 0
        self.is_running = False
        self.kinds: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "chunks": self.chunks,
            "messages": self.messages,
            "calls": self.calls,
        }

    async def run(self, kind: str, workers: int, seconds: float) -> dict[str, float]:
        """Measure; return the count, and the times in seconds."""
        self.is_running = True
        tasks = [asyncio.create_task(self.kinds[kind]()) for _ in range(workers)]
        await asyncio.sleep(WARM_UP_S)
        first, began_s, cpu_s = self.count, perf_counter(), own_cpu_s()
        await asyncio.sleep(seconds)
        count, wall_s, cpu_s = self.count - first, perf_counter() - began_s, own_cpu_s() - cpu_s
        self.is_running = False
        await asyncio.gather(*tasks)
        return {"count": count, "wall_s": wall_s, "cpu_s": cpu_s}

    async def memory(self) -> int:
        """Return the resident memory of this process, in bytes."""
        gc.collect()
        return layout.resident_bytes(os.getpid())

    async def chunks(self) -> None:
        """Write chunks to a stream, as fast as it accepts them, and read the echo."""
        raise NotImplementedError

    async def messages(self) -> None:
        """Repeatedly write a small message to a stream and read the echo."""
        raise NotImplementedError

    async def calls(self) -> None:
        """Repeatedly call and wait for the answer."""
        raise NotImplementedError


def own_cpu_s() -> float:
    """Return the CPU seconds of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
