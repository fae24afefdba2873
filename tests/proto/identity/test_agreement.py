"""Tests of shared secrets: recorded ones, against another implementation, and bad public keys."""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from proto.identity.agreement import EncryptionKey
from proto.identity.errors import AgreementError, SecretError
from tests.interop.recorded import recorded

KEYS = recorded("keys")
CURVE_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141

scalars = st.integers(1, CURVE_ORDER - 1)


def _key(scalar: int) -> EncryptionKey:
    return EncryptionKey(scalar.to_bytes(32, "big"))


def _x_coordinate(scalar: int, peer_public: bytes) -> bytes:
    """Compute the x coordinate of the common point with OpenSSL, which also keeps leading zeros."""
    peer = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256K1(), peer_public)
    return ec.derive_private_key(scalar, ec.SECP256K1()).exchange(ec.ECDH(), peer)


def test_recorded_public_keys() -> None:
    for key in KEYS:
        assert EncryptionKey.from_secret(key["mnemonic"]).public.hex() == key["pk"]
        assert EncryptionKey.from_secret("0x" + key["secret_hex"]).public.hex() == key["pk"]
        assert EncryptionKey(bytes.fromhex(key["secret_hex"])).public.hex() == key["pk"]


def test_recorded_shared_secrets() -> None:
    entries = recorded("e2e")
    assert len(entries) == 3
    for entry in entries:
        a = EncryptionKey(bytes.fromhex(entry["a_secret"]))
        b = EncryptionKey(bytes.fromhex(entry["b_secret"]))
        assert (a.public.hex(), b.public.hex()) == (entry["a_pk"], entry["b_pk"])
        assert a.shared_secret(b.public).hex() == entry["shared"]
        assert b.shared_secret(a.public).hex() == entry["shared"]


@given(scalars, scalars)
def test_both_sides_agree_with_openssl(one: int, other: int) -> None:
    public = _key(other).public
    expected = sha256(_x_coordinate(one, public)).digest()
    assert _key(one).shared_secret(public) == expected
    assert _key(other).shared_secret(_key(one).public) == expected


def test_leading_zeros_of_the_x_coordinate_count() -> None:
    public = _key(CURVE_ORDER // 3).public
    # One point in 256 has such an x coordinate, so these scalars are certain to contain one.
    scalar, x_coordinate = next(
        (scalar, x_coordinate)
        for scalar in range(1, 2000)
        if (x_coordinate := _x_coordinate(scalar, public))[0] == 0
    )
    assert len(x_coordinate) == 32
    assert _key(scalar).shared_secret(public) == sha256(x_coordinate).digest()


@given(scalars)
def test_the_sign_of_the_point_does_not_count(scalar: int) -> None:
    public = _key(12345).public
    mirrored = bytes([public[0] ^ 1]) + public[1:]
    assert _key(scalar).shared_secret(public) == _key(scalar).shared_secret(mirrored)


def test_a_derivation_path_makes_no_difference() -> None:
    mnemonic = KEYS[0]["mnemonic"]
    assert EncryptionKey.from_secret(mnemonic + "//Alice/soft").public.hex() == KEYS[0]["pk"]


@pytest.mark.parametrize(
    "public",
    [
        b"",
        bytes(33),
        b"\x02" + bytes(32),  # no point has this x coordinate
        b"\x04" + _key(1).public[1:],
        b"\x02" + b"\xff" * 32,  # beyond the field
        _key(1).public[:-1],
        _key(1).public + b"\0",
    ],
)
def test_bad_public_keys(public: bytes) -> None:
    with pytest.raises(AgreementError, match="public key"):
        _key(2).shared_secret(public)


@given(
    st.binary(min_size=33, max_size=33) | st.binary(min_size=32, max_size=32).map(b"\x03".__add__)
)
def test_any_public_key_is_used_or_refused(public: bytes) -> None:
    with suppress(AgreementError):
        assert len(_key(2).shared_secret(public)) == 32


@pytest.mark.parametrize(
    "mini_secret",
    [b"", bytes(31), bytes(33), bytes(32), CURVE_ORDER.to_bytes(32, "big"), b"\xff" * 32],
)
def test_bad_secrets(mini_secret: bytes) -> None:
    with pytest.raises(SecretError):
        EncryptionKey(mini_secret)


def test_the_repr_keeps_the_secret() -> None:
    key = _key(7)
    assert repr(key) == f"<EncryptionKey {key.public.hex()}>"
