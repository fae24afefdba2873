"""Tests of end-to-end encryption."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.rmb import e2e
from proto.rmb.errors import CipherError

SHARED = bytes(range(32))  # TEST KEY
NONCE = bytes(12)


@given(st.binary(max_size=200), st.binary(min_size=12, max_size=12))
def test_round_trip(plaintext: bytes, nonce: bytes) -> None:
    cipher = e2e.encrypt(SHARED, plaintext, nonce)
    assert cipher.startswith(nonce)
    assert len(cipher) == len(plaintext) + 28
    assert e2e.decrypt(SHARED, cipher) == plaintext


@given(st.data())
def test_any_change_is_noticed(data: st.DataObject) -> None:
    cipher = bytearray(e2e.encrypt(SHARED, b"payload", NONCE))
    cipher[data.draw(st.integers(0, len(cipher) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CipherError):
        e2e.decrypt(SHARED, bytes(cipher))


@given(st.binary(max_size=60))
def test_any_bytes(cipher: bytes) -> None:
    with pytest.raises(CipherError, match=r"^e2e error: invalid cipher data$"):
        e2e.decrypt(SHARED, cipher)


def test_another_secret_does_not_open_it() -> None:
    with pytest.raises(CipherError):
        e2e.decrypt(bytes(32), e2e.encrypt(SHARED, b"payload", NONCE))


def test_a_nonce_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="nonce has 11 bytes"):
        e2e.encrypt(SHARED, b"", bytes(11))
