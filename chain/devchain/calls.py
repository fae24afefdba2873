"""The calls of the runtime: decoding of their arguments, and their effects on the state.

A call is pallet, number, arguments. If an argument is above its bound, or if bytes follow the last
one, the call is undecodable, and a node refuses such a transaction before it is in a block.
Everything else is checked when the block is made, and fails with an error of the pallet.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from chain.devchain.accounts import ReadWrite
from chain.devchain.errors import DispatchFailedError
from chain.devchain.pallets import SYSTEM, TFGRID, TFGRID_ERRORS, TIMESTAMP
from proto.chain import relays, scale, storage, twin
from proto.chain.bounds import (
    MAX_DOCUMENT_HASH_BYTES,
    MAX_DOCUMENT_LINK_BYTES,
    MAX_EXTRINSIC_BYTES,
    MAX_PK_BYTES,
    MAX_RELAY_BYTES,
    MAX_U32,
)
from proto.chain.errors import RelayTextError, ScaleError
from proto.chain.scale import Reader
from proto.chain.twin import Twin

REMARK: Final = bytes([SYSTEM, 0])
SET_TIME: Final = bytes([TIMESTAMP, 0])
CREATE_TWIN: Final = bytes([TFGRID, 17])
UPDATE_TWIN: Final = bytes([TFGRID, 18])
ACCEPT_TERMS: Final = bytes([TFGRID, 25])

TWIN_STORED: Final = bytes([TFGRID, 11])
TWIN_UPDATED: Final = bytes([TFGRID, 12])

NOW: Final = storage.item_key("Timestamp", "Now")

BAD_ORIGIN: Final = b"\2"
_MODULE_ERROR: Final = b"\3"
_LINK: Final = re.compile(rb"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]*")
_HASH: Final = re.compile(rb"[A-Za-z0-9_-]*")
_MS_PER_S: Final = 1000


@dataclass(frozen=True, slots=True)
class Event:
    """An event that a call emits."""

    index: bytes
    """Pallet and event."""

    fields: bytes


Run = Callable[[ReadWrite, bytes], list[Event]]
"""Function that executes a decoded call for the account that signed it."""


@dataclass(frozen=True, slots=True)
class Call:
    """A decoded call."""

    index: bytes
    """Pallet and call."""

    run: Run
    weight: bytes
    """Weight in its DispatchInfo, as in tfchain's runtime 144."""


def decode(data: bytes) -> Call:
    """Decode a call.

    Raises:
        ScaleError: not a call of this runtime, or bytes follow it.
        BoundError: an argument is above its bound.
    """
    reader = Reader(data)
    index = reader.fixed("call", 2)
    known = _CALLS.get(index)
    if known is None:
        raise ScaleError("call", f"unknown pallet {index[0]} or call {index[1]}")
    read, weight = known
    run = read(reader)
    reader.finish("call")
    return Call(index, run, weight)


def module_error(name: str) -> bytes:
    """Return the DispatchError for an error of TfgridModule."""
    return _MODULE_ERROR + bytes([TFGRID]) + TFGRID_ERRORS[name].to_bytes(4, "little")


def put_twin(state: ReadWrite, new: Twin) -> Event:
    """Store a new or changed twin; return the event that announces it."""
    key = storage.twin_key(new.id)
    known = state.get(key) is not None
    value = twin.encode(new)
    state.put(key, value)
    if not known:
        state.put(storage.twin_id_key(new.account), scale.u32("twin.id", new.id))
        last = state.get(storage.LAST_TWIN_ID) or b""
        if new.id > int.from_bytes(last, "little"):
            state.put(storage.LAST_TWIN_ID, scale.u32("twin.id", new.id))
    return Event(TWIN_UPDATED if known else TWIN_STORED, value)


def _read_remark(reader: Reader) -> Run:
    reader.blob("remark", MAX_EXTRINSIC_BYTES)
    return lambda state, account: []


def _read_set_time(reader: Reader) -> Run:
    reader.compact("now", 2**64 - 1)
    return _refuse_signed


def _refuse_signed(state: ReadWrite, account: bytes) -> list[Event]:
    raise DispatchFailedError(BAD_ORIGIN)


def _read_create_twin(reader: Reader) -> Run:
    relay, pk = _read_twin_fields(reader)
    return lambda state, account: _create_twin(state, account, relay, pk)


def _read_update_twin(reader: Reader) -> Run:
    relay, pk = _read_twin_fields(reader)
    return lambda state, account: _update_twin(state, account, relay, pk)


def _read_twin_fields(reader: Reader) -> tuple[bytes | None, bytes | None]:
    relay = reader.option_blob("relay", MAX_RELAY_BYTES)
    return relay, reader.option_blob("pk", MAX_PK_BYTES)


def _read_accept_terms(reader: Reader) -> Run:
    link = reader.blob("document_link", MAX_DOCUMENT_LINK_BYTES)
    document_hash = reader.blob("document_hash", MAX_DOCUMENT_HASH_BYTES)
    return lambda state, account: _accept_terms(state, account, link, document_hash)


def _create_twin(
    state: ReadWrite, account: bytes, relay: bytes | None, pk: bytes | None
) -> list[Event]:
    if state.get(storage.terms_key(account)) is None:
        raise _failed("UserDidNotSignTermsAndConditions")
    if state.get(storage.twin_id_key(account)) is not None:
        raise _failed("TwinWithPubkeyExists")
    _check_relay(relay)
    last = int.from_bytes(state.get(storage.LAST_TWIN_ID) or b"", "little")
    if last >= MAX_U32:
        raise DispatchFailedError(_ARITHMETIC_OVERFLOW)
    return [put_twin(state, Twin(last + 1, account, relay, (), pk))]


def _update_twin(
    state: ReadWrite, account: bytes, relay: bytes | None, pk: bytes | None
) -> list[Event]:
    twin_id = state.get(storage.twin_id_key(account))
    if twin_id is None:
        raise _failed("TwinNotExists")
    stored = state.get(storage.twin_key(int.from_bytes(twin_id, "little")))
    if stored is None:
        raise _failed("TwinNotExists")
    old = twin.decode(stored)
    if old.account != account:
        raise _failed("UnauthorizedToUpdateTwin")
    _check_relay(relay)
    return [put_twin(state, Twin(old.id, account, relay, old.entities, pk))]


def _accept_terms(
    state: ReadWrite, account: bytes, link: bytes, document_hash: bytes
) -> list[Event]:
    for name, value, pattern in (
        ("DocumentLink", link, _LINK),
        ("DocumentHash", document_hash, _HASH),
    ):
        if not value:
            raise _failed(f"{name}InputTooShort")
        if not pattern.fullmatch(value):
            raise _failed(f"Invalid{name}Input")
    key = storage.terms_key(account)
    accepted = Reader(state.get(key) or b"\0")
    count = accepted.compact("terms", MAX_U32, "items")
    now_s = int.from_bytes(state.get(NOW) or b"", "little") // _MS_PER_S
    entry = b"".join(
        (
            account,
            now_s.to_bytes(8, "little"),
            scale.blob("document_link", link, MAX_DOCUMENT_LINK_BYTES),
            scale.blob("document_hash", document_hash, MAX_DOCUMENT_HASH_BYTES),
        )
    )
    state.put(key, scale.compact("terms", count + 1) + accepted.rest() + entry)
    return []


def _check_relay(relay: bytes | None) -> None:
    if relay is None:
        return
    try:
        relays.check(relay)
    except RelayTextError:
        raise _failed("InvalidRelayAddress") from None


def _failed(name: str) -> DispatchFailedError:
    return DispatchFailedError(module_error(name))


_ARITHMETIC_OVERFLOW: Final = b"\x08\x01"

_CALLS: Final[dict[bytes, tuple[Callable[[Reader], Run], bytes]]] = {
    REMARK: (_read_remark, bytes.fromhex("0000")),
    SET_TIME: (_read_set_time, bytes.fromhex("a29d80415517")),
    CREATE_TWIN: (_read_create_twin, bytes.fromhex("a24e467ad139")),
    UPDATE_TWIN: (_read_update_twin, bytes.fromhex("427ab544d53c")),
    ACCEPT_TERMS: (_read_accept_terms, bytes.fromhex("e2bed3415538")),
}
