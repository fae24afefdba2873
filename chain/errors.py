"""What can go wrong between us and the chain.

    ChainError
    |- ChainAwayError          no node answered in time: nothing is known
    |- NodeError               one node is of no use: the next may be
    |  |- NodeSilentError      it did not answer in time
    |  |- RpcError             it answered that it cannot, with a code and a text
    |  |  `- StateDiscardedError    it no longer has the state of that block
    |  `- BlockUnreadableError      a block's events do not decode
    `- WriteError              a transaction did not do what it was to do
       |- RefusedError         no node took it: it will never be in a block
       |- DispatchError        it is in a block, and failed there
       `- OutcomeUnknownError  it was sent, and what became of it was not seen

That a twin does not exist is no error: look-ups return None for it.
"""

from __future__ import annotations

from typing import Final

MAX_TEXT_CHARS: Final = 200
"""Texts of nodes are cut to this before they go into ours."""


class ChainError(Exception):
    """Base of everything this package raises on purpose."""


class ChainAwayError(ChainError):
    """No node gave an answer, so it is not known whether the twin exists."""


class NodeError(ChainError):
    """One node failed us: unreachable, silent, or answers nobody understands."""


class NodeSilentError(NodeError):
    """A node did not answer in time. The connection is of no use any more."""


class RpcError(NodeError):
    """A node answered with an error; the connection is still good.

    Attributes:
        code: the JSON-RPC code.
        detail: the node's own words, at most `MAX_TEXT_CHARS`.
    """

    def __init__(self, method: str, code: int, detail: str) -> None:
        self.code = code
        self.detail = shortened(detail)
        super().__init__(f"{method}: {self.detail} (code {code})")


class StateDiscardedError(RpcError):
    """The state of a block is gone: nodes without an archive keep some 256 blocks."""


class BlockUnreadableError(NodeError):
    """Events of a block that nobody can decode."""


class WriteError(ChainError):
    """A transaction did not succeed."""


class RefusedError(WriteError):
    """The transaction was not taken, or thrown away again.

    Attributes:
        code: the JSON-RPC code, 1010 for what can never be valid; None when it was dropped later.
    """

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code


class DispatchError(WriteError):
    """The transaction is in a block and its call failed.

    Attributes:
        call: name of the call.
        name: name of the error, such as TwinNotExists.
        block_hash: the block it is in.
    """

    def __init__(self, call: str, name: str, block_hash: bytes) -> None:
        super().__init__(f"{call} failed: {name}")
        self.call = call
        self.name = name
        self.block_hash = block_hash


class OutcomeUnknownError(WriteError):
    """The transaction was sent; whether it is in a block must be looked up.

    Attributes:
        extrinsic_hash: what it is known by.
    """

    def __init__(self, text: str, extrinsic_hash: bytes) -> None:
        super().__init__(text)
        self.extrinsic_hash = extrinsic_hash


def shortened(text: str) -> str:
    """A text of somebody else, safe for one line of a log."""
    text = "".join(each if each.isprintable() else " " for each in text[: 4 * MAX_TEXT_CHARS])
    text = " ".join(text.split())
    return text if len(text) <= MAX_TEXT_CHARS else f"{text[: MAX_TEXT_CHARS - 3]}..."
