"""Tests of heads, finality, forks and changes by hand."""

from __future__ import annotations

import pytest

from chain.devchain import accounts, calls, ledger, pool
from chain.devchain.errors import ChainFullError
from chain.devchain.node import Node
from proto.chain import extrinsic, storage, twin
from proto.chain.headers import to_hex
from proto.chain.twin import Twin
from tests.chain.devchain.chains import ALICE, BOB, START_S, Clock, Heads, new_node, signed

REMARK = calls.REMARK + b"\0"
ACCOUNT = b"\7" * 32


def _hash(node: Node, number: int) -> bytes:
    block = node.ledger.at(number)
    assert block is not None
    return block.hash


def test_every_block_is_announced_and_final() -> None:
    node = new_node()
    heads = Heads(node)
    for _ in range(3):
        node.make_block()
    assert heads.best == heads.final == [1, 2, 3]


def test_blocks_made_at_once_are_one_head() -> None:
    node = new_node()
    heads = Heads(node)
    node.make_blocks(50)
    assert heads.best == heads.final == [50]
    assert node.ledger.best.header.parent_hash == _hash(node, 49)


def test_time_goes_with_the_clock_and_never_stands() -> None:
    clock = Clock()
    node = new_node()
    node._clock = clock
    node.make_blocks(3)
    now = node.state().get(calls.NOW) or b""
    assert int.from_bytes(now, "little") == int(START_S * 1000) + 2
    clock.now_s += 60
    node.make_block()
    now = node.state().get(calls.NOW) or b""
    assert int.from_bytes(now, "little") == int((START_S + 60) * 1000)


def test_finality_may_lag() -> None:
    node = new_node()
    node.knobs.set({"finality_lag": 3})
    heads = Heads(node)
    fates: list[object] = []
    node.submit(signed(node, BOB, REMARK), fates.append)
    node.make_block()
    for _ in range(2):
        node.make_block()
    assert (heads.final, node.final.number) == ([], 0)
    assert fates[-1] == {"inBlock": to_hex(_hash(node, 1))}
    node.make_block()
    assert heads.final == [1]
    assert fates[-1] == {"finalized": to_hex(_hash(node, 1))}
    node.knobs.set({"finality_lag": 0})
    node.apply_knobs()
    assert heads.final == [1, 4]


def test_muted_heads_come_back_with_the_next_block() -> None:
    node = new_node()
    heads = Heads(node)
    node.knobs.set({"mute_heads": True})
    node.make_block()
    node.make_block()
    node.knobs.set({"mute_heads": False})
    node.make_block()
    assert heads.best == heads.final == [3]


def test_some_heads_are_skipped() -> None:
    node = new_node()
    heads = Heads(node)
    node.knobs.set({"announce_every": 3})
    for _ in range(7):
        node.make_block()
    assert heads.best == [3, 6]


def test_a_fork_is_longer_and_other() -> None:
    node = new_node()
    node.make_blocks(5)
    old = {number: _hash(node, number) for number in range(6)}
    heads = Heads(node)
    retracted = node.fork(3, 4, reinclude=True)
    assert [block.number for block in retracted] == [5, 4, 3]
    assert heads.best == [6]
    assert [_hash(node, number) == old[number] for number in range(6)] == [
        *(True, True, True),
        *(False, False, False),
    ]
    assert node.ledger.block(old[5]) is retracted[0]
    assert node.final.number == 6


def test_forks_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    node = new_node()
    node.make_blocks(2)
    for depth, count in ((0, 1), (3, 4), (2, 2), (1, 1)):
        with pytest.raises(ValueError, match=r"depth|count"):
            node.fork(depth, count, reinclude=True)
    monkeypatch.setattr(ledger, "MAX_BLOCKS", 4)
    with pytest.raises(ChainFullError):
        node.fork(1, 2, reinclude=True)
    with pytest.raises(ChainFullError):
        node.make_blocks(2)
    assert node.ledger.best.number == 2
    node.make_block()


def test_a_fork_takes_transactions_back_and_in_again() -> None:
    node = new_node()
    node.knobs.set({"finality_lag": 2})
    fates: list[object] = []
    node.submit(signed(node, BOB, REMARK), fates.append)
    old = node.make_block()
    node.make_block()
    node.fork(2, 3, reinclude=True)
    new = node.ledger.at(1)
    assert new is not None and new.extrinsics[1] == old.extrinsics[1]
    assert fates == [
        pool.READY,
        {"inBlock": to_hex(old.hash)},
        {"retracted": to_hex(old.hash)},
        pool.READY,
        {"inBlock": to_hex(new.hash)},
        {"finalized": to_hex(new.hash)},
    ]


def test_a_fork_may_lose_transactions() -> None:
    node = new_node()
    node.knobs.set({"finality_lag": 2})
    fates: list[object] = []
    node.submit(signed(node, BOB, REMARK), fates.append)
    old = node.make_block()
    node.fork(1, 2, reinclude=False)
    assert fates[-2:] == [{"retracted": to_hex(old.hash)}, pool.DROPPED]
    assert accounts.read(node.state(), BOB.account).nonce == 0
    assert len(node.pool) == 0


def test_a_fork_loses_what_was_not_by_transaction() -> None:
    node = new_node()
    node.put_twins([Twin(1, ACCOUNT, b"old.example.com")], told=True)
    node.put_twins([Twin(1, ACCOUNT, b"new.example.com")], told=True)
    node.fork(1, 2, reinclude=True)
    value = node.state().get(storage.twin_key(1))
    assert value is not None
    assert twin.decode(value).relay == b"old.example.com"


@pytest.mark.parametrize("told", [True, False])
def test_twins_are_put(told: bool) -> None:
    node = new_node()
    odd = Twin(3, ACCOUNT, b"one:8080/ \xff", (), b"")
    block = node.put_twins([odd, Twin(9, BOB.account)], told=told)
    events = block.changes[storage.EVENTS] or b""
    assert events.count(twin.encode(odd)) == told
    assert (b"\x19\x0b" in events) == told
    state = node.state()
    assert state.get(storage.twin_key(3)) == twin.encode(odd)
    assert state.get(storage.twin_id_key(ACCOUNT)) == b"\3\0\0\0"
    assert state.get(storage.LAST_TWIN_ID) == b"\x09\0\0\0"
    block = node.put_twins([odd], told=told)
    assert (b"\x19\x0c" in (block.changes[storage.EVENTS] or b"")) == told


def test_accounts_of_twins_stay() -> None:
    node = new_node([Twin(1, ACCOUNT)])
    for wrong in (Twin(1, BOB.account), Twin(2, ACCOUNT)):
        with pytest.raises(ValueError, match=f"twin {wrong.id}: "):
            node.put_twins([Twin(5, ALICE.account), wrong], told=True)
    assert node.ledger.best.number == 0


def test_made_twins_count_on() -> None:
    node = new_node([Twin(41, ACCOUNT)])
    terms = extrinsic.terms_call(calls.ACCEPT_TERMS, b"a", b"b")
    create = extrinsic.twin_call(calls.CREATE_TWIN, None, None)
    for call in (terms, create):
        node.submit(signed(node, BOB, call))
    node.make_block()
    assert node.state().get(storage.twin_id_key(BOB.account)) == b"\x2a\0\0\0"


def test_twin_ids_run_out() -> None:
    node = new_node([Twin(2**32 - 1, ACCOUNT)])
    terms = extrinsic.terms_call(calls.ACCEPT_TERMS, b"a", b"b")
    create = extrinsic.twin_call(calls.CREATE_TWIN, None, None)
    for call in (terms, create):
        node.submit(signed(node, BOB, call))
    events = node.make_block().changes[storage.EVENTS] or b""
    assert b"\x00\x01\x08\x01" in events  # ExtrinsicFailed, Arithmetic(Overflow)


def test_whoever_wants_blocks_for_transactions_is_asked() -> None:
    node = new_node()
    asked: list[int] = []
    node.on_ready = lambda: asked.append(1)
    node.submit(signed(node, BOB, REMARK, nonce=1))
    assert not asked
    node.submit(signed(node, BOB, REMARK, nonce=0))
    assert asked
