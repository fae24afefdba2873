"""Tests of transactions from the pool into a block: permission, order, and events."""

from __future__ import annotations

import pytest

from chain.devchain import accounts, calls, eras, pool, validity
from chain.devchain.accounts import Account
from chain.devchain.bounds import MAX_BLOCK_BYTES
from chain.devchain.errors import InvalidTransactionError
from chain.devchain.node import Node
from chain.devchain.runtime import BlockBuilder
from proto.chain import extrinsic, scale, storage, twin
from proto.chain.errors import ScaleError
from proto.chain.extrinsic import Chain, Extrinsic
from proto.chain.headers import to_hex
from proto.identity.signing import KeyType, SigningKey
from tests.chain.devchain.chains import ALICE, BOB, new_node, signed

TERMS = extrinsic.terms_call(calls.ACCEPT_TERMS, b"https://example.org/t?a=1&b=[2]", b"a-b_1")
REMARK = calls.REMARK + b"\0"
FAILED = b"\0\1\0\0\0" + b"\0\1"
"""Beginning of an ExtrinsicFailed event of transaction 1."""


def _create(relay: bytes | None, pk: bytes | None = None) -> bytes:
    return extrinsic.twin_call(calls.CREATE_TWIN, relay, pk)


def _update(relay: bytes | None, pk: bytes | None = None) -> bytes:
    return extrinsic.twin_call(calls.UPDATE_TWIN, relay, pk)


def _run(node: Node, key: SigningKey, *sent: bytes) -> list[bytes | None]:
    """Send calls, one block each, and return the error of each, or None if it succeeded."""
    outcomes: list[bytes | None] = []
    for call in sent:
        node.submit(signed(node, key, call))
        events = node.make_block().changes[storage.EVENTS] or b""
        place = events.rfind(FAILED)
        outcomes.append(None if place < 0 else events[place + len(FAILED) :][:6])
    return outcomes


def _twin(node: Node, key: SigningKey) -> twin.Twin | None:
    number = node.state().get(storage.twin_id_key(key.account))
    if number is None:
        return None
    value = node.state().get(storage.twin_key(int.from_bytes(number, "little")))
    return twin.decode(value) if value else None


def test_the_life_of_a_twin() -> None:
    node = new_node()
    outcomes = _run(
        node,
        BOB,
        _create(b"r1.example.com"),
        TERMS,
        _create(b"r1.example.com", b"\2" * 33),
        _create(b"r1.example.com"),
        _update(b"r2.example.com_r1.example.com"),
    )
    assert outcomes == [
        calls.module_error("UserDidNotSignTermsAndConditions"),
        None,
        None,
        calls.module_error("TwinWithPubkeyExists"),
        None,
    ]
    # The update was sent without the key, so the twin has none now.
    assert _twin(node, BOB) == twin.Twin(1, BOB.account, b"r2.example.com_r1.example.com")
    assert accounts.read(node.state(), BOB.account).nonce == 5


def test_an_update_needs_a_twin() -> None:
    node = new_node()
    assert _run(node, BOB, _update(None)) == [calls.module_error("TwinNotExists")]


@pytest.mark.parametrize(
    "relay",
    [b"", b"r.example.com", b"a..b", b".ab", b"ab.", b"ab:80", b"ab/", b"\xff", b"[::1]"],
)
def test_relays_the_chain_refuses(relay: bytes) -> None:
    node = new_node()
    wrong = calls.module_error("InvalidRelayAddress")
    assert _run(node, BOB, TERMS, _create(relay), _create(b"ok"), _update(relay)) == [
        *(None, wrong, None, wrong)
    ]
    assert _twin(node, BOB) == twin.Twin(1, BOB.account, b"ok")


@pytest.mark.parametrize(
    ("link", "document_hash", "error"),
    [
        (b"", b"a", "DocumentLinkInputTooShort"),
        (b"a%20b", b"a", "InvalidDocumentLinkInput"),
        (b"a b", b"a", "InvalidDocumentLinkInput"),
        (b"a", b"", "DocumentHashInputTooShort"),
        (b"a", b"a.b", "InvalidDocumentHashInput"),
    ],
)
def test_terms_the_chain_refuses(link: bytes, document_hash: bytes, error: str) -> None:
    node = new_node()
    call = extrinsic.terms_call(calls.ACCEPT_TERMS, link, document_hash)
    assert _run(node, BOB, call) == [calls.module_error(error)]


def test_terms_are_kept_with_their_time() -> None:
    node = new_node()
    assert _run(node, BOB, TERMS, TERMS) == [None, None]
    stored = node.state().get(storage.terms_key(BOB.account))
    assert stored is not None
    assert stored[0] == 2 << 2
    now_s = int.from_bytes(node.state().get(calls.NOW) or b"", "little") // 1000
    assert stored[1:33] == BOB.account
    assert int.from_bytes(stored[33:41], "little") == now_s


@pytest.mark.parametrize(
    "call",
    [
        calls.CREATE_TWIN + b"\1" + scale.compact("relay", 1025) + b"a" * 1025 + b"\0",
        calls.CREATE_TWIN + b"\0\1" + scale.compact("pk", 129) + b"a" * 129,
        calls.CREATE_TWIN + b"\0",
        calls.CREATE_TWIN + b"\0\0\0",
        calls.CREATE_TWIN + b"\2\0",
        calls.ACCEPT_TERMS + scale.compact("link", 2049) + b"a" * 2049 + b"\4a",
        b"\x19\x13",
        b"\xff\x00",
    ],
)
def test_undecodable_calls_never_are_in_a_block(call: bytes) -> None:
    node = new_node()
    with pytest.raises(InvalidTransactionError) as refused:
        node.submit(signed(node, BOB, call))
    assert refused.value.code == 1002
    assert len(node.pool) == 0


@pytest.mark.parametrize("data", [b"", b"\0", b"\x10\x84\0\0", b"\xff" * 40, b"\x04\x04"])
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidTransactionError) as refused:
        new_node().submit(data)
    assert refused.value.code in (1001, 1002)


def _refusal(node: Node, data: bytes) -> str:
    with pytest.raises(InvalidTransactionError) as refused:
        node.submit(data)
    assert len(node.pool) == 0
    return refused.value.data


def test_signatures_are_checked() -> None:
    node = new_node()
    good = signed(node, BOB, REMARK)
    for place in (10, 40, 90):
        bad = bytearray(good)
        bad[place] ^= 1
        assert _refusal(node, bytes(bad)) == "Transaction has a bad signature"
    other = Chain(node.chain.spec_version + 1, 2, node.chain.genesis_hash)
    assert _refusal(node, extrinsic.sign(REMARK, BOB, other, 0)).endswith("bad signature")
    other = Chain(node.chain.spec_version, 2, bytes(32))
    assert _refusal(node, extrinsic.sign(REMARK, BOB, other, 0)).endswith("bad signature")


def test_a_malformed_sr25519_signature_is_refused_too() -> None:
    node = new_node()
    bad = bytearray(signed(node, BOB, REMARK))
    bad[37:101] = b"\xff" * 64
    assert _refusal(node, bytes(bad)) == "Transaction has a bad signature"


def test_ed25519_signs_as_well() -> None:
    node = new_node()
    key = SigningKey.from_mini_secret(b"7" * 32, KeyType.ED25519)  # TEST KEY
    node.set_balance(key.account, 10**9)
    assert _run(node, key, TERMS, _create(b"ok")) == [None, None]


def test_who_has_nothing_cannot_send() -> None:
    node = new_node()
    key = SigningKey.from_mini_secret(b"8" * 32)  # TEST KEY
    poor = "Inability to pay some fees (e.g. account balance too low)"
    data = signed(node, key, REMARK)
    assert _refusal(node, data) == poor
    # The fee, and the minimum balance that an account must keep to exist.
    node.set_balance(key.account, 10_000 + len(data) + 499)
    assert _refusal(node, data) == poor
    node.set_balance(key.account, 10_000 + len(data) + 500)
    node.submit(data)
    node.make_block()
    assert accounts.read(node.state(), key.account) == Account(1, 500)


def test_unsigned_ones_are_refused() -> None:
    node = new_node()
    time_call = calls.SET_TIME + scale.compact("now", 5)
    refusal = _refusal(node, extrinsic.encode(Extrinsic(time_call, None)))
    assert refusal.startswith("Transaction dispatch is mandatory")
    refusal = _refusal(node, extrinsic.encode(Extrinsic(REMARK, None)))
    assert refusal.startswith("Could not find an unsigned validator")


def test_nobody_sets_the_time() -> None:
    node = new_node()
    node.submit(signed(node, BOB, calls.SET_TIME + b"\0"))
    events = node.make_block().changes[storage.EVENTS] or b""
    assert b"\x00\x01\x02" in events  # ExtrinsicFailed, BadOrigin


def test_one_that_no_block_has_room_for_is_refused() -> None:
    node = new_node()
    size = MAX_BLOCK_BYTES
    call = calls.REMARK + scale.compact("remark", size) + bytes(size)
    assert _refusal(node, signed(node, BOB, call)) == "Transaction would exhaust the block limits"


def test_blocks_fill_up() -> None:
    node = new_node()
    size = MAX_BLOCK_BYTES // 3
    call = calls.REMARK + scale.compact("remark", size) + bytes(size)
    for _ in range(3):
        node.submit(signed(node, BOB, call))
    assert [len(node.make_block().extrinsics) for _ in range(3)] == [3, 2, 1]


def test_nonces_are_used_once() -> None:
    node = new_node()
    data = signed(node, BOB, REMARK)
    node.submit(data)
    with pytest.raises(InvalidTransactionError) as refused:
        node.submit(data)
    assert refused.value.code == 1013
    node.make_block()
    assert _refusal(node, data) == "Transaction is outdated"


def test_what_waits_for_an_earlier_nonce() -> None:
    node = new_node()
    fates: list[object] = []
    node.submit(signed(node, BOB, REMARK, nonce=1), fates.append)
    assert fates == [pool.FUTURE]
    assert len(node.make_block().extrinsics) == 1
    node.submit(signed(node, BOB, REMARK, nonce=0))
    assert fates == [pool.FUTURE, pool.READY]
    assert node.pool.next_nonce(BOB.account, 0) == 2
    block = node.make_block()
    assert len(block.extrinsics) == 3
    assert fates[2:] == [{"inBlock": to_hex(block.hash)}, {"finalized": to_hex(block.hash)}]


def test_a_higher_tip_takes_the_place() -> None:
    node = new_node()
    fates: list[object] = []
    node.submit(signed(node, BOB, REMARK, nonce=0, tip=5), fates.append)
    with pytest.raises(InvalidTransactionError) as refused:
        node.submit(signed(node, BOB, TERMS, nonce=0, tip=5))
    assert refused.value.code == 1014
    taken = node.submit(signed(node, BOB, TERMS, nonce=0, tip=6))
    assert fates == [pool.READY, {"usurped": to_hex(taken)}]
    assert len(node.make_block().extrinsics) == 2


def test_tips_order_a_block_but_nonces_come_first() -> None:
    node = new_node()
    sent = [
        signed(node, BOB, REMARK, nonce=0),
        signed(node, BOB, REMARK, nonce=1, tip=9),
        signed(node, ALICE, REMARK, nonce=0, tip=5),
    ]
    for data in sent:
        node.submit(data)
    assert node.pool.pending() == sent
    assert node.make_block().extrinsics[1:] == (sent[2], sent[0], sent[1])
    assert node.pool.pending() == []


def test_one_that_cannot_be_paid_any_more_is_dropped_with_its_followers() -> None:
    node = new_node()
    fates: list[object] = []
    followers: list[object] = []
    node.submit(signed(node, BOB, REMARK, nonce=0, tip=10**6), fates.append)
    node.submit(signed(node, BOB, REMARK, nonce=1), followers.append)
    node.set_balance(BOB.account, 10**6)
    assert fates == [pool.READY, pool.INVALID]
    assert followers == [pool.READY]
    assert not node.pool.has_ready()


def test_the_pool_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "MAX_READY", 2)
    monkeypatch.setattr(pool, "MAX_FUTURE", 1)
    node = new_node()
    node.submit(signed(node, BOB, REMARK, nonce=5))
    with pytest.raises(InvalidTransactionError) as refused:
        node.submit(signed(node, BOB, REMARK, nonce=7))
    assert refused.value.code == 1016
    for nonce in (0, 1):
        node.submit(signed(node, BOB, REMARK, nonce=nonce))
    with pytest.raises(InvalidTransactionError) as refused:
        node.submit(signed(node, BOB, REMARK, nonce=2))
    assert refused.value.code == 1016


def _mortal(node: Node, number: int, period: int = 8, nonce: int = 0) -> bytes:
    """Return a transaction that is valid for `period` blocks around block `number`."""
    phase = number % period
    era = (period.bit_length() - 2 | phase << 4).to_bytes(2, "little")
    birth = node.ledger.at(number)
    checkpoint = birth.hash if birth else bytes(32)
    payload = extrinsic.signing_payload(REMARK, node.chain, nonce, 0, era, checkpoint)
    signature = BOB.sign(payload)[1:]
    who = extrinsic.Signed(BOB.account, BOB.key_type, signature, era, nonce, 0)
    return extrinsic.encode(Extrinsic(REMARK, who))


def test_a_mortal_one_is_good_for_its_era() -> None:
    node = new_node()
    node.make_blocks(20)
    node.submit(_mortal(node, 20))
    node.make_block()
    late = _mortal(node, 20, nonce=1)
    node.make_blocks(6)
    assert node.ledger.best.number + 1 == 28
    # Block 28 begins a new era, which has no block yet; at block 29 its block is not the one that
    # was signed.
    assert _refusal(node, late).endswith("ancient birth block")
    node.make_block()
    assert _refusal(node, late).endswith("bad signature")


def test_a_mortal_one_that_waits_too_long_is_dropped() -> None:
    node = new_node()
    node.make_blocks(4)
    fates: list[object] = []
    node.submit(_mortal(node, 4, period=4, nonce=1), fates.append)
    node.make_blocks(4)
    node.submit(signed(node, BOB, REMARK, nonce=0))
    node.make_block()
    assert fates == [pool.FUTURE, pool.READY, pool.INVALID]


def test_a_mortal_one_of_a_fork_left_behind_is_dropped() -> None:
    node = new_node()
    node.make_blocks(8)
    fates: list[object] = []
    node.submit(_mortal(node, 8, nonce=1), fates.append)
    node.fork(1, 2, reinclude=True)
    node.submit(signed(node, BOB, REMARK, nonce=0))
    node.make_block()
    assert fates == [pool.FUTURE, pool.READY, pool.INVALID]


def test_a_mortal_one_needs_an_era_that_exists() -> None:
    node = new_node()
    who = extrinsic.Signed(BOB.account, BOB.key_type, bytes(64), b"\x11\x01", 0, 0)
    data = extrinsic.encode(Extrinsic(REMARK, who))
    assert _refusal(node, data) == "era: phase 17 of period 4 does not exist"


def test_only_its_account_updates_a_twin() -> None:
    """An update fails if the twin is missing or has another account.

    No transaction leads to these states, so the test writes them into the storage.
    """
    other = twin.Twin(5, b"\7" * 32)
    for stored, error in (
        (twin.encode(other), "UnauthorizedToUpdateTwin"),
        (None, "TwinNotExists"),
    ):
        node = new_node()
        builder = BlockBuilder(node.ledger, 1, ALICE.account)
        builder.state.put(storage.twin_id_key(BOB.account), b"\5\0\0\0")
        builder.state.put(storage.twin_key(5), stored)
        node.ledger.append(builder.seal())
        assert _run(node, BOB, _update(None)) == [calls.module_error(error)]


@pytest.mark.parametrize("era", [b"\x00\x01", b"\x11\x01", b"\x02\x01"])
def test_eras_that_do_not_exist(era: bytes) -> None:
    with pytest.raises(ScaleError, match="era"):
        eras.birth(era, 10)


def test_eras_of_long_periods_go_in_steps() -> None:
    # 65536 blocks, in steps of 16: phase 16.
    assert eras.birth(b"\x1f\x00", 70_000) == 65_536 + 16
    assert eras.birth(b"\x1f\x00", 3) == 16


def test_fees_go_to_the_author() -> None:
    node = new_node()
    issued = node.state().get(accounts.TOTAL_ISSUANCE)
    before = accounts.read(node.state(), ALICE.account).free
    data = signed(node, BOB, REMARK, tip=7)
    node.submit(data)
    node.make_block()
    cost = 10_000 + len(data) + 7
    assert accounts.read(node.state(), ALICE.account).free == before + cost
    assert node.state().get(accounts.TOTAL_ISSUANCE) == issued
    checked = validity.check(signed(node, BOB, REMARK), node.chain, node.ledger, node.state())
    assert checked.cost == 10_000 + len(checked.data)
