"""Relays for gateways and clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.redis_servers import start_valkey
from tests.support.relay_process import RelayProcess

LIMIT_BYTES: Final = 1 << 20
"""Largest message that `small_relay` accepts, in bytes."""


@pytest.fixture
def small_relay(tmp_path: Path, data_template: Path) -> Iterator[RelayProcess]:
    """Start a relay whose operator has set a message limit of one MiB."""
    redis = start_valkey(tmp_path)
    settings = {"relay.max_message_bytes": str(LIMIT_BYTES)}
    process = RelayProcess(tmp_path / "relay", data_template, redis, settings=settings)
    try:
        yield process.start()
    finally:
        process.stop()
        redis.remove()
