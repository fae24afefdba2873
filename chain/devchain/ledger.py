"""Blocks and the state after each of them.

The chain is a tree of blocks, of which one path is the best chain. Every block keeps its changes of
the state. Along the best chain these changes are also listed by key, oldest first, so that the
value of a key after any past block is found with one look-up. A block that a fork retracted is
kept, and read through its own changes down to where it meets the best chain.

No trie is built: the state root of a header is a hash over the parent's root and the changes. It is
still a commitment to the state (other changes give another block hash), but clients cannot check
it; none of them requests proofs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from chain.devchain.bounds import MAX_BLOCKS
from chain.devchain.errors import ChainFullError, StateDiscardedError
from proto.chain import scale
from proto.chain.headers import Header, hash256

Changes = Mapping[bytes, bytes | None]
"""New values by storage key; None removes a value."""

_BULK_KEYS: Final = 256
"""Number of new keys from which on sorting all keys is faster than inserting each."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A block and its changes of the state."""

    header: Header
    hash: bytes
    extrinsics: tuple[bytes, ...]
    """Transactions as they were sent, including their length prefixes."""

    changes: Changes = field(repr=False)

    @property
    def number(self) -> int:
        """Height of the block; 0 is the genesis block."""
        return self.header.number


class Ledger:
    """All blocks of a chain.

    Attributes:
        states_kept: number of newest blocks whose state can be read; 0 for all.
    """

    def __init__(self, genesis: Block) -> None:
        self.states_kept = 0
        self._blocks: dict[bytes, Block] = {}
        self._best_chain: list[Block] = []
        # By key: (block number, value) along the best chain, oldest first.
        self._history: dict[bytes, list[tuple[int, bytes | None]]] = {}
        # Keys that ever had a value; deleted ones stay, and are skipped by reads.
        self._sorted_keys: list[bytes] = []
        self._blocks[genesis.hash] = genesis
        self._extend(genesis)

    @property
    def genesis(self) -> Block:
        """Block 0."""
        return self._best_chain[0]

    @property
    def best(self) -> Block:
        """Newest block of the best chain."""
        return self._best_chain[-1]

    def block(self, block_hash: bytes) -> Block | None:
        """Return a block of the tree by its hash, including retracted ones."""
        return self._blocks.get(block_hash)

    def at(self, number: int) -> Block | None:
        """Return a block of the best chain by its height."""
        return self._best_chain[number] if 0 <= number < len(self._best_chain) else None

    def is_best_chain(self, block: Block) -> bool:
        """Return whether a block is on the best chain."""
        return self.at(block.number) is block

    def check_room(self, count: int) -> None:
        """Check that a number of blocks can still be added.

        Raises:
            ChainFullError: there would be too many.
        """
        if len(self._blocks) + count > MAX_BLOCKS:
            raise ChainFullError(
                f"the chain has {len(self._blocks)} blocks, and at most {MAX_BLOCKS} are kept"
            )

    def append(self, block: Block) -> None:
        """Add a block, which becomes the best one.

        Raises:
            ChainFullError: there are too many.
            KeyError: its parent is unknown.
        """
        self.check_room(1)
        parent = self._blocks[block.header.parent_hash]
        self._blocks[block.hash] = block
        self.set_best(parent)
        self._extend(block)

    def set_best(self, block: Block) -> list[Block]:
        """Make the chain that ends in `block`, an older or a retracted one, the best chain.

        Returns:
            The blocks that are no longer on it, newest first.
        """
        branch = []
        while not self.is_best_chain(block):
            branch.append(block)
            block = self._parent(block)
        retracted = []
        while self.best is not block:
            retracted.append(self._retract())
        for each in reversed(branch):
            self._extend(each)
        return retracted

    def value(self, key: bytes, block: Block) -> bytes | None:
        """Return the value of `key` after `block`.

        Raises:
            StateDiscardedError: the state of that block is no longer kept.
        """
        if self.states_kept and block.number <= self.best.number - self.states_kept:
            raise StateDiscardedError(block.hash)
        while not self.is_best_chain(block):
            if key in block.changes:
                return block.changes[key]
            block = self._parent(block)
        entries = self._history.get(key, ())
        # Nearly all reads are of the newest block.
        for number, value in reversed(entries[-2:]):
            if number <= block.number:
                return value
        place = bisect_right(entries, block.number, key=lambda entry: entry[0])
        return entries[place - 1][1] if place else None

    def keys(self, prefix: bytes, after: bytes, count: int, block: Block) -> list[bytes]:
        """Return up to `count` keys that have a value after `block`, in order.

        Args:
            prefix: prefix of the keys.
            after: position after which the first key comes; need not be an existing key.
            count: maximum number of keys.
            block: block whose state is read.

        Raises:
            StateDiscardedError: the state of that block is no longer kept.
        """
        found: list[bytes] = []
        if after > prefix:
            place = bisect_right(self._sorted_keys, after)
        else:
            place = bisect_left(self._sorted_keys, prefix)
        while len(found) < count and place < len(self._sorted_keys):
            key = self._sorted_keys[place]
            if not key.startswith(prefix):
                break
            if self.value(key, block) is not None:
                found.append(key)
            place += 1
        return found

    def _parent(self, block: Block) -> Block:
        return self._blocks[block.header.parent_hash]

    def _extend(self, block: Block) -> None:
        self._best_chain.append(block)
        number = block.number
        new_keys = []
        for key, value in block.changes.items():
            entries = self._history.get(key)
            if entries is None:
                self._history[key] = [(number, value)]
                new_keys.append(key)
            else:
                entries.append((number, value))
        self._place(new_keys)

    def _retract(self) -> Block:
        block = self._best_chain.pop()
        for key in block.changes:
            self._history[key].pop()
        return block

    def _place(self, new_keys: list[bytes]) -> None:
        # A key whose history a fork emptied is in the list already: histories are never removed.
        if len(new_keys) >= _BULK_KEYS:
            self._sorted_keys += new_keys
            self._sorted_keys.sort()
            return
        for key in new_keys:
            insort(self._sorted_keys, key)


class State:
    """The state after a block, with changes that are not part of a block yet."""

    def __init__(self, ledger: Ledger, parent: Block) -> None:
        self._ledger = ledger
        self._parent = parent
        self.changes: dict[bytes, bytes | None] = {}

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, including changes."""
        if key in self.changes:
            return self.changes[key]
        return self._ledger.value(key, self._parent)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set a value; None removes it."""
        self.changes[key] = value


def state_root(parent_root: bytes, changes: Changes) -> bytes:
    """Return a commitment to the state that results from changes."""
    parts = [parent_root]
    for key in sorted(changes):
        value = changes[key]
        parts.append(_sized(key))
        parts.append(b"\0" if value is None else b"\1" + _sized(value))
    return hash256(b"".join(parts))


def extrinsics_root(extrinsics: Iterable[bytes]) -> bytes:
    """Return a commitment to the transactions of a block, in their order."""
    return hash256(b"".join(_sized(each) for each in extrinsics))


def _sized(value: bytes) -> bytes:
    return scale.compact("size", len(value)) + value
