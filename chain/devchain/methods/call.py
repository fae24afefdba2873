"""Arguments of a method, and the interfaces of its caller and server."""

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
"""Error code of nodes (sc-rpc) if the state of a block is not available."""


class Topic(Enum):
    """Topic of a subscription; the value is the method of its notifications."""

    BEST_HEADS = "chain_newHead"
    ALL_HEADS = "chain_allHead"
    FINAL_HEADS = "chain_finalizedHead"
    TRANSACTION = "author_extrinsicUpdate"
    RUNTIME_VERSION = "state_runtimeVersion"
    STORAGE = "state_storage"


class Caller(Protocol):
    """The connection that made a call."""

    def subscribe(self, topic: Topic, keys: Sequence[bytes] = ()) -> str:
        """Begin a subscription; return its id.

        Args:
            topic: topic of the notifications.
            keys: for `STORAGE`, keys whose values are sent at once, and when they change.

        Raises:
            RpcError: the connection has too many.
        """

    def unsubscribe(self, subscription: str) -> bool:
        """End a subscription; return whether it existed."""

    def notify(self, subscription: str, value: object) -> None:
        """Notify a subscriber, after the answer to the call in progress."""


class Site(Protocol):
    """The server that runs the node."""

    def find(self, name: str) -> Method | None:
        """Return a method by its name, and count the request."""

    def apply_knobs(self) -> None:
        """Apply changed knobs."""

    def drop_connections(self, spared: Caller) -> int:
        """Abort all connections but one; return their number."""

    def fail(self, error: JournalError) -> None:
        """Stop the node, because later changes could not be stored."""

    def counts(self) -> dict[str, Any]:
        """Return the numbers of requests, connections and subscriptions."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request to a method.

    Attributes:
        params: parameters as received; `positional` reads a list of them.
    """

    node: Node
    site: Site
    caller: Caller
    params: Any

    @property
    def positional(self) -> Positional:
        """The parameters as a list to read."""
        return Positional(self.params)

    def block(self, block_hash: bytes | None) -> Block:
        """Return the block with a hash, or the newest if it is `None`.

        Raises:
            RpcError: the block does not exist.
        """
        if block_hash is None:
            return self.node.ledger.best
        block = self.node.ledger.block(block_hash)
        if block is None:
            raise state_error(UnknownBlockError(block_hash))
        return block

    def value(self, key: bytes, block: Block) -> bytes | None:
        """Return a value after a block.

        Raises:
            RpcError: the state of that block is no longer kept.
        """
        try:
            return self.node.ledger.value(key, block)
        except StateDiscardedError as error:
            raise state_error(error) from None


Method = Callable[[Call], object]
Methods = Mapping[str, Method]


def state_error(error: DevchainError) -> RpcError:
    """Return the answer for a state that is not available."""
    return RpcError(STATE_ERROR, str(error))
