"""Transactions: extrinsics of version 4, their signed payload, and their hash.

A signed extrinsic is `compact length, 84, 00 account, signature type, signature, era, compact
nonce, compact tip, call`; an unsigned one (the block's own, such as the time) is `compact length,
04, call`. The signature covers `call, era, compact nonce, compact tip`, followed by values that
both sides know without sending them: `spec version, transaction version, genesis hash, hash of the
era's first block`. This payload is hashed first if it is longer than 256 bytes. The order is that
of the signed extensions of tfchain (spec 144 to 149), of which only the era, the nonce and the tip
have bytes of their own.

Calls are plain bytes here, because their numbers come from the metadata. `twin_call` and
`terms_call` encode the three calls of interest, given their numbers.
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
"""Signed extensions that this module writes and signs, as a runtime's metadata lists them. A
runtime with another list rejects these transactions."""

IMMORTAL: Final = b"\0"
"""Era of a transaction that never expires."""

_VERSION: Final = 4
_SIGNED_BIT: Final = 0x80
_ADDRESS_ID: Final = 0
"""MultiAddress::Id: an account follows."""

_SIGNATURE_BYTES: Final = 64
_CALL_INDEX_BYTES: Final = 2
_KEY_TYPES: Final = {0: KeyType.ED25519, 1: KeyType.SR25519}
"""Variants of MultiSignature; 2 is ecdsa, which no twin uses."""

_VARIANTS: Final = {key_type: variant for variant, key_type in _KEY_TYPES.items()}


@dataclass(frozen=True, slots=True)
class Chain:
    """Values that both sides of a signature know without sending them."""

    spec_version: int
    transaction_version: int
    genesis_hash: bytes


@dataclass(frozen=True, slots=True)
class Signed:
    """Signer, signature and signed extensions of a transaction."""

    account: bytes
    key_type: KeyType
    signature: bytes
    """64 bytes."""

    era: bytes
    """One byte, `IMMORTAL`, or the two bytes of a mortal era."""

    nonce: int
    tip: int


@dataclass(frozen=True, slots=True)
class Extrinsic:
    """A decoded transaction."""

    call: bytes
    """Pallet, number, arguments."""

    signed: Signed | None
    """None for a transaction that the block's author added."""


def decode(data: bytes) -> Extrinsic:
    """Decode a transaction, including its length prefix, without checking its signature.

    Raises:
        ScaleError: not a transaction of version 4, or of a kind that no twin makes.
        BoundError: a field is above its bound.
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
    """Encode a transaction, including its length prefix.

    Raises:
        ScaleError: a field has another size.
        BoundError: a field is above its bound.
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
    """Return the bytes to sign for a call.

    Args:
        call: pallet, number, arguments.
        chain: chain on which the transaction is to be valid.
        nonce: number of transactions that the account made before.
        tip: amount paid on top of the fee.
        era: `IMMORTAL`, or the two bytes of a mortal era.
        checkpoint: hash of the first block of a mortal era.

    Raises:
        ScaleError: a field has another size.
        BoundError: a field is above its bound.
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
    """Return the bytes of a signed, immortal transaction, ready to be sent."""
    signature = key.sign(signing_payload(call, chain, nonce, tip))
    signed = Signed(key.account, key.key_type, signature[1:], IMMORTAL, nonce, tip)
    return encode(Extrinsic(call, signed))


def verify(extrinsic: Extrinsic, chain: Chain, checkpoint: bytes | None = None) -> None:
    """Check the signature of a transaction.

    Raises:
        SignatureError: from `proto.identity`: another key signed it, or it was signed for another
            chain.
        ScaleError: the transaction is not signed.
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
    """Return the hash that identifies a transaction, over all its bytes including the length
    prefix.
    """
    return hash256(data)


def twin_call(index: bytes, relay: bytes | None, pk: bytes | None) -> bytes:
    """Encode a call of create_twin or update_twin, which take the same arguments.

    Args:
        index: two bytes, pallet and call, from the metadata.
        relay: all relays in one text; None if there are no relays.
        pk: encryption key; None if there is no key.

    Raises:
        BoundError: an argument is above the chain's bound.
    """
    return b"".join(
        (
            scale.fixed("call", index, _CALL_INDEX_BYTES),
            scale.option_blob("relay", relay, MAX_RELAY_BYTES),
            scale.option_blob("pk", pk, MAX_PK_BYTES),
        )
    )


def terms_call(index: bytes, document_link: bytes, document_hash: bytes) -> bytes:
    """Encode a call of user_accept_tc.

    Raises:
        BoundError: an argument is above the chain's bound.
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
