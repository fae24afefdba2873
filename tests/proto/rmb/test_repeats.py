"""The memory of messages that were here before."""

from __future__ import annotations

import pytest

from proto.rmb.repeats import Repeats

SOURCE = (7, None)


def seen(repeats: Repeats, *, now: int = 0, deadline: int = 100, **changed: object) -> bool:
    fields = {"source": SOURCE, "kind": "response", "uid": "u", "signature": b"s", **changed}
    return repeats.seen(**fields, deadline=deadline, now=now)  # type: ignore[arg-type]


def test_a_message_is_seen_once() -> None:
    repeats = Repeats()
    assert not seen(repeats)
    assert seen(repeats)
    assert seen(repeats, now=99)


@pytest.mark.parametrize(
    "changed",
    [
        {"source": (7, "")},
        {"source": (8, None)},
        {"kind": "error"},
        {"uid": "v"},
        {"signature": b"t"},
    ],
)
def test_whatever_differs_is_another_message(changed: dict[str, object]) -> None:
    repeats = Repeats()
    assert not seen(repeats)
    assert not seen(repeats, **changed)


def test_a_message_is_forgotten_when_it_expires() -> None:
    repeats = Repeats()
    assert not seen(repeats, deadline=10)
    assert not seen(repeats, deadline=20, now=10)
    assert seen(repeats, now=11)
    assert not seen(repeats, uid="other", now=30)
    assert len(repeats) == 1


def test_an_expired_one_behind_one_that_lives_on_is_remembered_anew() -> None:
    repeats = Repeats()
    assert not seen(repeats, uid="long", deadline=100)
    assert not seen(repeats, uid="short", deadline=10)
    assert not seen(repeats, uid="short", deadline=50, now=10)
    assert seen(repeats, uid="short", now=11)
    assert seen(repeats, uid="long", now=11)
    assert len(repeats) == 2


def test_the_newest_push_out_the_oldest() -> None:
    repeats = Repeats(capacity=2)
    for uid in "abc":
        assert not seen(repeats, uid=uid)
    assert len(repeats) == 2
    assert seen(repeats, uid="b") and seen(repeats, uid="c")
    assert not seen(repeats, uid="a")


def test_a_memory_holds_something() -> None:
    with pytest.raises(ValueError, match="capacity"):
        Repeats(capacity=0)
