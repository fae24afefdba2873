"""Tests of reading values at any block of the tree, whatever forks it has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chain.devchain import bounds, ledger
from chain.devchain.errors import ChainFullError, StateDiscardedError
from chain.devchain.ledger import Block, Ledger, extrinsics_root, state_root
from proto.chain.headers import Header

KEYS = [b"a", b"ab", b"b", b"ba"]


def block_after(parent: Block | None, changes: dict[bytes, bytes | None], salt: int = 0) -> Block:
    parent_hash = parent.hash if parent else bytes(32)
    number = parent.number + 1 if parent else 0
    log = b"\0\4" + salt.to_bytes(1, "little")
    header = Header(parent_hash, number, state_root(b"", changes), extrinsics_root(()), (log,))
    return Block(header, header.hash(), (), changes)


def grown(book: Ledger, *changes: dict[bytes, bytes | None]) -> list[Block]:
    blocks = []
    for each in changes:
        block = block_after(book.best, each)
        book.append(block)
        blocks.append(block)
    return blocks


def test_every_block_keeps_its_state() -> None:
    book = Ledger(block_after(None, {b"a": b"0"}))
    first, second, third = grown(book, {b"a": b"1", b"b": b"x"}, {b"b": None}, {b"a": b"3"})
    values = [book.value(b"a", each) for each in (book.genesis, first, second, third)]
    assert values == [b"0", b"1", b"1", b"3"]
    assert [book.value(b"b", each) for each in (book.genesis, first, second)] == [None, b"x", None]
    assert book.value(b"never", third) is None


def test_a_retracted_block_is_still_read() -> None:
    book = Ledger(block_after(None, {b"a": b"0", b"b": b"0"}))
    first, second = grown(book, {b"a": b"1"}, {b"a": b"2", b"ab": b"2"})
    left = block_after(first, {b"b": b"left"}, salt=1)
    book.append(left)
    longer = block_after(left, {}, salt=1)
    book.append(longer)
    assert book.best is longer
    assert book.value(b"a", longer) == b"1"
    assert book.value(b"a", second) == b"2"
    assert book.value(b"b", second) == b"0"
    assert book.keys(b"a", b"", 9, second) == [b"a", b"ab"]
    assert book.keys(b"a", b"", 9, longer) == [b"a"]
    assert not book.is_best_chain(second)
    assert book.at(2) is left
    assert book.set_best(second) == [longer, left]
    assert book.value(b"a", book.best) == b"2"


def test_keys_come_in_pages() -> None:
    many = {f"k{number:04}".encode(): b"v" for number in range(1000)}
    book = Ledger(block_after(None, {b"a": b"v", **many, b"z": b"v"}))
    grown(book, {b"k0500": None, b"k05001": b"v"})
    found, after = [], b""
    while page := book.keys(b"k", after, 300, book.best):
        found += page
        after = page[-1]
    assert found == sorted({*many, b"k05001"} - {b"k0500"})
    assert book.keys(b"", b"", 1, book.best) == [b"a"]
    assert book.keys(b"zz", b"", 1, book.best) == []


def test_states_beyond_those_kept_are_gone() -> None:
    book = Ledger(block_after(None, {b"a": b"0"}))
    first, second = grown(book, {}, {})
    book.states_kept = 2
    assert book.value(b"a", first) == b"0"
    with pytest.raises(StateDiscardedError, match="State already discarded for 0x"):
        book.value(b"a", book.genesis)
    book.states_kept = 0
    assert book.value(b"a", book.genesis) == b"0"
    assert second is book.best


def test_there_is_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MAX_BLOCKS", 2)
    book = Ledger(block_after(None, {}))
    grown(book, {})
    with pytest.raises(ChainFullError, match="at most 2"):
        book.append(block_after(book.best, {}))
    assert bounds.MAX_BLOCKS > 5000


def test_a_block_without_a_parent_is_refused() -> None:
    book = Ledger(block_after(None, {}))
    stranger = block_after(block_after(None, {}, salt=9), {})
    with pytest.raises(KeyError):
        book.append(stranger)


values = st.one_of(st.none(), st.binary(min_size=1, max_size=2))
steps = st.lists(
    st.tuples(st.integers(0, 30), st.dictionaries(st.sampled_from(KEYS), values, max_size=3)),
    max_size=25,
)


@given(steps, st.data())
def test_any_tree_reads_like_a_replay_of_its_branches(
    tree: list[tuple[int, dict[bytes, bytes | None]]], data: st.DataObject
) -> None:
    book = Ledger(block_after(None, {b"a": b"0"}))
    blocks = [book.genesis]
    states = {book.genesis.hash: {b"a": b"0"}}
    for salt, (choice, changes) in enumerate(tree):
        parent = blocks[choice % len(blocks)]
        block = block_after(parent, changes, salt=salt)
        book.append(block)
        blocks.append(block)
        state = {**states[parent.hash], **changes}
        states[block.hash] = {key: value for key, value in state.items() if value is not None}
        book.set_best(data.draw(st.sampled_from(blocks)))
    for block in blocks:
        expected = states[block.hash]
        assert {key: book.value(key, block) for key in KEYS} == {
            key: expected.get(key) for key in KEYS
        }
        assert book.keys(b"", b"", 99, block) == sorted(expected)
