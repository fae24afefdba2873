"""Tests of transactions: what is signed, bounds, and only declared errors for bad input."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.chain import extrinsic
from proto.chain.errors import BoundError, ChainFormatError, ScaleError
from proto.chain.extrinsic import Chain, Extrinsic, Signed
from proto.identity.errors import SignatureError
from proto.identity.signing import KeyType, SigningKey
from tests.proto.chain import strategies

CHAIN = Chain(149, 2, bytes(range(32)))
KEYS = [SigningKey.from_mini_secret(bytes(31) + b"\1", key_type) for key_type in KeyType]

signed = st.builds(
    Signed,
    strategies.accounts,
    st.sampled_from(KeyType),
    st.binary(min_size=64, max_size=64),
    st.just(extrinsic.IMMORTAL) | st.binary(min_size=2, max_size=2).filter(lambda era: era[0]),
    strategies.ids,
    st.integers(0, 2**128 - 1),
)
extrinsics = st.builds(Extrinsic, st.binary(min_size=2, max_size=300), st.none() | signed)


@given(extrinsics)
def test_transactions_round_trip(value: Extrinsic) -> None:
    assert extrinsic.decode(extrinsic.encode(value)) == value


@given(st.binary(max_size=200), extrinsics, st.integers(0, 200))
def test_random_bytes_are_a_transaction_or_the_declared_error(
    data: bytes, value: Extrinsic, place: int
) -> None:
    whole = extrinsic.encode(value)
    for damaged in (data, whole[:place] + data[:1] + whole[place + 1 :], whole[:place]):
        try:
            read = extrinsic.decode(damaged)
        except ChainFormatError:
            continue
        assert extrinsic.encode(read) == damaged


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.key_type.name)
@pytest.mark.parametrize("size_bytes", [2, 200, 2000])
def test_a_signature_fits_its_chain_its_nonce_and_its_call(
    key: SigningKey, size_bytes: int
) -> None:
    read = extrinsic.decode(extrinsic.sign(bytes(size_bytes), key, CHAIN, nonce=7))
    extrinsic.verify(read, CHAIN)
    assert read.signed is not None
    assert (read.signed.nonce, read.signed.tip, read.signed.era) == (7, 0, extrinsic.IMMORTAL)
    wrong = [
        (read, replace(CHAIN, spec_version=150)),
        (read, replace(CHAIN, genesis_hash=bytes(32))),
        (replace(read, call=bytes(size_bytes + 1)), CHAIN),
        (replace(read, signed=replace(read.signed, nonce=8)), CHAIN),
        (replace(read, signed=replace(read.signed, tip=1)), CHAIN),
    ]
    for other, chain in wrong:
        with pytest.raises(SignatureError):
            extrinsic.verify(other, chain)


def test_a_payload_is_signed_plain_up_to_256_bytes() -> None:
    extra = 1 + 1 + 1 + 4 + 4 + 32 + 32
    plain = extrinsic.signing_payload(bytes(256 - extra), CHAIN, nonce=0)
    hashed = extrinsic.signing_payload(bytes(257 - extra), CHAIN, nonce=0)
    assert len(plain) == 256
    assert hashed == blake2b(bytes(1) + plain, digest_size=32).digest()


def test_a_mortal_one_is_good_from_its_checkpoint() -> None:
    mortal = extrinsic.signing_payload(b"\0\0", CHAIN, 0, era=b"\xe5\2", checkpoint=bytes(32))
    assert mortal[2:4] == b"\xe5\2"
    assert mortal.endswith(bytes(32))


@pytest.mark.parametrize(
    ("hexadecimal", "problem"),
    [
        ("", "extrinsic: 1 bytes expected, 0 left"),
        ("0c04", "length says 3, not 1"),
        ("0c050000", r"extrinsic\.version: must be 4, not 5"),
        ("0804ff", r"extrinsic\.call: 2 bytes expected"),
        ("108401" + "00" * 2, r"extrinsic\.address: kind 1 is not an account"),
        ("8c8400" + "00" * 32 + "02", r"extrinsic\.signature: kind 2 is neither"),
    ],
)
def test_problems_are_named(hexadecimal: str, problem: str) -> None:
    with pytest.raises(ScaleError, match=problem):
        extrinsic.decode(bytes.fromhex(hexadecimal))


def test_bounds() -> None:
    with pytest.raises(BoundError, match="nonce"):
        extrinsic.sign(b"\0\0", KEYS[0], CHAIN, nonce=2**32)
    with pytest.raises(BoundError, match="tip"):
        extrinsic.sign(b"\0\0", KEYS[0], CHAIN, nonce=0, tip=2**128)
    for era in (b"", b"\1", b"\0\1", b"\1\2\3"):
        with pytest.raises(ScaleError, match="era"):
            extrinsic.signing_payload(b"\0\0", CHAIN, 0, era=era)
    with pytest.raises(BoundError, match="relay"):
        extrinsic.twin_call(b"\x19\x12", bytes(1025), None)
    with pytest.raises(BoundError, match="document_hash"):
        extrinsic.terms_call(b"\x19\x19", b"a", bytes(51))
    with pytest.raises(BoundError, match="extrinsic"):
        extrinsic.encode(Extrinsic(bytes(5 * 1024 * 1024), None))
    with pytest.raises(ScaleError, match="is not signed"):
        extrinsic.verify(Extrinsic(b"\0\0", None), CHAIN)
