"""Tests of secret texts: mnemonics, seeds, paths, and errors that do not repeat the secret."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.identity.errors import SecretError
from proto.identity.seeds import Secret, parse_path, parse_secret
from tests.interop.recorded import recorded

KEYS = recorded("keys")
MNEMONIC = KEYS[0]["mnemonic"]  # a test key
SEED = "0x" + KEYS[0]["secret_hex"]
# A test key of 24 words: entropy of all zero bits.
LONG_MNEMONIC = "abandon " * 23 + "art"


def test_recorded_mnemonics() -> None:
    for key in KEYS:
        assert parse_secret(key["mnemonic"]).mini_secret.hex() == key["secret_hex"]


def test_twenty_four_words() -> None:
    assert len(parse_secret(LONG_MNEMONIC).mini_secret) == 32


@given(st.binary(min_size=32, max_size=32))
def test_seeds(mini_secret: bytes) -> None:
    assert parse_secret("0x" + mini_secret.hex()) == Secret(mini_secret)
    assert parse_secret("0x" + mini_secret.hex().upper() + "\n") == Secret(mini_secret)


def test_white_space_between_words_does_not_count() -> None:
    assert parse_secret("  " + MNEMONIC.replace(" ", "\t\n ") + "\n") == parse_secret(MNEMONIC)


@pytest.mark.parametrize("root", [MNEMONIC, SEED])
@pytest.mark.parametrize("path", ["//Alice", "/soft", "//a//b/c", "//1/2", "//with a space"])
def test_a_path_leaves_the_mini_secret_alone(root: str, path: str) -> None:
    assert parse_secret(root + path) == Secret(parse_secret(root).mini_secret, path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "12 or 24 words or a 0x seed"),
        ("//Alice", "12 or 24 words or a 0x seed"),
        (MNEMONIC + " walk", "12 or 24 words"),
        ("abandon " * 14 + "address", "12 or 24 words"),
        (MNEMONIC.replace("walk", "wall"), "checksum"),
        (MNEMONIC.replace("walk", "qwerty"), "invalid word in phrase with index 11"),
        (MNEMONIC.upper(), "invalid word"),
        (MNEMONIC.replace("a", "á"), "English words"),
        (MNEMONIC + "\udc80", "English words"),
        (SEED[2:], "12 or 24 words or a 0x seed"),
        (SEED[:-1], "0x and 64 hex digits"),
        (SEED + "00", "0x and 64 hex digits"),
        (SEED[:-1] + "g", "0x and 64 hex digits"),
        (SEED.replace("0x", "0X"), "12 or 24 words or a 0x seed"),
        (MNEMONIC + "///password", "password"),
        (MNEMONIC + "//Alice///password", "password"),
        (MNEMONIC + "/", "none of them empty"),
        (MNEMONIC + "//Alice/", "none of them empty"),
        (MNEMONIC + "//" + "a" * 1000, "at most 1024 characters"),
    ],
)
def test_refused_texts(text: str, problem: str) -> None:
    with pytest.raises(SecretError, match=problem) as caught:
        parse_secret(text)
    assert "walk" not in str(caught.value)
    assert SEED[2:10] not in str(caught.value)


@given(st.text(max_size=200) | st.text(alphabet="0x/ab 1").map(SEED.__add__))
def test_any_text_is_a_secret_or_refused(text: str) -> None:
    try:
        assert len(parse_secret(text).mini_secret) == 32
    except SecretError as error:
        assert error.__suppress_context__ or error.__context__ is None


def test_the_repr_keeps_the_secret() -> None:
    shown = repr(parse_secret(SEED + "//hidden"))
    assert "hidden" not in shown
    assert SEED[2:] not in shown
    assert repr(bytes.fromhex(SEED[2:])) not in shown


@pytest.mark.parametrize(
    ("path", "chain_code"),
    [
        ("//Alice", b"\x14Alice"),  # SCALE text: compact length, then the bytes
        ("//5", b"\x05"),  # a number: u64, little endian
        ("//+005", b"\x05"),  # as Rust reads numbers
        ("//256", b"\x00\x01"),
        ("//18446744073709551615", b"\xff" * 8),
        ("//18446744073709551616", b"\x5018446744073709551616"),  # beyond u64: text again
        ("//-1", b"\x08-1"),
        ("//٣", b"\x08" + "٣".encode()),  # a digit of another script, not a number to Rust
        ("//" + "a" * 31, b"\x7c" + b"a" * 31),
    ],
)
def test_chain_codes(path: str, chain_code: bytes) -> None:
    (junction,) = parse_path(path)
    assert junction.hard
    assert junction.chain_code == chain_code.ljust(32, b"\0")


def test_long_names_are_hashed() -> None:
    names = ["a" * 32, "a" * 33, "a" * 63, "a" * 64, "a" * 300]
    codes = {parse_path(f"/{name}")[0].chain_code for name in names}
    assert len(codes) == len(names)
    assert {len(code) for code in codes} == {32}


def test_paths_keep_their_order_and_kind() -> None:
    assert parse_path("") == []
    assert [step.hard for step in parse_path("//a/b//c")] == [True, False, True]
    assert parse_path("//a/b")[1] == parse_path("/b")[0]
