"""Transactions: extrinsics of version 4, what is signed of them, and their hash.

A signed one is `compact length, 84, 00 account, signature type, signature, era, compact nonce,
compact tip, call`; an unsigned one (the block's own, such as the time) is `compact length, 04,
call`. The signature is over `call, era, compact nonce, compact tip` and what both sides know
anyway: `spec version, transaction version, genesis hash, hash of the era's first block`, hashed
first if longer than 256 bytes. That is the order of the signed extensions of tfchain (spec 144 to
149), of which only the era, the nonce and the tip have bytes of their own.

Calls are bytes here: their numbers come from the metadata. `twin_call` and `terms_call` write the
arguments of the three calls of interest behind a number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from proto.chain import scale
from proto.chain.bounds import (
    ACCOUNT_BYTES,
    HASH_BYTES,
    MAX_BALANCE,
    MAX_DOCUMENT_HASH_BYTES,
    MAX_DOCUMENT_LINK_BYTES,
    MAX_EXTRINSIC_BYTES,
    MAX_NONCE,
    MAX_PK_BYTES,
    MAX_RELAY_BYTES,
    MAX_SIGNED_PLAIN_BYTES,
)
from proto.chain.errors import BoundError, ScaleError
from proto.chain.headers import hash256
from proto.chain.scale import Reader
from proto.identity import signing
from proto.identity.signing import KeyType, SigningKey

SIGNED_EXTENSIONS: Final = (
    *("CheckNonZeroSender", "CheckSpecVersion", "CheckTxVersion", "CheckGenesis"),
    *("CheckMortality", "CheckNonce", "CheckWeight", "ChargeTransactionPayment"),
)
"""What is written and signed here, as a runtime's metadata lists it. Whoever signs for a runtime
with another list makes nothing the chain would take."""

IMMORTAL: Final = b"\0"
"""The era of a transaction that stays good for ever."""

_VERSION: Final = 4
_SIGNED_BIT: Final = 0x80
_ADDRESS_ID: Final = 0
"""MultiAddress::Id: an account follows."""

_SIGNATURE_BYTES: Final = 64
_CALL_INDEX_BYTES: Final = 2
_KEY_TYPES: Final = {0: KeyType.ED25519, 1: KeyType.SR25519}
"""Variants of MultiSignature; 2 is ecdsa, which no twin has."""

_VARIANTS: Final = {key_type: variant for variant, key_type in _KEY_TYPES.items()}


@dataclass(frozen=True, slots=True)
class Chain:
    """What both sides of a signature know without sending it."""

    spec_version: int
    transaction_version: int
    genesis_hash: bytes


@dataclass(frozen=True, slots=True)
class Signed:
    """Who signed a transaction, and how."""

    account: bytes
    key_type: KeyType
    signature: bytes
    """64 bytes."""

    era: bytes
    """One byte `IMMORTAL`, or two."""

    nonce: int
    tip: int


@dataclass(frozen=True, slots=True)
class Extrinsic:
    """A transaction, read."""

    call: bytes
    """Pallet, number, arguments."""

    signed: Signed | None
    """None for one that the block's author put in."""


def decode(data: bytes) -> Extrinsic:
    """Read a transaction, length in front included. Its signature is not checked.

    Raises:
        ScaleError: not a transaction of version 4, or a kind no twin makes.
        BoundError: a field above its bound.
    """
    reader = Reader(data)
    length = reader.compact("extrinsic", MAX_EXTRINSIC_BYTES, "bytes")
    if length != len(data) - reader.offset:
        raise ScaleError("extrinsic", f"length says {length}, not {len(data) - reader.offset}")
    version = reader.u8("extrinsic.version")
    if version & ~_SIGNED_BIT != _VERSION:
        raise ScaleError("extrinsic.version", f"must be {_VERSION}, not {version & ~_SIGNED_BIT}")
    signed = _read_signed(reader) if version & _SIGNED_BIT else None
    call = reader.rest()
    if len(call) < _CALL_INDEX_BYTES:
        raise ScaleError("extrinsic.call", f"{_CALL_INDEX_BYTES} bytes expected")
    return Extrinsic(call, signed)


def encode(extrinsic: Extrinsic) -> bytes:
    """The bytes of a transaction, length in front included.

    Raises:
        ScaleError: a field of another size.
        BoundError: a field above its bound.
    """
    if extrinsic.signed is None:
        body = bytes([_VERSION]) + extrinsic.call
    else:
        signed = extrinsic.signed
        body = b"".join(
            (
                bytes([_VERSION | _SIGNED_BIT, _ADDRESS_ID]),
                scale.fixed("extrinsic.account", signed.account, ACCOUNT_BYTES),
                bytes([_VARIANTS[signed.key_type]]),
                scale.fixed("extrinsic.signature", signed.signature, _SIGNATURE_BYTES),
                _extra(signed.era, signed.nonce, signed.tip),
                extrinsic.call,
            )
        )
    return scale.blob("extrinsic", body, MAX_EXTRINSIC_BYTES)


def signing_payload(
    call: bytes,
    chain: Chain,
    nonce: int,
    tip: int = 0,
    era: bytes = IMMORTAL,
    checkpoint: bytes | None = None,
) -> bytes:
    """The bytes to sign for a call.

    Args:
        call: pallet, number, arguments.
        chain: where it shall be good.
        nonce: how many transactions the account made before.
        tip: paid on top of the fee.
        era: `IMMORTAL`, or the two bytes of a mortal era.
        checkpoint: hash of the first block of a mortal era.

    Raises:
        ScaleError: a field of another size.
        BoundError: a field above its bound.
    """
    checkpoint = chain.genesis_hash if checkpoint is None else checkpoint
    payload = b"".join(
        (
            call,
            _extra(era, nonce, tip),
            scale.u32("spec_version", chain.spec_version),
            scale.u32("transaction_version", chain.transaction_version),
            scale.fixed("genesis_hash", chain.genesis_hash, HASH_BYTES),
            scale.fixed("checkpoint", checkpoint, HASH_BYTES),
        )
    )
    return hash256(payload) if len(payload) > MAX_SIGNED_PLAIN_BYTES else payload


def sign(call: bytes, key: SigningKey, chain: Chain, nonce: int, tip: int = 0) -> bytes:
    """The bytes of an immortal transaction, ready to be sent."""
    signature = key.sign(signing_payload(call, chain, nonce, tip))
    signed = Signed(key.account, key.key_type, signature[1:], IMMORTAL, nonce, tip)
    return encode(Extrinsic(call, signed))


def verify(extrinsic: Extrinsic, chain: Chain, checkpoint: bytes | None = None) -> None:
    """Check the signature of a transaction.

    Raises:
        SignatureError: of `proto.identity`: somebody else signed, or for another chain.
        ScaleError: it is not signed at all.
    """
    signed = extrinsic.signed
    if signed is None:
        raise ScaleError("extrinsic", "is not signed")
    payload = signing_payload(
        extrinsic.call, chain, signed.nonce, signed.tip, signed.era, checkpoint
    )
    signature = bytes([signed.key_type.value]) + signed.signature
    signing.verify(signed.account, payload, signature)


def hash_of(data: bytes) -> bytes:
    """The hash a transaction is known by: of all its bytes, the length in front included."""
    return hash256(data)


def twin_call(index: bytes, relay: bytes | None, pk: bytes | None) -> bytes:
    """create_twin or update_twin, whose arguments are the same.

    Args:
        index: two bytes, pallet and call, from the metadata.
        relay: all relays in one text; None for none.
        pk: encryption key; None for none.

    Raises:
        BoundError: an argument above the chain's bound.
    """
    return b"".join(
        (
            scale.fixed("call", index, _CALL_INDEX_BYTES),
            scale.option_blob("relay", relay, MAX_RELAY_BYTES),
            scale.option_blob("pk", pk, MAX_PK_BYTES),
        )
    )


def terms_call(index: bytes, document_link: bytes, document_hash: bytes) -> bytes:
    """user_accept_tc.

    Raises:
        BoundError: an argument above the chain's bound.
    """
    return b"".join(
        (
            scale.fixed("call", index, _CALL_INDEX_BYTES),
            scale.blob("document_link", document_link, MAX_DOCUMENT_LINK_BYTES),
            scale.blob("document_hash", document_hash, MAX_DOCUMENT_HASH_BYTES),
        )
    )


def _extra(era: bytes, nonce: int, tip: int) -> bytes:
    if nonce > MAX_NONCE:
        raise BoundError("nonce", nonce, MAX_NONCE, "")
    if tip > MAX_BALANCE:
        raise BoundError("tip", tip, MAX_BALANCE, "")
    if era != IMMORTAL and (len(era) != 2 or era.startswith(IMMORTAL)):
        raise ScaleError(
            "era", "must be one zero byte, or two bytes of which the first is not zero"
        )
    return era + scale.compact("nonce", nonce) + scale.compact("tip", tip)


def _read_signed(reader: Reader) -> Signed:
    address = reader.u8("extrinsic.address")
    if address != _ADDRESS_ID:
        raise ScaleError("extrinsic.address", f"kind {address} is not an account")
    account = reader.fixed("extrinsic.account", ACCOUNT_BYTES)
    variant = reader.u8("extrinsic.signature")
    if variant not in _KEY_TYPES:
        raise ScaleError("extrinsic.signature", f"kind {variant} is neither ed25519 nor sr25519")
    signature = reader.fixed("extrinsic.signature", _SIGNATURE_BYTES)
    era = reader.fixed("extrinsic.era", 1)
    if era != IMMORTAL:
        era += reader.fixed("extrinsic.era", 1)
    nonce = reader.compact("extrinsic.nonce", MAX_NONCE)
    tip = reader.compact("extrinsic.tip", MAX_BALANCE)
    return Signed(account, _KEY_TYPES[variant], signature, era, nonce, tip)
