"""What a method is given, and what it may ask of whoever called it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol

from chain.devchain.errors import (
    DevchainError,
    JournalError,
    StateDiscardedError,
    UnknownBlockError,
)
from chain.devchain.jsonrpc import Positional, RpcError
from chain.devchain.ledger import Block
from chain.devchain.node import Node

STATE_ERROR: Final = 4003
"""What nodes answer (sc-rpc) when the state of a block cannot be had."""


class Topic(Enum):
    """What one can subscribe to; the value is the method of its notifications."""

    BEST_HEADS = "chain_newHead"
    ALL_HEADS = "chain_allHead"
    FINAL_HEADS = "chain_finalizedHead"
    TRANSACTION = "author_extrinsicUpdate"
    RUNTIME_VERSION = "state_runtimeVersion"
    STORAGE = "state_storage"


class Caller(Protocol):
    """A connection."""

    def subscribe(self, topic: Topic, keys: Sequence[bytes] = ()) -> str:
        """Begin a subscription; its id.

        Args:
            topic: what to be told of.
            keys: for `STORAGE`, whose values; they are told at once, and when they change.

        Raises:
            RpcError: the connection has too many.
        """

    def unsubscribe(self, subscription: str) -> bool:
        """End a subscription; whether there was one."""

    def notify(self, subscription: str, value: object) -> None:
        """Tell a subscriber, behind the answer to the call under way."""


class Site(Protocol):
    """The server around the node."""

    def find(self, name: str) -> Method | None:
        """A method by its name, for a request that is counted."""

    def apply_knobs(self) -> None:
        """Take knobs into account that were changed."""

    def drop_connections(self, spared: Caller) -> int:
        """Cut all connections but one; how many."""

    def fail(self, error: JournalError) -> None:
        """End the node: what happens from here on would be forgotten."""

    def counts(self) -> dict[str, Any]:
        """How many requests, connections and subscriptions there are."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request to a method.

    Attributes:
        params: as they came; `positional` reads a list of them.
    """

    node: Node
    site: Site
    caller: Caller
    params: Any

    @property
    def positional(self) -> Positional:
        """The parameters as a list to be read."""
        return Positional(self.params)

    def block(self, block_hash: bytes | None) -> Block:
        """The block with a hash, the newest when there is none.

        Raises:
            RpcError: nobody made it.
        """
        if block_hash is None:
            return self.node.ledger.best
        block = self.node.ledger.block(block_hash)
        if block is None:
            raise state_error(UnknownBlockError(block_hash))
        return block

    def value(self, key: bytes, block: Block) -> bytes | None:
        """A value after a block.

        Raises:
            RpcError: the state of that block is gone.
        """
        try:
            return self.node.ledger.value(key, block)
        except StateDiscardedError as error:
            raise state_error(error) from None


Method = Callable[[Call], object]
Methods = Mapping[str, Method]


def state_error(error: DevchainError) -> RpcError:
    """The answer when a state cannot be had."""
    return RpcError(STATE_ERROR, str(error))
