"""A real NATS server with JetStream for tests."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lattice.embedded import EmbeddedNats

ROOMY = "jetstream { max_file_store: 1TB }"
"""Configuration with much storage, since each object store reserves a part of it. By default a
server has three quarters of its disk."""

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
