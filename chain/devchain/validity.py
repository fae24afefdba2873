"""Checks whether a transaction may be in the next block, which a node's pool asks its runtime.

The codes and messages of refusals are those of nodes (sc-rpc and sp-runtime), as clients show them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from chain.devchain import accounts, calls, eras
from chain.devchain.accounts import ReadWrite
from chain.devchain.bounds import MAX_BLOCK_BYTES
from chain.devchain.calls import Call
from chain.devchain.errors import InvalidTransactionError
from chain.devchain.ledger import Ledger
from chain.devchain.pallets import BLOCK_HASH_COUNT, EXISTENTIAL_DEPOSIT
from proto.chain import extrinsic
from proto.chain.bounds import MAX_EXTRINSIC_BYTES
from proto.chain.errors import ChainFormatError
from proto.chain.extrinsic import IMMORTAL, Chain, Extrinsic, Signed
from proto.chain.scale import Reader
from proto.identity.errors import SignatureError

_BASE_FEE: Final = 10_000

_TIME_BYTES: Final = 64
"""Room for the transaction that begins every block and sets its time."""

_BAD_FORMAT: Final = 1001
_VERIFICATION_ERROR: Final = 1002
_UNKNOWN_VALIDITY: Final = 1011


@dataclass(frozen=True, slots=True, eq=False)
class Transaction:
    """A transaction whose signature was checked."""

    data: bytes
    """Transaction as it was sent, including the length prefix."""

    hash: bytes
    signed: Signed
    call: Call
    birth_hash: bytes | None
    """Hash of the first block of its era, which a mortal transaction signs; None for an immortal
    one."""

    @property
    def cost(self) -> int:
        """Amount that the signer pays, including the tip."""
        return fee(len(self.data)) + self.signed.tip


def fee(size_bytes: int) -> int:
    """Return the fee of a transaction of this size: 10,000 units, plus one for each byte."""
    return _BASE_FEE + size_bytes


def check(data: bytes, chain: Chain, ledger: Ledger, state: ReadWrite) -> Transaction:
    """Check a submitted transaction against the newest block.

    A nonce beyond the account's next one is accepted.

    Raises:
        InvalidTransactionError: it cannot be in a block.
    """
    decoded, call = _decode(data)
    signed = decoded.signed
    if signed is None:
        raise _unsigned(call)
    if len(data) > MAX_BLOCK_BYTES - _TIME_BYTES:
        raise InvalidTransactionError("Transaction would exhaust the block limits")
    try:
        birth_hash = _birth_hash(signed.era, ledger)
        extrinsic.verify(decoded, chain, birth_hash)
    except SignatureError:
        raise InvalidTransactionError("Transaction has a bad signature") from None
    transaction = Transaction(data, extrinsic.hash_of(data), signed, call, birth_hash)
    check_payment(transaction, state)
    if signed.nonce < accounts.read(state, signed.account).nonce:
        raise InvalidTransactionError("Transaction is outdated")
    return transaction


def check_again(transaction: Transaction, ledger: Ledger, state: ReadWrite) -> None:
    """Check the conditions that may have changed since a transaction was sent, for the next block.

    Raises:
        InvalidTransactionError: it cannot be in that block.
    """
    signed = transaction.signed
    if signed.era != IMMORTAL and _birth_hash(signed.era, ledger) != transaction.birth_hash:
        raise InvalidTransactionError("Transaction has a bad signature")
    if signed.nonce != accounts.read(state, signed.account).nonce:
        raise InvalidTransactionError("Transaction is outdated")
    check_payment(transaction, state)


def check_payment(transaction: Transaction, state: ReadWrite) -> None:
    """Check that the signer can pay and keeps at least the existential deposit.

    Raises:
        InvalidTransactionError: the balance is too low.
    """
    free = accounts.read(state, transaction.signed.account).free
    if free - transaction.cost < EXISTENTIAL_DEPOSIT:
        raise InvalidTransactionError("Inability to pay some fees (e.g. account balance too low)")


def _decode(data: bytes) -> tuple[Extrinsic, Call]:
    try:
        # The pool itself checks only the length.
        Reader(data).blob("extrinsic", MAX_EXTRINSIC_BYTES)
    except ChainFormatError as error:
        raise InvalidTransactionError(
            "", _BAD_FORMAT, f"Extrinsic has invalid format: {error}"
        ) from None
    try:
        decoded = extrinsic.decode(data)
        return decoded, calls.decode(decoded.call)
    except ChainFormatError as error:
        problem = (
            "Execution failed: Runtime panicked: "
            f"Bad input data provided to validate_transaction: {error}"
        )
        raise InvalidTransactionError(
            f'RuntimeApi("{problem}")',
            _VERIFICATION_ERROR,
            f"Verification Error: Runtime error: {problem}",
        ) from None


def _birth_hash(era: bytes, ledger: Ledger) -> bytes | None:
    if era == IMMORTAL:
        return None
    number = ledger.best.number + 1
    try:
        birth = eras.birth(era, number)
    except ChainFormatError as error:
        raise InvalidTransactionError(str(error)) from None
    block = ledger.at(birth)
    if block is None or number - birth > BLOCK_HASH_COUNT:
        raise InvalidTransactionError("Transaction has an ancient birth block")
    return block.hash


def _unsigned(call: Call) -> InvalidTransactionError:
    if call.index == calls.SET_TIME:
        return InvalidTransactionError(
            "Transaction dispatch is mandatory; transactions must not be validated."
        )
    return InvalidTransactionError(
        "Could not find an unsigned validator for the unsigned transaction",
        _UNKNOWN_VALIDITY,
        "Unknown Transaction Validity",
    )
