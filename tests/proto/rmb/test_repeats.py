"""Tests of the memory that recognises repeated messages."""

from __future__ import annotations

import pytest

from proto.rmb.repeats import Repeats


def seen(repeats: Repeats, signature: bytes = b"s", *, now: int = 0, deadline: int = 100) -> bool:
    return repeats.seen(signature, deadline, now)


def test_a_message_is_seen_once() -> None:
    repeats = Repeats()
    assert not seen(repeats)
    assert seen(repeats)
    assert seen(repeats, now=99)


def test_what_is_signed_anew_is_another_message() -> None:
    repeats = Repeats()
    assert not seen(repeats)
    assert not seen(repeats, b"t")


def test_a_message_is_forgotten_when_it_expires() -> None:
    repeats = Repeats()
    assert not seen(repeats, deadline=10)
    assert not seen(repeats, deadline=20, now=10)
    assert seen(repeats, now=11)
    assert not seen(repeats, b"other", now=30)
    assert len(repeats) == 1


def test_an_expired_one_behind_one_that_lives_on_is_remembered_anew() -> None:
    repeats = Repeats()
    assert not seen(repeats, b"long", deadline=100)
    assert not seen(repeats, b"short", deadline=10)
    assert not seen(repeats, b"short", deadline=50, now=10)
    assert seen(repeats, b"short", now=11)
    assert seen(repeats, b"long", now=11)
    assert len(repeats) == 2


def test_the_newest_push_out_the_oldest() -> None:
    repeats = Repeats(capacity=2)
    for signature in (b"a", b"b", b"c"):
        assert not seen(repeats, signature)
    assert len(repeats) == 2
    assert seen(repeats, b"b") and seen(repeats, b"c")
    assert not seen(repeats, b"a")


def test_a_memory_holds_something() -> None:
    with pytest.raises(ValueError, match="capacity"):
        Repeats(capacity=0)
