"""Signatures: recorded keys, derivation, and everything that must not verify."""

from __future__ import annotations

import ed25519_zebra
import pytest
import sr25519
from hypothesis import given
from hypothesis import strategies as st

from proto.identity import signing, ss58
from proto.identity.errors import SecretError, SignatureError
from proto.identity.seeds import parse_path
from proto.identity.signing import KeyType, SigningKey, verify
from tests.interop.recorded import recorded

KEYS = recorded("keys")
MNEMONIC = KEYS[0]["mnemonic"]  # Substrate's public development phrase
SEED = "0x" + KEYS[0]["secret_hex"]

key_types = st.sampled_from(KeyType)
mini_secrets = st.binary(min_size=32, max_size=32)


def test_recorded_accounts() -> None:
    for key in KEYS:
        mini_secret = bytes.fromhex(key["secret_hex"])
        for key_type, field in [(KeyType.SR25519, "sr25519"), (KeyType.ED25519, "ed25519")]:
            account = bytes.fromhex(key[field])
            assert SigningKey.from_secret(key["mnemonic"], key_type).account == account
            assert SigningKey.from_secret("0x" + key["secret_hex"], key_type).account == account
            assert SigningKey.from_mini_secret(mini_secret, key_type).account == account


def test_sr25519_is_the_default() -> None:
    assert SigningKey.from_secret(MNEMONIC).key_type is KeyType.SR25519
    assert SigningKey.from_mini_secret(bytes(32)).key_type is KeyType.SR25519


@given(mini_secrets, key_types, st.binary(max_size=200))
def test_round_trip(mini_secret: bytes, key_type: KeyType, message: bytes) -> None:
    key = SigningKey.from_mini_secret(mini_secret, key_type)
    signature = key.sign(message)
    assert len(signature) == 65
    assert signature[0] == key_type.value
    verify(key.account, message, signature)
    with pytest.raises(SignatureError, match="verification failed"):
        verify(key.account, message + b".", signature)
    with pytest.raises(SignatureError, match="verification failed"):
        verify(SigningKey.from_mini_secret(b"\x01" * 32).account, message, signature)


@given(key_types, st.integers(8, 65 * 8 - 1))
def test_a_changed_bit_is_noticed(key_type: KeyType, bit: int) -> None:
    key = SigningKey.from_secret(SEED, key_type)
    signature = bytearray(key.sign(b"message"))
    signature[bit // 8] ^= 1 << bit % 8
    with pytest.raises(SignatureError, match=f"{key_type.name.lower()} signature verification"):
        verify(key.account, b"message", bytes(signature))


@pytest.mark.parametrize("size_bytes", [0, 1, 64, 66])
def test_length_is_checked_first(size_bytes: int) -> None:
    with pytest.raises(SignatureError) as caught:
        verify(bytes(32), b"", bytes(size_bytes))
    assert str(caught.value) == f"invalid signature length, expected: 65, found: {size_bytes}"


def test_texts_are_the_ones_peers_show() -> None:
    key = SigningKey.from_secret(SEED)
    ed25519_label, unknown_label = b"e" + key.sign(b"m")[1:], b"x" + key.sign(b"m")[1:]
    for signature, text in [
        (key.sign(b"n"), "sr25519 signature verification failed"),
        (ed25519_label, "ed25519 signature verification failed"),
        (unknown_label, "invalid signature type, expected: 0x65 or 0x73, found: 0x78"),
    ]:
        with pytest.raises(SignatureError) as caught:
            verify(key.account, b"m", signature)
        assert str(caught.value) == text


@pytest.mark.parametrize("size_bytes", [0, 31, 33])
def test_an_account_has_32_bytes(size_bytes: int) -> None:
    signature = SigningKey.from_secret(SEED).sign(b"m")
    with pytest.raises(SignatureError, match="account length"):
        verify(bytes(size_bytes), b"m", signature)


@given(mini_secrets, st.binary(max_size=100), st.binary(min_size=64, max_size=64), key_types)
def test_any_bytes_are_refused(
    account: bytes, message: bytes, signature: bytes, key_type: KeyType
) -> None:
    with pytest.raises(SignatureError):
        verify(account, message, bytes([key_type.value]) + signature)


def _small_order_accounts() -> list[bytes]:
    return [
        (ordinate | sign << 255).to_bytes(32, "little")
        for ordinate in signing._SMALL_ORDER_ORDINATES
        for sign in (0, 1)
    ]


def test_ed25519_accounts_that_everybody_could_sign_for() -> None:
    forged = b"\x01" + bytes(63)  # the neutral point and a zero scalar
    accepted = [
        account
        for account in _small_order_accounts()
        if ed25519_zebra.ed_verify(forged, b"m", account)
    ]
    assert bytes(32) in accepted
    assert len(accepted) > 8  # the scheme itself does let them pass
    for account in _small_order_accounts():
        with pytest.raises(SignatureError, match="ed25519 signature verification failed"):
            verify(account, b"m", b"e" + forged)


@pytest.mark.parametrize(
    ("path", "address"),
    [
        # Development accounts that every Substrate tool knows.
        ("//Alice", "5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQY"),
        ("//Bob", "5FHneW46xGXgs5mUiveU4sbTyGBzmstUspZC92UhjJM694ty"),
        ("//Alice//stash", "5GNJqTPyNqANBkUVMN1LPPrxXnFouWXoe2wNSmmEoLctxiZY"),
    ],
)
@pytest.mark.parametrize("root", [MNEMONIC, SEED])
def test_hard_derivation(root: str, path: str, address: str) -> None:
    assert ss58.encode(SigningKey.from_secret(root + path).account) == address


def test_soft_derivation_is_what_the_public_key_alone_gives() -> None:
    parent = SigningKey.from_secret(MNEMONIC + "//Alice")
    (step,) = parse_path("/soft")
    _, expected = sr25519.derive_pubkey((step.chain_code, parent.account), b"")
    assert SigningKey.from_secret(MNEMONIC + "//Alice/soft").account == expected


@pytest.mark.parametrize("path", ["//hard", "/soft", "//hard/soft//7"])
def test_derived_keys_sign(path: str) -> None:
    key = SigningKey.from_secret(MNEMONIC + path)
    assert key.account != SigningKey.from_secret(MNEMONIC).account
    assert key.account == SigningKey.from_secret(MNEMONIC + path).account
    verify(key.account, b"message", key.sign(b"message"))


@pytest.mark.parametrize("path", ["//hard", "/soft"])
def test_no_derivation_for_ed25519(path: str) -> None:
    with pytest.raises(SecretError, match="derivation paths are for sr25519 keys only"):
        SigningKey.from_secret(MNEMONIC + path, KeyType.ED25519)


@pytest.mark.parametrize("key_type", KeyType)
@pytest.mark.parametrize("size_bytes", [0, 31, 33, 64])
def test_a_mini_secret_has_32_bytes(size_bytes: int, key_type: KeyType) -> None:
    with pytest.raises(SecretError, match="32 bytes"):
        SigningKey.from_mini_secret(bytes(size_bytes), key_type)


@pytest.mark.parametrize("key_type", KeyType)
def test_the_repr_keeps_the_secret(key_type: KeyType) -> None:
    key = SigningKey.from_secret(SEED, key_type)
    assert repr(key) == f"<SigningKey {key_type.name} {key.account.hex()}>"
