"""A chain in memory, nodes that serve it, and a sink that obeys the rules: no threads, no clock.

A script is a list of actions. They run one after another while the follower waits for a head, until
one announces a head or ends the connection; after the last one the follower is stopped.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from chain.client import Twins
from chain.errors import BlockUnreadableError, NodeError, StateDiscardedError
from chain.head import Head
from proto.chain.events import TwinChange
from proto.chain.headers import Header
from proto.chain.twin import Twin

State = dict[int, Twin]
URL = "ws://sim"


def twin(number: int, relay: str) -> Twin:
    """Return a twin with this relay."""
    return Twin(number, number.to_bytes(32, "big"), relay.encode())


@dataclass(frozen=True)
class Block:
    """A block with the state after it."""

    header: Header
    state: State
    changes: tuple[TwinChange, ...] = ()


@dataclass
class Chain:
    """All blocks ever made, and the best branch."""

    blocks: dict[bytes, Block] = field(default_factory=dict)
    best: list[bytes] = field(default_factory=list)
    made: int = 0
    announced: deque[Header] = field(default_factory=deque)
    states_kept: int = 10**9
    unreadable: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._add(Header(bytes(32), 0, bytes(32), bytes(32)), {}, ())

    @property
    def head(self) -> Block:
        """The newest block of the best branch."""
        return self.blocks[self.best[-1]]

    def grow(self, *twins: Twin, announce: bool = True) -> None:
        """Add a block in which these twins are new or changed."""
        self.made += 1
        parent = self.head
        number = parent.header.number + 1
        # The state root makes blocks of different branches differ.
        header = Header(
            parent.header.hash(), number, self.made.to_bytes(32, "big"), bytes(32), (b"\0",)
        )
        changes = tuple(TwinChange(each, each.id not in parent.state) for each in twins)
        self._add(header, parent.state | {each.id: each for each in twins}, changes)
        if announce:
            self.announce()

    def announce(self) -> None:
        """Announce the head to subscribers."""
        self.announced.append(self.head.header)

    def retract(self, depth: int) -> None:
        """Remove the newest blocks from the best branch; the next blocks form a fork."""
        del self.best[len(self.best) - min(depth, len(self.best) - 1) :]

    def _add(self, header: Header, state: State, changes: tuple[TwinChange, ...]) -> None:
        self.blocks[header.hash()] = Block(header, state, changes)
        self.best.append(header.hash())


class Mirror:
    """Sink that keeps twins with their heights by the rules of `Sink`, and records all reports."""

    def __init__(self) -> None:
        self.kept: dict[int, tuple[Twin | None, int]] = {}
        self.stale: set[int] = set()
        self.fresh_from = 0
        self.heads: list[Head] = []
        self.changed: list[tuple[int, bytes | None, int]] = []
        self.reverted: list[int] = []
        self.flushes: list[int] = []

    def twin_changed(self, twin: Twin, height: int) -> None:
        """See `Sink`."""
        self.changed.append((twin.id, twin.relay, height))
        kept = self.kept.get(twin.id)
        if kept is None or twin.id in self.stale or kept[1] <= height:
            self._keep(twin.id, twin, height)

    def twin_reverted(self, twin_id: int, twin: Twin | None, height: int) -> None:
        """See `Sink`."""
        self.reverted.append(twin_id)
        self._keep(twin_id, twin, height)

    def flush(self, height: int) -> None:
        """See `Sink`."""
        self.flushes.append(height)
        self.stale = set(self.kept)
        self.fresh_from = height

    def at(self, head: Head) -> None:
        """See `Sink`."""
        self.heads.append(head)

    def looked_up(self, twin_id: int, twin: Twin | None, height: int) -> None:
        """Store the answer to a look-up."""
        kept = self.kept.get(twin_id)
        if height >= self.fresh_from and (
            kept is None or twin_id in self.stale or kept[1] < height
        ):
            self._keep(twin_id, twin, height)

    def _keep(self, twin_id: int, twin: Twin | None, height: int) -> None:
        self.kept[twin_id] = (twin, height)
        self.stale.discard(twin_id)


Action = Callable[[Chain], None]


class DroppedError(NodeError):
    """The script ended the connection."""


def drop(chain: Chain) -> None:
    """End the connection, as an action of a script."""
    raise DroppedError("dropped")


class SimulatedNode:
    """A node of the chain, as `follower.Port`; each connection has a new one."""

    def __init__(self, chain: Chain, script: deque[Action], stop: threading.Event) -> None:
        self._chain = chain
        self._script = script
        self._stop = stop
        self.closed = False

    def limit(self, timeout_s: float) -> None:
        """Do nothing, because no call takes any time."""

    def subscribe_heads(self) -> None:
        """Announce the current head first."""
        self._chain.announced.clear()
        self._chain.announce()

    def next_head(self, timeout_s: float) -> Header | None:
        """Return the next announced head, running the script until there is one."""
        while not self._chain.announced:
            if not self._script:
                self._stop.set()
                return None
            self._script.popleft()(self._chain)
        return self._chain.announced.popleft()

    def headers(self, hashes: Sequence[bytes | None]) -> list[Header | None]:
        """See `Node`."""
        found = [self._chain.blocks.get(each) if each else self._chain.head for each in hashes]
        return [None if each is None else each.header for each in found]

    def block_hashes(self, heights: Iterable[int]) -> list[bytes | None]:
        """See `Node`."""
        best = self._chain.best
        return [best[height] if height < len(best) else None for height in heights]

    def changes(self, blocks: Sequence[Header]) -> list[tuple[TwinChange, ...]]:
        """See `Node`."""
        return [self._state(each.hash(), events=True).changes for each in blocks]

    def twins(self, ids: Iterable[int], at: bytes | None = None) -> Twins:
        """See `Node`."""
        block = self._state(at or self._chain.best[-1])
        found = {each: block.state[each] for each in ids if each in block.state}
        return Twins(Head(block.header.number, block.header.hash()), found)

    def close(self) -> None:
        """See `Node`."""
        self.closed = True

    def _state(self, block_hash: bytes, *, events: bool = False) -> Block:
        block = self._chain.blocks[block_hash]
        number = block.header.number
        if number <= self._chain.head.header.number - self._chain.states_kept:
            raise StateDiscardedError("state", 4003, "State already discarded")
        if events and number in self._chain.unreadable:
            raise BlockUnreadableError(f"block {number}")
        return block
