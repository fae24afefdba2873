"""Tests of signatures: recorded keys, derivation, and everything that must not verify."""

from __future__ import annotations

import ed25519_zebra
import pytest
import sr25519
from hypothesis import given
from hypothesis import strategies as st

from proto.identity import ss58
from proto.identity.accounts import WEAK_ACCOUNTS
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


def test_accounts_that_anybody_could_sign_for() -> None:
    identity = b"\x01" + bytes(63)  # the neutral element and a zero scalar
    marked = bytes(63) + b"\x80"  # the same for sr25519, which marks its signatures
    assert sr25519.verify(marked, b"m", bytes(32)), "the scheme itself accepts it"
    accepted = [each for each in WEAK_ACCOUNTS if ed25519_zebra.ed_verify(identity, b"m", each)]
    assert len(accepted) > 8, "and the other scheme as well"
    for account in sorted(WEAK_ACCOUNTS):
        for forged in (b"s" + marked, b"e" + identity):
            with pytest.raises(SignatureError, match="anybody can sign for this account"):
                verify(account, b"m", forged)


def test_weak_accounts_are_all_points_of_small_order() -> None:
    """The weak accounts are all small-order points, with either sign bit, in every 255-bit form."""
    prime = 2**255 - 19
    order_8 = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
    ordinates = {0, 1, prime - 1, order_8, prime - order_8}
    written = {each for y in ordinates for each in (y, y + prime) if each < 2**255}
    both_signs = {each | sign << 255 for each in written for sign in (0, 1)}
    assert {each.to_bytes(32, "little") for each in both_signs} == WEAK_ACCOUNTS


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
