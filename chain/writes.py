"""Transactions of a twin's owner: accept the terms, create the twin, update it.

A write is prepared with the first node that answers (numbers of the calls, versions, nonce), signed
here, sent to that node, and watched until it is in a block, or in a final one. Then the events of
the block show whether the call succeeded. The signed bytes are made by `proto.chain.extrinsic`, so
the chain gets exactly what is passed as `relay` and `pk`.

The kind of error says what is known of a write that did not succeed. `RefusedError`: it will never
be in a block. `DispatchError`: it is in a block and failed, for a named reason.
`OutcomeUnknownError`: the outcome is not known; look the twin up before writing again.
`ChainAwayError`: nothing was sent.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from enum import Enum
from typing import Any, Final, NamedTuple

from chain import bounds
from chain.client import Node
from chain.errors import (
    BlockUnreadableError,
    ChainAwayError,
    DispatchError,
    NodeError,
    OutcomeUnknownError,
    RefusedError,
    RpcError,
)
from chain.rpc import check_urls
from chain.runtime import Runtimes
from proto.chain import extrinsic, relays
from proto.chain.bounds import HASH_BYTES, MAX_EXTRINSIC_BYTES, MAX_NONCE
from proto.chain.errors import ChainFormatError
from proto.chain.extrinsic import Chain
from proto.chain.headers import from_hex, to_hex
from proto.chain.storage import PALLET
from proto.chain.twin import Twin
from proto.identity import ss58
from proto.identity.signing import SigningKey

logger = logging.getLogger(__name__)


class Until(Enum):
    """Stage until which a write is watched."""

    IN_BLOCK = "inBlock"
    """Takes up to 6 s. A fork may still revert it."""

    FINALIZED = "finalized"
    """Takes 12 to 18 s."""


_INTERNAL_ERROR: Final = -32603
"""JSON-RPC code of an internal error in the node, perhaps after it had accepted the transaction."""

_LIMITS_S: Final = {
    Until.IN_BLOCK: bounds.INCLUSION_S,
    Until.FINALIZED: bounds.FINALIZATION_S,
}
_NEVER_IN_A_BLOCK: Final = ("invalid", "usurped")
_LOST_SIGHT_OF: Final = ("dropped", "finalityTimeout")


class Receipt(NamedTuple):
    """Result of a successful write."""

    extrinsic_hash: bytes
    block_hash: bytes
    twin: Twin | None
    """The signer's twin as the block's events announce it; None for terms."""


class Writer:
    """Writer for one account, one transaction after the other; may be shared by threads.

    Its methods raise `WriteError` and `ChainAwayError`, see above.
    """

    def __init__(
        self,
        urls: Sequence[str],
        key: SigningKey,
        *,
        until: Until = Until.FINALIZED,
        limit_s: float | None = None,
    ) -> None:
        """Create a writer.

        Args:
            urls: addresses of the nodes, the preferred one first.
            key: key of the account, which pays the fees.
            until: stage until which a write is watched.
            limit_s: seconds that this may take; None for one minute, or three until it is final.

        Raises:
            ValueError: an address is invalid.
        """
        self._urls = check_urls(urls)
        self._key = key
        self._until = until
        self._limit_s = _LIMITS_S[until] if limit_s is None else limit_s
        self._runtimes = Runtimes()
        self._lock = threading.Lock()

    def accept_terms(self, document_link: str, document_hash: str) -> Receipt:
        """Accept terms and conditions (user_accept_tc), which is required before the first twin.

        Raises:
            BoundError: an argument is above the chain's bound.
        """
        link, digest = document_link.encode(), document_hash.encode()
        return self._write(
            "user_accept_tc", lambda index: extrinsic.terms_call(index, link, digest)
        )

    def create_twin(self, relay: bytes | None, pk: bytes | None) -> Receipt:
        """Create the account's twin; its id is in the receipt.

        Raises:
            RelayTextError: the chain would reject the text.
            BoundError: an argument is above the chain's bound.
        """
        return self._write_twin("create_twin", relay, pk)

    def update_twin(self, relay: bytes | None, pk: bytes | None) -> Receipt:
        """Replace both fields of the account's twin; None erases a field.

        Raises:
            RelayTextError: the chain would reject the text.
            BoundError: an argument is above the chain's bound.
        """
        return self._write_twin("update_twin", relay, pk)

    def _write_twin(self, call: str, relay: bytes | None, pk: bytes | None) -> Receipt:
        if relay is not None:
            relays.check(relay)
        return self._write(call, lambda index: extrinsic.twin_call(index, relay, pk))

    def _write(self, call: str, arguments: Callable[[bytes], bytes]) -> Receipt:
        arguments(bytes(2))  # report an exceeded bound before any node is contacted
        with self._lock:
            node, signed = self._prepare(call, arguments)
            try:
                return self._send(node, call, signed)
            finally:
                node.close()

    def _prepare(self, call: str, arguments: Callable[[bytes], bytes]) -> tuple[Node, bytes]:
        """Return a node that answers, and the transaction signed for it."""
        reasons: dict[str, str] = {}
        deadline = time.monotonic() + bounds.LOOK_UP_S
        for url in self._urls * 2:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                break
            try:
                with ExitStack() as undone:
                    node = Node(url, self._runtimes, min(left_s, bounds.ATTEMPT_S))
                    undone.callback(node.close)
                    signed = self._sign(node, call, arguments)
                    undone.pop_all()
                    return node, signed
            except NodeError as error:
                logger.info("chain node failed: %s", error)
                reasons[url] = str(error)
        raise ChainAwayError(f"no chain node answered: {'; '.join(reasons.values())}")

    def _sign(self, node: Node, call: str, arguments: Callable[[bytes], bytes]) -> bytes:
        state = node.best().hash()
        version, genesis, nonce = node.connection.call_many(
            [
                ("state_getRuntimeVersion", [to_hex(state)]),
                ("chain_getBlockHash", [0]),
                # This also counts transactions in the node's pool.
                ("system_accountNextIndex", [ss58.encode(self._key.account)]),
            ]
        )
        runtime = node.runtimes.get(node.connection, version, state)
        if runtime.signed_extensions != extrinsic.SIGNED_EXTENSIONS:
            raise RefusedError(
                f"{call}: transactions of runtime {runtime.spec_version} are made in another way"
            )
        if not isinstance(nonce, int) or not 0 <= nonce <= MAX_NONCE:
            raise NodeError(f"{node.url}: invalid nonce {nonce!r:.40}")
        try:
            genesis_hash = from_hex("genesis hash", genesis, HASH_BYTES)
            chain = Chain(runtime.spec_version, runtime.transaction_version, genesis_hash)
            index = runtime.call_index(PALLET, call)
            return extrinsic.sign(arguments(index), self._key, chain, nonce)
        except ChainFormatError as error:
            raise NodeError(f"{node.url}: {error}") from error

    def _send(self, node: Node, call: str, signed: bytes) -> Receipt:
        deadline = time.monotonic() + self._limit_s
        extrinsic_hash = extrinsic.hash_of(signed)
        try:
            node.limit(bounds.CALL_S)
            try:
                watched = node.connection.subscribe(
                    "author_submitAndWatchExtrinsic", [to_hex(signed)]
                )
            except RpcError as error:
                if error.code == _INTERNAL_ERROR:
                    raise
                raise RefusedError(f"{call}: {error.detail}", error.code) from error
            block_hash = self._watch(node, call, watched, extrinsic_hash, deadline)
            return self._receipt(node, call, signed, block_hash)
        except (NodeError, ChainFormatError) as error:
            raise OutcomeUnknownError(
                f"{call} was sent, what became of it is not known: {error}", extrinsic_hash
            ) from error

    def _watch(
        self, node: Node, call: str, watched: str, extrinsic_hash: bytes, deadline: float
    ) -> bytes:
        """Watch the transaction until it has the wanted stage; return its block's hash."""
        while True:
            left_s = deadline - time.monotonic()
            status = node.connection.notification(watched, left_s) if left_s > 0 else None
            if status is None:
                raise OutcomeUnknownError(
                    f"{call} was sent and is not {self._until.value} after {self._limit_s:.0f} s",
                    extrinsic_hash,
                )
            # A status is a word, or an object whose only key is that word.
            words = status if isinstance(status, dict) else {str(status): None}
            for word, value in words.items():
                if word == self._until.value or word == Until.FINALIZED.value:
                    return from_hex(word, value, HASH_BYTES)
                if word in _NEVER_IN_A_BLOCK:
                    raise RefusedError(f"{call}: the transaction is {word}")
                if word in _LOST_SIGHT_OF:
                    raise OutcomeUnknownError(
                        f"{call} was sent, the node says {word}", extrinsic_hash
                    )

    def _receipt(self, node: Node, call: str, signed: bytes, block_hash: bytes) -> Receipt:
        """Return the result of the transaction from its block."""
        from chain.events import failure, twin_changes

        node.limit(bounds.CALL_S)
        place = _place_in(node.connection.call("chain_getBlock", [to_hex(block_hash)]), signed)
        events, runtime = node.events(block_hash)
        name = failure(events, runtime, place)
        if name is not None:
            raise DispatchError(call, name, block_hash)
        twins = [change.twin for change in twin_changes(events, runtime)]
        mine = [twin for twin in twins if twin.account == self._key.account]
        return Receipt(extrinsic.hash_of(signed), block_hash, mine[-1] if mine else None)


def _place_in(answer: Any, signed: bytes) -> int:
    """Return the number of a transaction in its block."""
    try:
        listed = answer["block"]["extrinsics"]
        return [from_hex("extrinsic", each, MAX_EXTRINSIC_BYTES) for each in listed].index(signed)
    except (TypeError, KeyError, ValueError):
        raise BlockUnreadableError("the block does not have the transaction") from None
