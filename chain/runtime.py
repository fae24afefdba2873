"""Metadata of the chain's runtime: numbers of calls and events, names of errors, types of events.

The metadata is parsed by substrate-interface, once for each version of the runtime, which takes
some tenths of a second. Importing the library takes a whole second; it happens when a `Runtimes` is
created, so that it does not count against the time-out of a call.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from chain.errors import BlockUnreadableError, ChainError, NodeError, shortened
from chain.rpc import Connection, TextSocket
from proto.chain.bounds import MAX_U32
from proto.chain.events import count
from proto.chain.headers import to_hex

_KEPT_VERSIONS: Final = 4
"""Number of cached runtimes; there are at most two around an upgrade, and each takes some
megabytes."""


class Record(NamedTuple):
    """One event of a block."""

    offset: int
    """Position at which it begins in the value of System.Events."""

    extrinsic: int | None
    """Number of the transaction in the block that caused it."""

    pallet: str
    name: str
    attributes: Any
    """Fields as substrate-interface presents them. Do not use them for bytes, which it may turn
    into text."""


class Runtime:
    """One version of the runtime.

    Attributes:
        spec_version: number of the version.
        transaction_version: version of transactions, which is part of what is signed.
        signed_extensions: names of what a transaction contains and signs besides its call, in
            order.
    """

    def __init__(self, connection: Connection, state: bytes, version: Versions) -> None:
        """Read the metadata.

        Args:
            connection: connection to a node.
            state: hash of a block whose state has this runtime.
            version: versions that the node reports.

        Raises:
            NodeError: the node did not answer, or the answer is not metadata.
        """
        from substrateinterface import SubstrateInterface

        self.spec_version = version.spec
        self.transaction_version = version.transaction
        try:
            # The same as `init_runtime`, but for the given state: it would use the one before.
            substrate = SubstrateInterface(
                websocket=TextSocket(connection), auto_discover=False, use_remote_preset=False
            )
            substrate.metadata = substrate.get_block_metadata(to_hex(state))
            substrate.reload_type_registry(use_remote_preset=False, auto_discover=False)
            substrate.runtime_config.add_portable_registry(substrate.metadata)
            events = substrate.metadata.get_metadata_pallet("System").get_storage_function("Events")
            self._events_type = events.get_value_type_string()
            self.signed_extensions = tuple(substrate.metadata.get_signed_extensions())
            self._error_names = _error_names(substrate.metadata)
        except ChainError:
            raise
        # A large library parses untrusted bytes here, and may raise anything.
        except Exception as error:
            text = shortened(f"{type(error).__name__}: {error}")
            raise NodeError(f"{connection.url}: unreadable metadata: {text}") from error
        self._metadata = substrate.metadata
        self._types = substrate.runtime_config
        # Decoding uses tables of the library that are not documented to be thread-safe.
        self._lock = threading.Lock()

    def call_index(self, pallet: str, name: str) -> bytes:
        """Return the two bytes with which a call begins.

        Raises:
            NodeError: this runtime has no such call.
        """
        index = self._index(pallet, "calls", name)
        if index is None:
            raise NodeError(f"runtime {self.spec_version} has no call {pallet}.{name}")
        return index

    def event_index(self, pallet: str, name: str) -> bytes | None:
        """Return the two bytes with which an event begins, or None if this runtime has no such
        event.
        """
        return self._index(pallet, "events", name)

    def error_name(self, pallet_index: int, error_index: int) -> str:
        """Return the name of the error with which a call failed, or its numbers if it has
        no name.
        """
        number = (pallet_index, error_index)
        return self._error_names.get(number) or f"error {error_index} of pallet {pallet_index}"

    def records(self, value: bytes) -> Iterator[Record]:
        """Generate all events of a block, in order.

        Args:
            value: System.Events at that block, which the runtime of its parent wrote.

        Raises:
            BlockUnreadableError: the events cannot be decoded.
        """
        from scalecodec.base import ScaleBytes

        try:
            # The library accepts any number of records, and reads zeros beyond the end of the
            # bytes.
            count(value)
            with self._lock:
                events = self._types.create_scale_object(self._events_type, ScaleBytes(value))
                events.decode()
            for each in events.elements:
                event = each.value["event"]
                yield Record(
                    each.data_start_offset,
                    each.value["extrinsic_idx"],
                    event["module_id"],
                    event["event_id"],
                    event["attributes"],
                )
        except Exception as error:
            text = shortened(f"{type(error).__name__}: {error}")
            raise BlockUnreadableError(f"events of a block: {text}") from error

    def _index(self, pallet_name: str, kind: str, name: str) -> bytes | None:
        for pallet in self._metadata.pallets:
            if pallet.name == pallet_name:
                for each in getattr(pallet, kind) or ():
                    if each.name == name:
                        return bytes([pallet.value["index"], each.value["index"]])
        return None


class Versions(NamedTuple):
    """Versions that identify a runtime."""

    spec: int
    transaction: int


class Runtimes:
    """Cache of the runtime versions seen so far; may be shared by threads."""

    def __init__(self) -> None:
        """Import substrate-interface."""
        importlib.import_module("substrateinterface")
        self._known: dict[Versions, Runtime] = {}
        self._lock = threading.Lock()

    def get(self, connection: Connection, answer: Any, state: bytes) -> Runtime:
        """Return the runtime of a state.

        Args:
            connection: connection to a node that has the state.
            answer: the node's answer to state_getRuntimeVersion for it.
            state: hash of the block after which the state is taken.

        Raises:
            NodeError: the node did not answer, or the answer is not metadata.
        """
        version = _versions(connection, answer)
        with self._lock:
            runtime = self._known.pop(version, None)
            if runtime is None:
                runtime = Runtime(connection, state, version)
            # The most recently used runtime is the last.
            self._known[version] = runtime
            while len(self._known) > _KEPT_VERSIONS:
                del self._known[next(iter(self._known))]
        return runtime


def _error_names(metadata: Any) -> dict[tuple[int, int], str]:
    """Return the names of errors by the numbers of pallet and error."""
    return {
        (pallet.value["index"], error.value["index"]): error.value["name"]
        for pallet in metadata.pallets
        for error in pallet.errors or ()
    }


def _versions(connection: Connection, answer: Any) -> Versions:
    if isinstance(answer, dict):
        match answer.get("specVersion"), answer.get("transactionVersion"):
            case int(spec), int(transaction) if max(spec, transaction) <= MAX_U32:
                return Versions(spec, transaction)
    raise NodeError(f"{connection.url}: no version of a runtime")
