"""Tests of relay texts: which ones the chain accepts (checked on the real runtime), and parsing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.chain import relays
from proto.chain.errors import BoundError, ChainFormatError, RelayTextError
from tests.proto.chain import strategies

TAKEN = [
    *("r1.example.com", "r1.example.com_r2.example.com_r3.example.com", "localhost"),
    *("127.0.0.1", "_", "a_", "a", "-", "UPPER.example", "aa.b.c", "aa.b", "__", "a_.b"),
    # To the chain the whole text is one name, so a one-letter label may follow the separator.
    *("r1.example.com_r.example.com", "a" * 1024),
]
REFUSED = [
    *("", ".", "..", "r.example.com", ".example.com", "example.com.", "ex..ample", "a.b", "_.a"),
    *("127.0.0.1:8080", "https://example.com", "ws:/example", "[::1]", "a b", "a\n", "exämple"),
    *("a%2e", "a,b", "a\0"),
]


@pytest.mark.parametrize("text", TAKEN, ids=lambda text: text[:40])
def test_taken(text: str) -> None:
    relays.check(text.encode())


@pytest.mark.parametrize("text", REFUSED, ids=repr)
def test_refused(text: str) -> None:
    with pytest.raises(RelayTextError, match=r"^relay: "):
        relays.check(text.encode())


def test_too_long() -> None:
    with pytest.raises(BoundError, match="relay has 1025 bytes, at most 1024 is allowed"):
        relays.check(b"a" * 1025)


def _walk(text: bytes) -> bool:
    """Check a relay text as the chain does: compare each dot with the previous dot, or with 0."""
    if not text or text[-1:] == b".":
        return False
    last = 0
    for place, character in enumerate(text):
        if character == ord("."):
            if place == 0 or place - last == 1:
                return False
            last = place
        elif not (chr(character).isascii() and (chr(character).isalnum() or character in b"-_")):
            return False
    return True


@given(strategies.relay_texts | st.text("a.").map(str.encode))
def test_agrees_with_the_chains_walk(text: bytes) -> None:
    try:
        relays.check(text)
    except ChainFormatError:
        assert not _walk(text)
    else:
        assert _walk(text)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (None, ()),
        (b"", ("",)),
        (b"_", ("",)),
        (b"b_a", ("a", "b")),
        (b"a_a", ("a",)),
        (b"a_", ("", "a")),
        (b"\xff_a", ("a", "\N{REPLACEMENT CHARACTER}")),
    ],
)
def test_split(text: bytes | None, names: tuple[str, ...]) -> None:
    assert relays.split(text) == names


@given(strategies.relay_texts)
def test_joining_what_was_split_names_the_same_relays(text: bytes) -> None:
    names = relays.split(text)
    assert relays.split(relays.join(names)) == names
