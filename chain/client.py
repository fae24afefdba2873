"""One node of the chain: heads, blocks, twins, events and transactions as plain values.

Everything is read as raw storage and decoded by `proto.chain`, so that a relay text or an
encryption key consists of exactly the bytes on the chain. Only the events of a block and the
numbers of calls need the runtime's metadata, which `chain.runtime` reads through
substrate-interface; look-ups never import it.

A node may be used by one thread at a time, and no longer after a `NodeError` that broke its
connection (`usable`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from chain import bounds
from chain.errors import NodeError
from chain.head import Head
from chain.rpc import Connection
from proto.chain import headers, scale, storage, twin
from proto.chain.bounds import HASH_BYTES, MAX_EVENTS_BYTES
from proto.chain.errors import ChainFormatError
from proto.chain.events import TwinChange
from proto.chain.headers import Header, from_hex, to_hex
from proto.chain.twin import Twin

if TYPE_CHECKING:
    from chain.runtime import Runtime, Runtimes

_NO_EVENTS: Final = b"\0"
"""An empty vector, which is what an absent value stands for."""

_MAX_KEY_BYTES: Final = 1024

_T = TypeVar("_T")


class Twins(NamedTuple):
    """Result of a look-up of several twins."""

    head: Head
    """Block at which they were read, so that older answers do not replace newer ones."""

    found: dict[int, Twin]
    """The twins that exist at that block."""


class Page(NamedTuple):
    """A part of all twins, in the order of their storage keys."""

    head: Head
    twins: tuple[Twin, ...]
    next_key: bytes
    """Key to begin the next page with."""


class Node:
    """One node, used through one connection."""

    def __init__(
        self, url: str, runtimes: Runtimes | None = None, timeout_s: float = bounds.CALL_S
    ) -> None:
        """Connect to the node.

        Args:
            url: ws:// or wss://.
            runtimes: metadata kept from earlier connections; only needed for reading events and
                writing.
            timeout_s: time-out for connecting and the calls after it, until the next `limit`.

        Raises:
            NodeError: the node cannot be reached.
        """
        self.connection = Connection(url, timeout_s)
        self._runtimes = runtimes
        self._last_head: Head | None = None
        self._heads: str | None = None

    @property
    def url(self) -> str:
        """URL of the node."""
        return self.connection.url

    @property
    def usable(self) -> bool:
        """Whether its connection can still be used."""
        return self.connection.usable

    def limit(self, timeout_s: float) -> None:
        """Set how long all calls from now on may take together."""
        self.connection.limit(timeout_s)

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    # Blocks

    def best(self) -> Header:
        """Return the header of the newest block, final or not.

        Raises:
            NodeError: the node gives no valid answer.
        """
        header = self.header(None)
        if header is None:
            raise NodeError(f"{self.url}: has no best block")
        return header

    def header(self, block_hash: bytes | None) -> Header | None:
        """Return the header of a block, or None if the node has no such block.

        Args:
            block_hash: hash of the block; None for the newest.

        Raises:
            NodeError: the node gives no valid answer.
        """
        return self.headers([block_hash])[0]

    def headers(self, hashes: Sequence[bytes | None]) -> list[Header | None]:
        """Return the headers of several blocks.

        Raises:
            NodeError: an answer is missing or wrong.
        """
        asked: list[list[str]] = [[to_hex(each)] if each is not None else [] for each in hashes]
        answers = self._call_many([("chain_getHeader", params) for params in asked])
        found: list[Header | None] = []
        for block_hash, answer in zip(hashes, answers, strict=True):
            header = None if answer is None else self._read(headers.from_json, answer)
            # Some test nodes answer with another block instead of none.
            if header is not None and block_hash is not None and header.hash() != block_hash:
                header = None
            found.append(header)
        return found

    def block_hashes(self, heights: Iterable[int]) -> list[bytes | None]:
        """Return the hashes of the blocks at some heights; None where no block exists yet.

        Raises:
            NodeError: an answer is missing or wrong.
        """
        answers = self._call_many([("chain_getBlockHash", [height]) for height in heights])
        return [None if answer is None else self._hash(answer) for answer in answers]

    def subscribe_heads(self) -> None:
        """Subscribe to best heads; the node announces the current one at once.

        Raises:
            NodeError: the node refused.
        """
        self._heads = self.connection.subscribe("chain_subscribeNewHeads")

    def next_head(self, timeout_s: float) -> Header | None:
        """Return the next announced head, or None if none is announced in time.

        Raises:
            NodeError: the connection broke.
        """
        assert self._heads is not None, "subscribe_heads comes first"
        announced = self.connection.notification(self._heads, timeout_s)
        return None if announced is None else self._read(headers.from_json, announced)

    # Twins

    def twins(self, ids: Iterable[int], at: bytes | None = None) -> Twins:
        """Read several twins, all at one block.

        Args:
            ids: twin ids.
            at: hash of the block; None for the newest.

        Raises:
            NodeError: the node gives no valid answer, or a twin cannot be decoded.
        """
        keys = [storage.twin_key(each) for each in dict.fromkeys(ids)]
        head, values = self._values(keys, at)
        return Twins(head, {each.id: each for each in self._twins(values)})

    def twin_id_of(self, account: bytes, at: bytes | None = None) -> tuple[Head, int | None]:
        """Return the id of an account's twin, and the block at which it was read.

        Raises:
            NodeError: the node gives no valid answer.
        """
        key = storage.twin_id_key(account)
        head, values = self._values([key], at)
        return head, self._read(_u32, values[key]) if key in values else None

    def last_twin_id(self) -> int:
        """Return the id that was assigned last, 0 if there are no twins.

        Raises:
            NodeError: the node gives no valid answer.
        """
        _, values = self._values([storage.LAST_TWIN_ID], None)
        return self._read(_u32, values.get(storage.LAST_TWIN_ID, bytes(4)))

    def page(self, start_key: bytes | None = None, size: int = bounds.PAGE_TWINS) -> Page | None:
        """Return a page of all twins, at the newest block; None after the last page.

        Args:
            start_key: `next_key` of the previous page; None for the first page.
            size: maximum number of twins.

        Raises:
            NodeError: the node gives no valid answer, or a twin cannot be decoded.
        """
        head = self._head_of(None)
        at = to_hex(head.hash)
        # An empty start key means no start key: nodes return the keys after it.
        start = to_hex(start_key) if start_key else None
        answer = self._call("state_getKeysPaged", to_hex(storage.TWINS), size, start, at)
        if not isinstance(answer, list) or len(answer) > size:
            raise NodeError(f"{self.url}: not a list of at most {size} keys")
        if not answer:
            return None
        keys = [self._read(_key, each) for each in answer]
        if sorted(set(keys)) != keys or (start_key and keys[0] <= start_key):
            raise NodeError(f"{self.url}: storage keys out of order")
        _, values = self._values(keys, head.hash)
        if len(values) < len(keys):
            raise NodeError(f"{self.url}: a storage key without a value")
        return Page(head, self._twins(values), keys[-1])

    # Events and transactions

    def changes(self, blocks: Sequence[Header]) -> list[tuple[TwinChange, ...]]:
        """Return the changes of twins in some blocks, in the order of `blocks`.

        Raises:
            StateDiscardedError: the node no longer has the state of one of them.
            BlockUnreadableError: the events of one cannot be decoded.
            NodeError: an answer is missing or wrong.
        """
        from chain.events import twin_changes

        return [twin_changes(value, runtime) for value, runtime in self._events(blocks)]

    def events(self, block_hash: bytes) -> tuple[bytes, Runtime]:
        """Return the raw events of a block, and the runtime that wrote them.

        Raises:
            NodeError: an answer is missing or wrong.
        """
        header = self.header(block_hash)
        if header is None:
            raise NodeError(f"{self.url}: does not know the block")
        return self._events([header])[0]

    @property
    def runtimes(self) -> Runtimes:
        """Metadata of the chain's runtimes."""
        if self._runtimes is None:
            from chain.runtime import Runtimes

            self._runtimes = Runtimes()
        return self._runtimes

    # Reading answers

    def _events(self, blocks: Sequence[Header]) -> list[tuple[bytes, Runtime]]:
        calls: list[tuple[str, Sequence[Any]]] = []
        for block in blocks:
            # A block is written by the runtime that is current after its parent.
            calls.append(("state_getRuntimeVersion", [to_hex(block.parent_hash)]))
            calls.append(("state_getStorage", [to_hex(storage.EVENTS), to_hex(block.hash())]))
        answers = self._call_many(calls)
        events = []
        for block, version, value in zip(blocks, answers[::2], answers[1::2], strict=True):
            raw = _NO_EVENTS if value is None else self._bytes(value, MAX_EVENTS_BYTES)
            events.append((raw, self.runtimes.get(self.connection, version, block.parent_hash)))
        return events

    def _values(self, keys: Sequence[bytes], at: bytes | None) -> tuple[Head, dict[bytes, bytes]]:
        """Return raw storage values, all of one block, and that block."""
        if not keys:
            return self._head_of(at), {}
        values: dict[bytes, bytes] = {}
        for first in range(0, len(keys), bounds.PAGE_TWINS):
            chunk = keys[first : first + bounds.PAGE_TWINS]
            params: list[Any] = [[to_hex(key) for key in chunk]]
            answer = self._call(
                "state_queryStorageAt", *params, *([to_hex(at)] if at is not None else [])
            )
            block_hash, changes = self._change_set(answer, set(chunk))
            if at is not None and block_hash != at:
                raise NodeError(f"{self.url}: read another block than it was asked to")
            at = block_hash
            values |= changes
        return self._head_of(at), values

    def _twins(self, values: dict[bytes, bytes]) -> tuple[Twin, ...]:
        twins = tuple(self._read(twin.decode, value) for value in values.values())
        for key, each in zip(values, twins, strict=True):
            if storage.twin_key(each.id) != key:
                raise NodeError(f"{self.url}: twin {each.id} under the key of another")
        return twins

    def _change_set(self, answer: Any, asked: set[bytes]) -> tuple[bytes, dict[bytes, bytes]]:
        try:
            (block,) = answer
            block_hash, changes = block["block"], [(key, value) for key, value in block["changes"]]
        except (TypeError, KeyError, ValueError):
            raise NodeError(f"{self.url}: not the storage values of one block") from None
        values: dict[bytes, bytes] = {}
        left = set(asked)
        for hex_key, hex_value in changes:
            key = self._read(_key, hex_key)
            if key not in left:
                raise NodeError(f"{self.url}: a storage value nobody asked for")
            left.remove(key)
            if hex_value is not None:
                values[key] = self._bytes(hex_value, bounds.MAX_VALUE_BYTES)
        if left:
            # A node must answer null for an absent value, not omit it.
            raise NodeError(f"{self.url}: {len(left)} storage values are missing in the answer")
        return self._hash(block_hash), values

    def _head_of(self, block_hash: bytes | None) -> Head:
        """Return a block with its height; query the node only if it is not the last one queried."""
        if block_hash is None or self._last_head is None or self._last_head.hash != block_hash:
            header = self.header(block_hash)
            if header is None:
                raise NodeError(f"{self.url}: does not know the block it has just read")
            self._last_head = Head(header.number, header.hash())
        return self._last_head

    def _call(self, method: str, *params: Any) -> Any:
        return self.connection.call(method, params)

    def _call_many(self, calls: Sequence[tuple[str, Sequence[Any]]]) -> list[Any]:
        return self.connection.call_many(calls)

    def _hash(self, answer: Any) -> bytes:
        value = self._bytes(answer, HASH_BYTES)
        if len(value) != HASH_BYTES:
            raise NodeError(f"{self.url}: a hash of {len(value)} bytes")
        return value

    def _bytes(self, answer: Any, max_bytes: int) -> bytes:
        return self._read(lambda text: from_hex("answer", text, max_bytes), answer)

    def _read(self, reader: Callable[[Any], _T], value: Any) -> _T:
        try:
            return reader(value)
        except ChainFormatError as error:
            raise NodeError(f"{self.url}: {error}") from error


def _u32(value: bytes) -> int:
    reader = scale.Reader(value)
    number = reader.u32("number")
    reader.finish("number")
    return number


def _key(value: Any) -> bytes:
    return from_hex("key", value, _MAX_KEY_BYTES)
