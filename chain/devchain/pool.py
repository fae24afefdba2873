"""Transactions that wait for a block, and their watchers.

The transactions of each account are ordered by nonce. Those that follow the account's nonce without
a gap are ready; the others are future ones. Among ready transactions, those with a higher tip come
first, then earlier ones.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import Final

from chain.devchain.bounds import MAX_FUTURE, MAX_READY
from chain.devchain.errors import InvalidTransactionError
from chain.devchain.validity import Transaction

Watcher = Callable[[object], None]
"""Function that is called with the status of a transaction, as in author_extrinsicUpdate."""

NonceOf = Callable[[bytes], int]
"""Function that returns the nonce of an account after the newest block."""

READY: Final = "ready"
FUTURE: Final = "future"
DROPPED: Final = "dropped"
INVALID: Final = "invalid"

_IMPORTED: Final = 1013
_LOW_PRIORITY: Final = 1014
_NO_ROOM: Final = 1016


class Waiting:
    """A transaction from its arrival in the pool until its block is final."""

    __slots__ = ("ready", "sequence", "transaction", "watcher")

    def __init__(self, transaction: Transaction, watcher: Watcher | None) -> None:
        self.transaction = transaction
        self.ready = False
        self.sequence = 0  # order of arrival
        self.watcher = watcher

    def tell(self, fate: object) -> None:
        """Call the watcher, if there is one."""
        if self.watcher is not None:
            self.watcher(fate)


def is_last(fate: object) -> bool:
    """Return whether a status is the last one of its transaction."""
    if isinstance(fate, dict):
        return "finalized" in fate or "usurped" in fate
    return fate in (DROPPED, INVALID)


class Pool:
    """All transactions that are not in a block yet."""

    def __init__(self) -> None:
        self._by_hash: dict[bytes, Waiting] = {}
        self._by_account: dict[bytes, dict[int, Waiting]] = {}
        self._sequence = itertools.count(1)

    def __len__(self) -> int:
        return len(self._by_hash)

    def put(self, waiting: Waiting, nonce_of: NonceOf) -> None:
        """Add a valid transaction.

        Raises:
            InvalidTransactionError: it is already in the pool, another one with the same nonce has
                at least the same tip, or the pool is full.
        """
        transaction = waiting.transaction
        if transaction.hash in self._by_hash:
            raise InvalidTransactionError("", _IMPORTED, "Transaction Already Imported")
        if len(self._by_hash) >= MAX_READY + MAX_FUTURE:
            raise _no_room()
        signed = transaction.signed
        queue = self._by_account.get(signed.account, {})
        replaced = queue.get(signed.nonce)
        if replaced is not None and signed.tip <= replaced.transaction.signed.tip:
            raise InvalidTransactionError(
                "The transaction has too low priority to replace another transaction already in "
                "the pool.",
                _LOW_PRIORITY,
                f"Priority is too low: ({replaced.transaction.signed.tip} vs {signed.tip})",
            )
        if replaced is not None:
            self.remove(replaced)
        waiting.sequence = next(self._sequence)
        waiting.ready = False
        self._by_hash[transaction.hash] = waiting
        self._by_account.setdefault(signed.account, {})[signed.nonce] = waiting
        self._promote(signed.account, nonce_of(signed.account))
        if not waiting.ready:
            if sum(not each.ready for each in self._by_hash.values()) > MAX_FUTURE:
                self.remove(waiting)
                raise _no_room()
            waiting.tell(FUTURE)
        if replaced is not None:
            replaced.tell({"usurped": f"0x{transaction.hash.hex()}"})

    def remove(self, waiting: Waiting) -> None:
        """Remove a transaction without calling its watcher."""
        signed = waiting.transaction.signed
        del self._by_hash[waiting.transaction.hash]
        queue = self._by_account[signed.account]
        del queue[signed.nonce]
        if not queue:
            del self._by_account[signed.account]

    def drop(self, waiting: Waiting, fate: str) -> None:
        """Remove a transaction and report the status to its watcher."""
        self.remove(waiting)
        waiting.tell(fate)

    def in_order(self, nonce_of: NonceOf) -> Iterator[Waiting]:
        """Generate ready transactions in the order for a block.

        The caller may drop one; the following transactions of its account are then skipped.
        """
        heap: list[tuple[int, int, Waiting]] = []

        def push(account: bytes, nonce: int) -> None:
            waiting = self._by_account.get(account, {}).get(nonce)
            if waiting is not None:
                tip = waiting.transaction.signed.tip
                heapq.heappush(heap, (-tip, waiting.sequence, waiting))

        for account in list(self._by_account):
            push(account, nonce_of(account))
        while heap:
            waiting = heapq.heappop(heap)[2]
            yield waiting
            if self._by_hash.get(waiting.transaction.hash) is waiting:
                signed = waiting.transaction.signed
                push(signed.account, signed.nonce + 1)

    def refresh(self, nonce_of: NonceOf) -> None:
        """Update all transactions after a block: drop outdated ones, and promote those that became
        ready.
        """
        for account, queue in list(self._by_account.items()):
            nonce = nonce_of(account)
            for outdated in [each for number, each in queue.items() if number < nonce]:
                self.drop(outdated, INVALID)
            first_missing = self.next_nonce(account, nonce)
            for number, each in queue.items():
                each.ready = each.ready and number < first_missing
            self._promote(account, nonce)

    def next_nonce(self, account: bytes, nonce: int) -> int:
        """Return the nonce after the ready transactions of an account whose current nonce is
        `nonce`.
        """
        queue = self._by_account.get(account, {})
        while nonce in queue:
            nonce += 1
        return nonce

    def has_ready(self) -> bool:
        """Return whether the next block would have a transaction."""
        return any(each.ready for each in self._by_hash.values())

    def pending(self) -> list[bytes]:
        """Return all ready transactions, as they were sent."""
        ready = [each for each in self._by_hash.values() if each.ready]
        return [each.transaction.data for each in sorted(ready, key=lambda each: each.sequence)]

    def _promote(self, account: bytes, nonce: int) -> None:
        queue = self._by_account.get(account, {})
        while (waiting := queue.get(nonce)) is not None:
            if not waiting.ready:
                waiting.ready = True
                waiting.tell(READY)
            nonce += 1


def _no_room() -> InvalidTransactionError:
    return InvalidTransactionError(
        "The transaction couldn't enter the pool because of the limit.",
        _NO_ROOM,
        "Immediately Dropped",
    )
