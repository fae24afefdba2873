"""The node: makes blocks from waiting transactions, and notifies its listeners.

Everything here runs without waiting, so that callers between two calls see the chain before or
after a block, never in between. The pace (a timer, or every transaction) is the server's task; the
node calls `on_ready` when a transaction can be in a block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from chain.devchain import accounts, calls, validity
from chain.devchain.accounts import Account
from chain.devchain.errors import InvalidTransactionError
from chain.devchain.knobs import Knobs
from chain.devchain.ledger import Block, Ledger, State
from chain.devchain.pallets import SPEC_VERSION, TRANSACTION_VERSION
from chain.devchain.pool import DROPPED, INVALID, Pool, Waiting, Watcher
from chain.devchain.runtime import BlockBuilder
from proto.chain import storage, twin
from proto.chain.extrinsic import Chain
from proto.chain.headers import to_hex
from proto.chain.twin import Twin

_MS_PER_S: Final = 1000


class Listener(Protocol):
    """Receiver of new heads."""

    def best_head(self, block: Block) -> None:
        """Handle a new newest block."""

    def final_head(self, block: Block) -> None:
        """Handle a new newest final block; blocks between it and the previous one are final too."""


class Journal(Protocol):
    """Storage of blocks across restarts."""

    def append(self, block: Block) -> None:
        """Append a block, which is now the best."""

    def flush(self) -> None:
        """Write the appended blocks."""


class Node:
    """A chain, the transactions that wait for it, and its listeners.

    Attributes:
        ledger: blocks and states.
        pool: waiting transactions.
        knobs: pace and faults.
        chain: chain for which signatures are valid.
        listeners: receivers of new heads.
        on_ready: function that is called when a transaction can be in a block.
        on_best: function that is called after new blocks; it must call `finalize` some time later.
    """

    def __init__(
        self,
        ledger: Ledger,
        knobs: Knobs,
        clock: Callable[[], float],
        author: bytes,
        journal: Journal | None = None,
    ) -> None:
        """Create a node that runs a chain.

        Args:
            ledger: ledger with at least the genesis block.
            knobs: pace and faults; may be changed at any time, followed by `apply_knobs`.
            clock: function that returns Unix seconds.
            author: account that receives the fees.
            journal: storage of the blocks; None to keep them in memory only.
        """
        self.ledger = ledger
        self.pool = Pool()
        self.knobs = knobs
        self.chain = Chain(SPEC_VERSION, TRANSACTION_VERSION, ledger.genesis.hash)
        self.listeners: set[Listener] = set()
        self.on_ready: Callable[[], None] = lambda: None
        self.on_best: Callable[[], None] = self.finalize
        self._clock = clock
        self._author = author
        self._journal = journal
        self._final = ledger.genesis
        # Transactions of blocks that are not final, by the hash of the block.
        self._included: dict[bytes, list[Waiting]] = {}
        self._newest_ms = int.from_bytes(self.state().get(calls.NOW) or b"", "little")

    @property
    def final(self) -> Block:
        """Newest final block."""
        return self._final

    def state(self) -> State:
        """Return the state after the newest block."""
        return State(self.ledger, self.ledger.best)

    def nonce_of(self, account: bytes) -> int:
        """Return the nonce of an account, not counting waiting transactions."""
        return accounts.read(self.state(), account).nonce

    def apply_knobs(self) -> None:
        """Apply changed knobs."""
        self.ledger.states_kept = self.knobs.states_kept
        self.on_best()

    def submit(self, data: bytes, watcher: Watcher | None = None) -> bytes:
        """Accept a transaction.

        Args:
            data: bytes of the transaction, including the length prefix.
            watcher: function that is called with the status of the transaction.

        Returns:
            Its hash.

        Raises:
            InvalidTransactionError: the transaction is refused, with the code and texts of a node.
        """
        transaction = validity.check(data, self.chain, self.ledger, self.state())
        waiting = Waiting(transaction, watcher)
        self.pool.put(waiting, self.nonce_of)
        if waiting.ready:
            self.on_ready()
        return transaction.hash

    def make_block(self) -> Block:
        """Make the next block from waiting transactions, and announce it.

        Raises:
            ChainFullError: there is no room for another block.
        """
        return self.make_blocks(1)

    def make_blocks(self, count: int) -> Block:
        """Make blocks at once and announce the last one only, as a node that catches up does.

        Raises:
            ChainFullError: there is no room for that many; none was made.
        """
        self.ledger.check_room(count)
        for _ in range(count):
            self._make()
        self._announce()
        return self.ledger.best

    def put_twins(self, twins: Sequence[Twin], *, told: bool) -> Block:
        """Make a block in which twins change without a transaction; their relays are not checked.

        Args:
            twins: new twins, or replacements for existing ids.
            told: whether the block has the event TwinStored or TwinUpdated for each.

        Raises:
            ValueError: a twin would get another account, or an account a second twin.
        """

        def change(builder: BlockBuilder) -> None:
            for each in twins:
                _check_account(builder.state, each)
                event = calls.put_twin(builder.state, each)
                if told:
                    builder.tell([event])

        return self._make_changed(change)

    def set_balance(self, account: bytes, free: int) -> Block:
        """Make a block that sets the free balance of an account."""

        def change(builder: BlockBuilder) -> None:
            known = accounts.read(builder.state, account)
            accounts.write(builder.state, account, Account(known.nonce, free))

        return self._make_changed(change)

    def fork(self, depth: int, count: int, *, reinclude: bool) -> list[Block]:
        """Replace the newest blocks by a longer branch.

        Args:
            depth: number of blocks to retract; the genesis block stays.
            count: number of new blocks; more than `depth`.
            reinclude: whether retracted transactions wait for the new blocks, as on a real chain;
                otherwise they are lost.

        Returns:
            The retracted blocks, newest first.

        Raises:
            ValueError: there are fewer blocks, or the branch would not be longer.
            ChainFullError: there is no room for that many.
        """
        self.ledger.check_room(count)
        root = self.ledger.at(self.ledger.best.number - depth)
        if depth < 1 or root is None:
            raise ValueError(f"depth must be from 1 to {self.ledger.best.number}")
        if count <= depth:
            raise ValueError(f"count must be more than depth, {depth}")
        retracted = self.ledger.set_best(root)
        if not self.ledger.is_best_chain(self._final):
            self._final = root
        for block in reversed(retracted):
            self._take_back(block, reinclude=reinclude)
        self.make_blocks(count)
        return retracted

    def finalize(self) -> None:
        """Make blocks final that have enough blocks after them."""
        target = self.ledger.at(max(0, self.ledger.best.number - self.knobs.finality_lag))
        if target is None or target.number <= self._final.number:
            return
        first = self._final.number + 1
        self._final = target
        if self._included:
            for number in range(first, target.number + 1):
                if (block := self.ledger.at(number)) is not None:
                    self._tell_final(block)
        if not self.knobs.mute_heads:
            for listener in list(self.listeners):
                listener.final_head(target)

    def _make_changed(self, change: Callable[[BlockBuilder], None]) -> Block:
        self._make(change)
        self._announce()
        return self.ledger.best

    def _make(self, change: Callable[[BlockBuilder], None] | None = None) -> None:
        # Never use the same millisecond twice: two branches must not have the same block.
        self._newest_ms = max(self._newest_ms + 1, int(self._clock() * _MS_PER_S))
        builder = BlockBuilder(self.ledger, self._newest_ms, self._author)
        if change is not None:
            change(builder)
        included = []
        for waiting in self.pool.in_order(self.nonce_of):
            if not builder.has_room(waiting.transaction):
                break
            try:
                builder.apply(waiting.transaction)
            except InvalidTransactionError:
                self.pool.drop(waiting, INVALID)
            else:
                included.append(waiting)
        block = builder.seal()
        self.ledger.append(block)
        if self._journal is not None:
            self._journal.append(block)
        for waiting in included:
            self.pool.remove(waiting)
            waiting.tell({"inBlock": to_hex(block.hash)})
        if included:
            self._included[block.hash] = included
        if len(self.pool):
            self.pool.refresh(self.nonce_of)

    def _take_back(self, block: Block, *, reinclude: bool) -> None:
        known = {each.transaction.data: each for each in self._included.pop(block.hash, ())}
        for waiting in known.values():
            waiting.tell({"retracted": to_hex(block.hash)})
        for data in block.extrinsics[1:]:
            watcher = known[data].watcher if data in known else None
            try:
                if not reinclude:
                    raise InvalidTransactionError(DROPPED)
                fresh = validity.check(data, self.chain, self.ledger, self.state())
                self.pool.put(Waiting(fresh, watcher), self.nonce_of)
            except InvalidTransactionError:
                if watcher is not None:
                    watcher(DROPPED)

    def _announce(self) -> None:
        if self._journal is not None:
            self._journal.flush()
        best = self.ledger.best
        if not self.knobs.mute_heads and best.number % self.knobs.announce_every == 0:
            for listener in list(self.listeners):
                listener.best_head(best)
        self.on_best()

    def _tell_final(self, block: Block) -> None:
        for waiting in self._included.pop(block.hash, ()):
            waiting.tell({"finalized": to_hex(block.hash)})


def _check_account(state: State, new: Twin) -> None:
    stored = state.get(storage.twin_key(new.id))
    if stored is not None and twin.decode(stored).account != new.account:
        raise ValueError(f"twin {new.id}: the account of a twin never changes")
    owned = state.get(storage.twin_id_key(new.account))
    if owned is not None and int.from_bytes(owned, "little") != new.id:
        raise ValueError(f"twin {new.id}: its account has another twin")
