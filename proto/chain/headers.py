"""Block headers: their JSON form, their bytes and their hash.

A node announces headers without their hash. The hash is blake2b-256 of the header in SCALE: `parent
hash, compact number, state root, extrinsics root, digest`. The digest is a vector of items, which
the JSON form has as hex of their SCALE encoding, so this module need not interpret them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from proto.chain import scale
from proto.chain.bounds import HASH_BYTES, MAX_LOG_BYTES, MAX_LOGS, MAX_U32
from proto.chain.errors import BoundError, ChainFormatError, HeaderError

_HEX: Final = re.compile(r"0x(?:[0-9a-fA-F]{2})*")
_NUMBER: Final = re.compile(r"0x[0-9a-fA-F]{1,16}")


def hash256(data: bytes) -> bytes:
    """Return the 32-byte blake2b hash that Substrate uses for blocks, transactions and payloads."""
    return blake2b(data, digest_size=HASH_BYTES).digest()


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a block."""

    parent_hash: bytes
    number: int
    state_root: bytes
    extrinsics_root: bytes
    logs: tuple[bytes, ...] = ()
    """Digest items, each in SCALE encoding."""

    def encode(self) -> bytes:
        """Return the bytes whose hash is the hash of the block.

        Raises:
            ChainFormatError: a field has another size or is above its bound.
        """
        if self.number > MAX_U32:
            raise BoundError("header.number", self.number, MAX_U32, "")
        if len(self.logs) > MAX_LOGS:
            raise BoundError("header.digest.logs", len(self.logs), MAX_LOGS, "items")
        return b"".join(
            (
                scale.fixed("header.parentHash", self.parent_hash, HASH_BYTES),
                scale.compact("header.number", self.number),
                scale.fixed("header.stateRoot", self.state_root, HASH_BYTES),
                scale.fixed("header.extrinsicsRoot", self.extrinsics_root, HASH_BYTES),
                scale.compact("header.digest.logs", len(self.logs)),
                *self.logs,
            )
        )

    def hash(self) -> bytes:
        """Return the hash of the block."""
        return hash256(self.encode())

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form that nodes send."""
        return {
            "parentHash": to_hex(self.parent_hash),
            "number": hex(self.number),
            "stateRoot": to_hex(self.state_root),
            "extrinsicsRoot": to_hex(self.extrinsics_root),
            "digest": {"logs": [to_hex(log) for log in self.logs]},
        }


def from_json(value: object) -> Header:
    """Return the header from the JSON that a node sent.

    Raises:
        HeaderError: not a header; no other exception is raised.
    """
    if not isinstance(value, dict):
        raise HeaderError("header: not a JSON object")
    digest = value.get("digest")
    logs = digest.get("logs") if isinstance(digest, dict) else None
    if not isinstance(logs, list) or len(logs) > MAX_LOGS:
        raise HeaderError(f"header: digest.logs is not a list of at most {MAX_LOGS}")
    number = value.get("number")
    if not isinstance(number, str) or not _NUMBER.fullmatch(number):
        raise HeaderError("header: number is not a hexadecimal number")
    header = Header(
        _hash_field(value, "parentHash"),
        int(number, 16),
        _hash_field(value, "stateRoot"),
        _hash_field(value, "extrinsicsRoot"),
        tuple(_log(log) for log in logs),
    )
    if header.number > MAX_U32:
        raise HeaderError(f"header: number is above {MAX_U32}")
    return header


def to_hex(value: bytes) -> str:
    """Return bytes in the hex form that nodes use."""
    return f"0x{value.hex()}"


def from_hex(field: str, value: object, max_bytes: int) -> bytes:
    """Return the bytes of a hex text from a node.

    Raises:
        ChainFormatError: not 0x and pairs of hexadecimal digits, or more than `max_bytes`.
    """
    if not isinstance(value, str) or not value.startswith("0x"):
        raise ChainFormatError(f"{field}: not text that begins with 0x")
    # Checked before the digits are read, to bound the work.
    if len(value) > 2 + 2 * max_bytes:
        raise BoundError(field, (len(value) - 1) // 2, max_bytes)
    if not _HEX.fullmatch(value):
        raise ChainFormatError(f"{field}: not pairs of hexadecimal digits")
    return bytes.fromhex(value[2:])


def _hash_field(value: dict[Any, Any], name: str) -> bytes:
    raw = _bytes(f"header: {name}", value.get(name), HASH_BYTES)
    if len(raw) != HASH_BYTES:
        raise HeaderError(f"header: {name} has {len(raw)} bytes instead of {HASH_BYTES}")
    return raw


def _log(value: object) -> bytes:
    return _bytes("header: digest.logs", value, MAX_LOG_BYTES)


def _bytes(field: str, value: object, max_bytes: int) -> bytes:
    try:
        return from_hex(field, value, max_bytes)
    except ChainFormatError as error:
        raise HeaderError(str(error)) from None
