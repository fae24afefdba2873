"""Tests of keys against the recorded ones and a second implementation, and damaged keys."""

from __future__ import annotations

import binascii
import contextlib
from typing import Any

import ed25519_zebra
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.lattice.errors import KeyFormatError
from proto.lattice.nkeys import (
    KeyKind,
    KeyPair,
    decode_public,
    decode_seed,
    encode_public,
    encode_seed,
    is_refused_by_peers,
    verify,
)
from tests.proto.lattice.identities import ACTOR, CLUSTER, HOST, VECTORS

RAW = st.binary(min_size=32, max_size=32)
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
SIGNING = [kind for kind in KeyKind if kind is not KeyKind.CURVE]


def slow_text(body: bytes) -> str:
    """Encode as base32 bit by bit, as a second implementation."""
    body += binascii.crc_hqx(body, 0).to_bytes(2, "little")
    bits = "".join(f"{byte:08b}" for byte in body)
    bits += "0" * (-len(bits) % 5)
    return "".join(ALPHABET[int(bits[i : i + 5], 2)] for i in range(0, len(bits), 5))


@pytest.mark.parametrize("entry", VECTORS["keys"], ids=lambda entry: str(entry["name"]))
def test_recorded_keys(entry: dict[str, Any]) -> None:
    kind, raw = decode_public(entry["public"])
    assert (kind.letter, raw.hex()) == (entry["letter"], entry["raw_public_hex"])
    assert encode_public(kind, raw) == entry["public"]
    assert decode_seed(entry["seed"], kind) == (kind, bytes.fromhex(entry["raw_seed_hex"]))
    assert encode_seed(kind, bytes.fromhex(entry["raw_seed_hex"])) == entry["seed"]
    if kind is KeyKind.CURVE:
        with pytest.raises(KeyFormatError, match="does not sign"):
            KeyPair.of_seed(entry["seed"])
        return
    pair = KeyPair.of_seed(entry["seed"], kind)
    assert (pair.public, pair.seed) == (entry["public"], entry["seed"])
    signature = pair.sign(b"abc")
    assert signature.hex() == entry["signature_of_abc_hex"]
    assert verify(pair.public, b"abc", signature)
    assert not verify(pair.public, b"abd", signature)
    assert not verify(pair.public, b"abc", signature[:-1])


def test_keys_of_real_programs() -> None:
    echo = "MBCFOPM6JW2APJLXJD3Z5O4CN7CPYJ2B4FTKLJUR5YR5MITIU7HD3WD5"
    nats = "VADNMSIML2XGO2X4TPIONTIC55R2UUQGPPDZPAVSC2QD7E76CR77SPW7"
    assert decode_public(echo, KeyKind.ACTOR).raw.hex().startswith("44573d9e4db407a5")
    assert decode_public(nats, KeyKind.PROVIDER).raw.hex().startswith("06d6490c5eae676a")


@given(st.sampled_from(list(KeyKind)), RAW)
def test_texts_are_those_of_a_second_implementation(kind: KeyKind, raw: bytes) -> None:
    prefix = kind.value
    assert encode_public(kind, raw) == slow_text(bytes([prefix]) + raw)
    header = (0x90 << 8 | prefix << 3).to_bytes(2, "big")
    assert encode_seed(kind, raw) == slow_text(header + raw)
    assert decode_public(encode_public(kind, raw), kind) == (kind, raw)
    assert decode_seed(encode_seed(kind, raw), kind) == (kind, raw)


@given(st.sampled_from(SIGNING), RAW, st.binary(max_size=100))
def test_signatures_are_those_of_a_second_implementation(
    kind: KeyKind, raw: bytes, data: bytes
) -> None:
    pair = KeyPair(kind, raw)
    secret, public = ed25519_zebra.ed_from_seed(raw)
    assert pair.sign(data) == ed25519_zebra.ed_sign(secret, data)
    assert pair.raw_public == public


@given(st.text(max_size=70) | st.binary(min_size=32, max_size=34).map(slow_text))
def test_any_text_is_a_key_or_refused(text: str) -> None:
    for decode in (decode_public, decode_seed):
        with contextlib.suppress(KeyFormatError):
            assert decode(text)[0] in KeyKind


@given(st.sampled_from([HOST.public, HOST.seed]), st.data())
def test_no_damaged_key_is_accepted(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text) - 1))
    character = data.draw(st.sampled_from(sorted(set(ALPHABET + "a1= ") - {text[at]})))
    damaged = text[:at] + character + text[at + 1 :]
    for decode in (decode_public, decode_seed):
        with pytest.raises(KeyFormatError) as caught:
            decode(damaged)
        assert HOST.seed[4:20] not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "0 characters, expected 56"),
        ("NA", "2 characters"),
        (HOST.public.lower(), "only A-Z and 2-7"),
        (HOST.public[:-1] + "A", "wrong checksum"),
        (slow_text(b"\x08" + bytes(32)), "unknown prefix 0x08"),
        ("x" * 10_000, r"x\.\.\.'"),
        (ACTOR.public, r"actor key \(M\), expected: host key \(N\) or cluster key \(C\)"),
    ],
)
def test_errors_say_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(KeyFormatError, match=says) as caught:
        decode_public(text, KeyKind.HOST, KeyKind.CLUSTER)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("header", [b"\x93\x41", b"\x80\x80", b"\x90\x40"])
def test_seeds_of_other_headers_are_refused(header: bytes) -> None:
    with pytest.raises(KeyFormatError, match="invalid seed"):
        decode_seed(slow_text(header + bytes(32)))


@pytest.mark.parametrize("size", [0, 31, 33])
def test_raw_keys_of_other_lengths_are_refused(size: int) -> None:
    for make in (encode_public, encode_seed, KeyPair):
        with pytest.raises(KeyFormatError, match=f"{size} bytes, expected 32"):
            make(KeyKind.HOST, bytes(size))


def test_a_key_that_peers_refuse_is_never_generated() -> None:
    unlucky = (125_420).to_bytes(32, "big")  # found by trying
    assert is_refused_by_peers(KeyPair(KeyKind.CLUSTER, unlucky).public)
    pair = KeyPair.of_random(KeyKind.CLUSTER, unlucky)
    assert not is_refused_by_peers(pair.public)
    assert pair.public != KeyPair(KeyKind.CLUSTER, unlucky).public
    assert KeyPair.of_random(KeyKind.CLUSTER, bytes(range(32))).public == CLUSTER.public


def test_a_key_that_signs_for_anyone_signs_nothing() -> None:
    weak = encode_public(KeyKind.CLUSTER, b"\x01" + bytes(31))
    assert not verify(weak, b"anything", b"\x01" + bytes(63))


def test_a_pair_shows_no_secret() -> None:
    assert repr(CLUSTER) == f"<KeyPair {CLUSTER.public}>"
