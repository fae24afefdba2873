"""A real NATS server with JetStream for tests, and what waits for states of it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lattice.embedded import EmbeddedNats
from tests.support.waiting import POLL_S

ROOMY = "jetstream { max_file_store: 1TB }"
"""Each object store reserves a part of it. Of itself a server has three quarters of its disk."""

_numbers = itertools.count()


@contextmanager
def nats_server(
    folder: Path, *, jetstream: bool = True, config: str = ""
) -> Iterator[EmbeddedNats]:
    """Run a server on a free port of the loopback."""
    with EmbeddedNats(folder, jetstream=jetstream, config=config) as server:
        yield server


def fresh_lattice() -> str:
    """Return the id of a lattice that no other test of this process uses."""
    return f"test{next(_numbers)}"


async def eventually(check: Callable[[], Any], timeout_s: float = 60.0) -> Any:
    """Wait on the loop until `check` gives something true."""
    async with asyncio.timeout(timeout_s):
        while not (found := check()):
            await asyncio.sleep(POLL_S)
        return found
