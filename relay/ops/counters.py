"""Snapshots of the relay's figures as documents, one per second, for readers in other programs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict
from typing import Any, Final

from asgiref.sync import sync_to_async
from redis.exceptions import RedisError

from relay.access.errors import Away
from relay.federation.live import PartnerState
from relay.ops.load import Snapshot, look
from relay.ops.redis_client import client
from relay.ops.workers import WorkerState
from relay.twins.chain_state import ChainState, Following, Import

PERIOD_S: Final = 1.0


def document(snapshot: Snapshot) -> dict[str, Any]:
    """Return a snapshot in a form that JSON can represent."""
    return asdict(snapshot)


def snapshot(document: Mapping[str, Any]) -> Snapshot:
    """Return the snapshot in a document.

    Raises:
        TypeError, KeyError: The document is of another release.
    """
    chain = document["chain"]
    return Snapshot(
        **{
            **document,
            "workers": tuple(WorkerState(**each) for each in document["workers"]),
            "partners": tuple(PartnerState(**each) for each in document["partners"]),
            "chain": None if chain is None else ChainState(Following(*chain[0]), Import(*chain[1])),
        }
    )


class _Looks:
    """The newest snapshot of this process, shared by all its followers."""

    def __init__(self) -> None:
        self._at = float("-inf")
        self._newest: dict[str, Any] = {}
        self._lock = asyncio.Lock()

    async def newest(self) -> dict[str, Any]:
        async with self._lock:
            if time.monotonic() - self._at >= PERIOD_S:
                self._newest = document(await sync_to_async(look)(client()))
                self._at = time.monotonic()
            return self._newest


_looks: Final = _Looks()


async def follow() -> AsyncIterator[dict[str, Any]]:
    """Yield a snapshot each second, from now on; a slow caller gets the newest.

    Raises:
        Away: Redis does not answer.
    """
    while True:
        try:
            yield await _looks.newest()
        except RedisError as error:
            raise Away(f"Redis does not answer: {error}") from error
        await asyncio.sleep(PERIOD_S)
