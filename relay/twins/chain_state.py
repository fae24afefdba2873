"""State of following and importing the chain, stored in Redis for tasks, health and metrics.

    relay:chain          the last processed block, the node, the newest head, counts
    relay:chain:events   the newest events (`relay.twins.chain_events`)
    relay:chain:import   the import of all twins: its progress, and the number of the wanted one

Each flush of the follower requests another import by increasing a number; an import is complete
when it ended under the number that is wanted.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from chain.head import Head
from relay.ops.metric_names import series
from relay.ops.redis_client import number, text
from relay.queues import keys

SILENT_S: Final = 30.0
"""Seconds without a new block after which the chain counts as not followed; one is due each 6 s."""

COUNTS: Final = ("reconnects", "node_errors", "store_errors", "stored", "updated", "flushes")


class Following(NamedTuple):
    """State of the follower.

    Attributes:
        tip: last block whose changes are all processed; None before the first.
        flushed: block before which changes may have been missed; 0 before the first.
        url: node it is connected to; empty without a connection.
        head_height: height of the newest known block.
        head_at: unix time at which that block was announced; 0 before the first.
        error: why it left the last node.
        leased: whether a process follows the chain.
        by: process that follows or followed last, `host/pid`.
        counts: counts by the names in `COUNTS`, over all followers so far.
    """

    tip: Head | None
    flushed: int
    url: str
    head_height: int
    head_at: float
    error: str
    leased: bool
    by: str
    counts: Mapping[str, int]

    @property
    def lag_blocks(self) -> int:
        """Number of blocks that are announced and not processed yet."""
        return max(0, self.head_height - self.tip.height) if self.tip else 0

    def complaint(self, now: float) -> str:
        """Return what is wrong; empty if nothing is."""
        because = f": {self.error}" if self.error else ""
        if not self.leased:
            return f"nobody follows the chain{because}"
        if not self.url:
            return f"no node of the chain can be followed{because}"
        if now - self.head_at > SILENT_S:
            return f"no new block for {now - self.head_at:.0f} s"
        return ""


class Import(NamedTuple):
    """State of the import of all twins.

    Attributes:
        wanted, number: numbers of the import that is wanted, and of the last one begun.
        running: whether it has begun and not ended.
        leased: whether a process is importing.
        next_key: last key of the last page that was stored.
        height: height of the block of the first page.
        twins, newest_id: number of twins read so far, and the highest id of a twin when it began.
        began, ended: unix times, 0 for not yet.
        error: why it stopped before its end.
    """

    wanted: int
    number: int
    running: bool
    leased: bool
    next_key: bytes
    height: int
    twins: int
    newest_id: int
    began: float
    ended: float
    error: str

    @property
    def needed(self) -> bool:
        """Whether changes may have been missed since the last import that ended."""
        return self.running or self.number < self.wanted


class ChainState(NamedTuple):
    """State of the follower and of the import."""

    following: Following
    imported: Import


def read(client: Redis) -> ChainState:
    """Read the state.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    with client.pipeline(transaction=False) as pipe:
        _ask(pipe)
        return _state(*pipe.execute())


async def read_async(client: AsyncRedis) -> ChainState:
    """Read the state as `read` does, on an event loop."""
    async with client.pipeline(transaction=False) as pipe:
        _ask(pipe)
        return _state(*await pipe.execute())


def figures(state: ChainState, now: float | None = None) -> dict[str, float]:
    """Return the metrics of the chain; those that the reference relay has too have its names."""
    following, imported = state
    moment = time.time() if now is None else now
    counts = following.counts
    found = {
        "events_listener_reconnecting": float(not following.leased or not following.url),
        "events_listener_reconnect_cycles_total": counts["reconnects"],
        series("events_listener_errors_total", stage="node"): counts["node_errors"],
        series("events_listener_errors_total", stage="store"): counts["store_errors"],
        "events_listener_twin_stored_total": counts["stored"],
        "events_listener_twin_updated_total": counts["updated"],
        "relay_chain_head_block_number": following.head_height,
        "relay_chain_flushes_total": counts["flushes"],
        "relay_chain_import_needed": float(imported.needed),
    }
    if following.tip is not None:
        found["events_listener_last_processed_block_number"] = following.tip.height
    if following.head_at:
        found["relay_chain_head_age_seconds"] = round(max(0.0, moment - following.head_at), 3)
    return found


def _ask(pipe: Any) -> None:
    pipe.hgetall(keys.CHAIN)
    pipe.exists(keys.CHAIN_LEASE)
    pipe.hgetall(keys.CHAIN_IMPORT)
    pipe.exists(keys.CHAIN_IMPORT_LEASE)


def _state(chain: Any, followed: int, imported: Any, importing: int) -> ChainState:
    raw = {text(name): text(value) for name, value in chain.items()}
    counts = {name: _whole(raw.get(name)) for name in COUNTS}
    tip = _tip(raw)
    following = Following(
        tip=tip,
        flushed=_whole(raw.get("flushed")),
        url=raw.get("url", ""),
        # The head is reported once a second, so the tip may be ahead of it.
        head_height=max(_whole(raw.get("head_height")), tip.height if tip else 0),
        head_at=number(raw.get("head_at")),
        error=raw.get("error", ""),
        leased=bool(followed),
        by=raw.get("by", ""),
        counts=counts,
    )
    raw = {text(name): text(value) for name, value in imported.items()}
    return ChainState(
        following,
        Import(
            wanted=_whole(raw.get("wanted")),
            number=_whole(raw.get("number")),
            running=raw.get("state") == "running",
            leased=bool(importing),
            next_key=_hex(raw.get("next_key")),
            height=_whole(raw.get("height")),
            twins=_whole(raw.get("twins")),
            newest_id=_whole(raw.get("newest_id")),
            began=number(raw.get("began")),
            ended=number(raw.get("ended")),
            error=raw.get("error", ""),
        ),
    )


def _tip(raw: Mapping[str, str]) -> Head | None:
    block_hash = _hex(raw.get("hash"))
    return Head(_whole(raw.get("height")), block_hash) if len(block_hash) == 32 else None


def _whole(digits: str | None) -> int:
    return int(number(digits))


def _hex(digits: str | None) -> bytes:
    try:
        return bytes.fromhex(digits or "")
    except ValueError:
        return b""
