"""Errors of communication with the chain.

    ChainError
    |- ChainAwayError          no node answered in time: nothing is known
    |- NodeError               one node cannot be used: the next one may be
    |  |- NodeSilentError      it did not answer in time
    |  |- RpcError             it answered with an error, with a code and a text
    |  |  `- StateDiscardedError    it no longer has the state of that block
    |  `- BlockUnreadableError      a block's events cannot be decoded
    `- WriteError              a transaction did not succeed
       |- RefusedError         no node accepted it: it will never be in a block
       |- DispatchError        it is in a block, and failed there
       `- OutcomeUnknownError  it was sent, but its outcome was not observed

A twin that does not exist is not an error: look-ups return None for it.
"""

from __future__ import annotations

from typing import Final

MAX_TEXT_CHARS: Final = 200
"""Length to which texts of nodes are truncated in messages of this program."""


class ChainError(Exception):
    """Base class of the exceptions that this package raises on purpose."""


class ChainAwayError(ChainError):
    """No node gave an answer, so it is not known whether the twin exists."""


class NodeError(ChainError):
    """One node failed: it is unreachable, silent, or its answers cannot be understood."""


class NodeSilentError(NodeError):
    """A node did not answer in time. The connection cannot be used any more."""


class RpcError(NodeError):
    """A node answered with an error; the connection can still be used.

    Attributes:
        code: the JSON-RPC code.
        detail: the node's own text, at most `MAX_TEXT_CHARS`.
    """

    def __init__(self, method: str, code: int, detail: str) -> None:
        self.code = code
        self.detail = shortened(detail)
        super().__init__(f"{method}: {self.detail} (code {code})")


class StateDiscardedError(RpcError):
    """The state of a block is no longer available: nodes without archive keep about 256 blocks."""


class BlockUnreadableError(NodeError):
    """The events of a block cannot be decoded."""


class WriteError(ChainError):
    """A transaction did not succeed."""


class RefusedError(WriteError):
    """The transaction was refused, or was found invalid or replaced later.

    Attributes:
        code: the JSON-RPC code, 1010 if it can never be valid; None if this was found later.
    """

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code


class DispatchError(WriteError):
    """The transaction is in a block and its call failed.

    Attributes:
        call: name of the call.
        name: name of the error, such as TwinNotExists.
        block_hash: hash of its block.
    """

    def __init__(self, call: str, name: str, block_hash: bytes) -> None:
        super().__init__(f"{call} failed: {name}")
        self.call = call
        self.name = name
        self.block_hash = block_hash


class OutcomeUnknownError(WriteError):
    """The transaction was sent; whether it is in a block must be looked up.

    Attributes:
        extrinsic_hash: hash that identifies it.
    """

    def __init__(self, text: str, extrinsic_hash: bytes) -> None:
        super().__init__(text)
        self.extrinsic_hash = extrinsic_hash


def shortened(text: str) -> str:
    """Return a text from another program in a form that is safe for one line of a log."""
    text = "".join(each if each.isprintable() else " " for each in text[: 4 * MAX_TEXT_CHARS])
    text = " ".join(text.split())
    return text if len(text) <= MAX_TEXT_CHARS else f"{text[: MAX_TEXT_CHARS - 3]}..."
