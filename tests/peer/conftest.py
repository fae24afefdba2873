"""Relays for gateways and clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.redis_servers import start_valkey
from tests.support.relay_process import RelayProcess

LIMIT_BYTES: Final = 1 << 20
"""What `small_relay` takes."""


@pytest.fixture
def small_relay(tmp_path: Path, data_template: Path) -> Iterator[RelayProcess]:
    """A relay whose operator has set a limit of a MiB."""
    redis = start_valkey(tmp_path)
    settings = {"relay.max_message_bytes": str(LIMIT_BYTES)}
    process = RelayProcess(tmp_path / "relay", data_template, redis, settings=settings)
    try:
        yield process.start()
    finally:
        process.stop()
        redis.remove()
