"""What the chain's runtime says about itself: the numbers of calls and events, the names of errors,
and the types of all events.

The metadata is read by substrate-interface, once for each version of the runtime, which takes some
tenths of a second. Importing the library takes a whole one; it happens when a `Runtimes` is made,
so that no call's time limit has to pay for it.
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
"""Runtimes kept; there are two at most around an upgrade, and each takes some megabytes."""


class Record(NamedTuple):
    """One event of a block."""

    offset: int
    """Where it begins in the value of System.Events."""

    extrinsic: int | None
    """Which transaction of the block caused it."""

    pallet: str
    name: str
    attributes: Any
    """Its fields as substrate-interface shows them: not for bytes, which it may turn into text."""


class Runtime:
    """One version of the runtime.

    Attributes:
        spec_version: which.
        transaction_version: part of what is signed.
        signed_extensions: names of what a transaction carries and signs beside its call, in order.
    """

    def __init__(self, connection: Connection, state: bytes, version: Versions) -> None:
        """Reads the metadata.

        Args:
            connection: to a node.
            state: hash of a block whose state has this runtime.
            version: what the node says it is.

        Raises:
            NodeError: the node did not answer, or with something that is no metadata.
        """
        from substrateinterface import SubstrateInterface

        self.spec_version = version.spec
        self.transaction_version = version.transaction
        try:
            # What `init_runtime` does, but for a state we name: it would take the one before.
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
        # A library of a hundred thousand lines against bytes of a stranger: anything may come.
        except Exception as error:
            text = shortened(f"{type(error).__name__}: {error}")
            raise NodeError(f"{connection.url}: unreadable metadata: {text}") from error
        self._metadata = substrate.metadata
        self._types = substrate.runtime_config
        # Decoding goes through tables of the library that nobody promises are safe for threads.
        self._lock = threading.Lock()

    def call_index(self, pallet: str, name: str) -> bytes:
        """The two bytes a call begins with.

        Raises:
            NodeError: this runtime has no such call.
        """
        index = self._index(pallet, "calls", name)
        if index is None:
            raise NodeError(f"runtime {self.spec_version} has no call {pallet}.{name}")
        return index

    def event_index(self, pallet: str, name: str) -> bytes | None:
        """The two bytes an event begins with, None if this runtime has no such event."""
        return self._index(pallet, "events", name)

    def error_name(self, pallet_index: int, error_index: int) -> str:
        """The name of an error a call ended with, numbers if there is no name."""
        number = (pallet_index, error_index)
        return self._error_names.get(number) or f"error {error_index} of pallet {pallet_index}"

    def records(self, value: bytes) -> Iterator[Record]:
        """All events of a block, in order.

        Args:
            value: of System.Events at that block, which the runtime of its parent wrote.

        Raises:
            BlockUnreadableError: it does not decode.
        """
        from scalecodec.base import ScaleBytes

        try:
            # The library believes any number, and reads zeros behind the end of the bytes.
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
    """What identifies a runtime."""

    spec: int
    transaction: int


class Runtimes:
    """The versions met so far; may be shared by threads."""

    def __init__(self) -> None:
        """Imports substrate-interface."""
        importlib.import_module("substrateinterface")
        self._known: dict[Versions, Runtime] = {}
        self._lock = threading.Lock()

    def get(self, connection: Connection, answer: Any, state: bytes) -> Runtime:
        """The runtime of a state.

        Args:
            connection: to a node that has it.
            answer: of state_getRuntimeVersion for it.
            state: hash of the block that left it.

        Raises:
            NodeError: the node did not answer, or with something that is no metadata.
        """
        version = _versions(connection, answer)
        with self._lock:
            runtime = self._known.pop(version, None)
            if runtime is None:
                runtime = Runtime(connection, state, version)
            # The newest is the last.
            self._known[version] = runtime
            while len(self._known) > _KEPT_VERSIONS:
                del self._known[next(iter(self._known))]
        return runtime


def _error_names(metadata: Any) -> dict[tuple[int, int], str]:
    """Names of errors, by the numbers of their pallet and their own."""
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
