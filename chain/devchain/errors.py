"""Errors of the test node.

DevchainError
|- InvalidTransactionError   the pool refuses it, with the code and text of a node
|- DispatchFailedError       a call fails: it is in the block, with ExtrinsicFailed
|- StateDiscardedError       the state of an old block is requested
|- UnknownBlockError         a block that does not exist is requested
|- ChainFullError            more blocks than are kept
|- JournalError              the file does not hold a chain of this kind
|- GenesisError              initial twins that are not valid
`- KnobError                 a knob that does not exist, or a value out of its range
"""

from __future__ import annotations

from typing import Final

INVALID_TRANSACTION: Final = 1010
"""JSON-RPC code of nodes (sc-rpc): the transaction can never be in a block."""


class DevchainError(Exception):
    """Base class of the exceptions that this package raises on purpose."""


class InvalidTransactionError(DevchainError):
    """A transaction that the pool refuses.

    Attributes:
        code, message, data: fields of the JSON-RPC error that a node answers with.
    """

    def __init__(
        self, data: str, code: int = INVALID_TRANSACTION, message: str = "Invalid Transaction"
    ) -> None:
        super().__init__(f"{message}: {data}" if data else message)
        self.code = code
        self.message = message
        self.data = data


class DispatchFailedError(DevchainError):
    """A call that fails in its block.

    Attributes:
        error: encoded DispatchError.
    """

    def __init__(self, error: bytes) -> None:
        super().__init__(error.hex())
        self.error = error


class StateDiscardedError(DevchainError):
    """The state of a block is no longer kept; the message is a node's."""

    def __init__(self, block_hash: bytes) -> None:
        super().__init__(
            f"Client error: UnknownBlock: State already discarded for 0x{block_hash.hex()}"
        )


class UnknownBlockError(DevchainError):
    """The state of a block that does not exist was requested; the message is a node's."""

    def __init__(self, block_hash: bytes) -> None:
        super().__init__(
            "Client error: UnknownBlock: Header was not found in the database: "
            f"0x{block_hash.hex()}"
        )


class ChainFullError(DevchainError):
    """There is no room for another block."""


class JournalError(DevchainError):
    """The file cannot be read, or is not the chain of this node."""


class GenesisError(DevchainError):
    """The initial state of a new chain is invalid."""


class KnobError(DevchainError):
    """A knob that does not exist, or a value that it does not accept."""
