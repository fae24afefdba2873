"""Recorded transactions of the real runtime give the same events and values when run here."""

from __future__ import annotations

from typing import Any

import pytest

from chain.devchain import accounts, genesis, validity
from chain.devchain.accounts import Account
from chain.devchain.ledger import Ledger, State
from chain.devchain.runtime import BlockBuilder
from proto.chain import extrinsic, scale, storage
from proto.chain.extrinsic import Chain
from proto.identity import ss58
from tests.chain.devchain.chains import ALICE
from tests.interop.recorded import recorded_chain

VECTORS = recorded_chain()
RECORDED_CHAIN = Chain(144, 2, bytes.fromhex(VECTORS["genesis_hash"][2:]))
# The number of this error depends on the runtime: 112 in the recorded one, 113 in spec 149.
RECORDED_INVALID_RELAY, INVALID_RELAY = b"\x03\x19\x70", b"\x03\x19\x71"
TIME_MS = 1_700_000_000_000
SECOND_SIGNER = ss58.decode("5Cwa6CnL3civWzvC3Yu1WBfkz5DR45AQKepBRKZPGTFvTpq7")


def _prepare(state: State, transactions: list[dict[str, Any]]) -> None:
    """Set the state of the recorded chain: 24 twins, funded signers, and one's accepted terms."""
    state.put(storage.LAST_TWIN_ID, scale.u32("twin", 24))
    for entry in reversed(transactions):
        signed = extrinsic.decode(bytes.fromhex(entry["extrinsic"][2:])).signed
        assert signed is not None
        accounts.write(state, signed.account, Account(signed.nonce, 10**12))
    state.put(storage.terms_key(SECOND_SIGNER), b"\0")


def test_recorded_transactions_do_what_they_did() -> None:
    transactions = VECTORS["transactions"]
    expected = {entry["what"]: entry for entry in VECTORS["event_blocks"]}
    ledger = Ledger(genesis.block(genesis.state(())))
    first = BlockBuilder(ledger, TIME_MS, ALICE.account)
    _prepare(first.state, transactions)
    _add(ledger, first)
    for number, entry in enumerate(transactions, 1):
        data = bytes.fromhex(entry["extrinsic"][2:])
        builder = BlockBuilder(ledger, TIME_MS + number, ALICE.account)
        decoded = extrinsic.decode(data).signed
        assert decoded is not None
        known = accounts.read(builder.state, decoded.account)
        accounts.write(builder.state, decoded.account, Account(decoded.nonce, known.free))
        builder.apply(validity.check(data, RECORDED_CHAIN, ledger, builder.state))
        _add(ledger, builder)
        events = ledger.value(storage.EVENTS, ledger.best)
        recorded = bytes.fromhex(expected[entry["what"]]["value"][2:])
        assert events == recorded.replace(RECORDED_INVALID_RELAY, INVALID_RELAY), entry["what"]
        assert ledger.best.extrinsics[1] == data
    # The values that the last transactions left.
    for what in ("after update_twin to three relays", "the longest relay (1024) and pk (128)"):
        stored = next(each for each in VECTORS["twins"] if each["what"] == what)
        key = bytes.fromhex(stored["key"][2:])
        assert ledger.value(key, ledger.best) == bytes.fromhex(stored["value"][2:])
    last = bytes.fromhex(VECTORS["twin_id_last"]["value"][2:])
    assert ledger.value(storage.LAST_TWIN_ID, ledger.best) == last


def test_a_block_without_transactions_tells_of_the_time_only() -> None:
    ledger = Ledger(genesis.block(genesis.state(())))
    block = BlockBuilder(ledger, TIME_MS, ALICE.account).seal()
    recorded = next(each for each in VECTORS["event_blocks"] if each["what"] == "no transaction")
    assert block.changes[storage.EVENTS] == bytes.fromhex(recorded["value"][2:])


@pytest.mark.parametrize("now_ms", [0, TIME_MS])
def test_headers_have_the_slot_of_their_time(now_ms: int) -> None:
    ledger = Ledger(genesis.block(genesis.state(())))
    (log,) = BlockBuilder(ledger, now_ms, ALICE.account).seal().header.logs
    recorded = bytes.fromhex(VECTORS["headers"][0]["header"]["digest"]["logs"][0][2:])
    assert log[:6] == recorded[:6] and len(log) == len(recorded)
    assert int.from_bytes(log[-8:], "little") == now_ms // 6000


def _add(ledger: Ledger, builder: BlockBuilder) -> None:
    ledger.append(builder.seal())
