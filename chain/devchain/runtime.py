"""Creation of a block: its time, its transactions with their fees and events, its header.

The order of events, the fees and the weights are those of tfchain's runtime 144; the author of the
block receives the fees.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from chain.devchain import accounts, calls, validity
from chain.devchain.accounts import Account
from chain.devchain.bounds import MAX_BLOCK_BYTES
from chain.devchain.calls import Event
from chain.devchain.errors import DispatchFailedError
from chain.devchain.ledger import Block, Ledger, State, extrinsics_root, state_root
from chain.devchain.pallets import BALANCES, SYSTEM, TRANSACTION_PAYMENT
from chain.devchain.validity import Transaction
from proto.chain import events, extrinsic, scale, storage
from proto.chain.extrinsic import Extrinsic
from proto.chain.headers import Header

_SLOT_MS: Final = 6000
_AURA_LOG: Final = b"\x06aura\x20"
"""Digest item PreRuntime of the engine `aura`; its eight bytes, which follow, are the slot."""

_SUCCESS: Final = bytes([SYSTEM, 0])
_FAILED: Final = bytes([SYSTEM, 1])
_DEPOSIT: Final = bytes([BALANCES, 7])
_WITHDRAW: Final = bytes([BALANCES, 8])
_FEE_PAID: Final = bytes([TRANSACTION_PAYMENT, 0])
_NORMAL_AND_PAID: Final = b"\0\0"
_TIME_SET: Final = Event(_SUCCESS, bytes.fromhex("a29d804155170200"))
"""Success of the mandatory call that sets the time, which has no fee."""

_NUMBER: Final = storage.item_key("System", "Number")
_PARENT_HASH: Final = storage.item_key("System", "ParentHash")
_DIGEST: Final = storage.item_key("System", "Digest")
_EVENT_COUNT: Final = storage.item_key("System", "EventCount")


class BlockBuilder:
    """A block that is being built: `apply` transactions, then `seal` it.

    Attributes:
        state: current state.
    """

    def __init__(self, ledger: Ledger, now_ms: int, author: bytes) -> None:
        self.state = State(ledger, ledger.best)
        self._ledger = ledger
        self._parent = ledger.best
        self._author = author
        self._log = _AURA_LOG + (now_ms // _SLOT_MS).to_bytes(8, "little")
        time_call = calls.SET_TIME + scale.compact("now", now_ms)
        self._extrinsics = [extrinsic.encode(Extrinsic(time_call, None))]
        self._size_bytes = len(self._extrinsics[0])
        self.state.put(calls.NOW, now_ms.to_bytes(8, "little"))
        self._records: list[bytes] = []
        self.tell([_TIME_SET])

    def has_room(self, transaction: Transaction) -> bool:
        """Return whether a transaction fits into the block."""
        return self._size_bytes + len(transaction.data) <= MAX_BLOCK_BYTES

    def apply(self, transaction: Transaction) -> None:
        """Execute a transaction; the failure of its call is recorded as an event.

        Raises:
            InvalidTransactionError: it cannot be in this block.
        """
        validity.check_again(transaction, self._ledger, self.state)
        self._extrinsics.append(transaction.data)
        self._size_bytes += len(transaction.data)
        account, cost = transaction.signed.account, transaction.cost
        signer = accounts.read(self.state, account)
        accounts.write(self.state, account, Account(signer.nonce + 1, signer.free - cost))
        self.tell([Event(_WITHDRAW, account + accounts.u128(cost))])
        info = transaction.call.weight + _NORMAL_AND_PAID
        try:
            # A failed call has changed nothing: every call checks everything before it writes.
            self.tell(transaction.call.run(self.state, account))
            outcome = Event(_SUCCESS, info)
        except DispatchFailedError as error:
            outcome = Event(_FAILED, error.error + info)
        author = accounts.read(self.state, self._author)
        accounts.write(self.state, self._author, Account(author.nonce, author.free + cost))
        paid = account + accounts.u128(cost) + accounts.u128(transaction.signed.tip)
        self.tell([Event(_DEPOSIT, self._author + accounts.u128(cost)), Event(_FEE_PAID, paid)])
        self.tell([outcome])

    def tell(self, told: Sequence[Event]) -> None:
        """Add events to the newest transaction (at first the one that sets the time)."""
        index = len(self._extrinsics) - 1
        self._records += [events.encode_record(each.index, each.fields, index) for each in told]

    def seal(self) -> Block:
        """Return the finished block, which is not yet in the ledger."""
        number = self._parent.number + 1
        self.state.put(storage.EVENTS, events.encode_block(self._records))
        self.state.put(_EVENT_COUNT, scale.u32("events", len(self._records)))
        self.state.put(_NUMBER, scale.u32("number", number))
        self.state.put(_PARENT_HASH, self._parent.hash)
        self.state.put(_DIGEST, scale.compact("logs", 1) + self._log)
        header = Header(
            self._parent.hash,
            number,
            state_root(self._parent.header.state_root, self.state.changes),
            extrinsics_root(self._extrinsics),
            (self._log,),
        )
        return Block(header, header.hash(), tuple(self._extrinsics), self.state.changes)
