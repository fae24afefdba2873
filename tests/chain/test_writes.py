"""Tests of transactions: the resulting state of the chain, and the error for each failure."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.server import ServerConnection

from chain.devchain import genesis
from chain.errors import (
    ChainAwayError,
    DispatchError,
    NodeError,
    OutcomeUnknownError,
    RefusedError,
)
from chain.rotation import Rotation
from chain.rpc import Connection
from chain.writes import Until, Writer
from proto.chain import extrinsic
from proto.chain.errors import BoundError, RelayTextError
from proto.identity.signing import KeyType, SigningKey
from tests.chain.following import WAIT_S
from tests.chain.scripted_node import result, scripted_node
from tests.support.devchain import Devchain, running_devchain
from tests.support.identities import twin
from tests.support.redis_servers import free_port
from tests.support.waiting import wait_until

ALICE = genesis.development_key("Alice")  # TEST KEY
POOR = SigningKey.from_mini_secret(b"\x07" * 32)  # TEST KEY


def _writer(devchain: Devchain, key: SigningKey = ALICE, **options: Any) -> Writer:
    return Writer([devchain.url], key, **{"until": Until.IN_BLOCK, "limit_s": 10} | options)


def _rich(devchain: Devchain, key_type: KeyType = KeyType.SR25519) -> SigningKey:
    """Return a new TEST KEY whose account can pay fees."""
    key = SigningKey.from_mini_secret(secrets.token_bytes(32), key_type)
    devchain.set_balance(key.account, 10**9)
    return key


def _terms(writer: Writer) -> None:
    writer.accept_terms("https://example.org/terms", "abc-123")


@pytest.mark.parametrize("until", Until)
@pytest.mark.parametrize("key_type", KeyType)
def test_from_terms_to_an_updated_twin(
    shared_devchain: Devchain, until: Until, key_type: KeyType
) -> None:
    key = _rich(shared_devchain, key_type)
    writer = _writer(shared_devchain, key, until=until)
    rotation = Rotation([shared_devchain.url])
    last = rotation.last_twin_id()
    terms = writer.accept_terms("https://example.org/terms", "abc-123")
    assert terms.twin is None
    created = writer.create_twin(b"r1.example.com_r2.example.com", b"\2" + bytes(32))
    assert created.twin is not None
    assert created.twin.id == last + 1
    found = rotation.twin_by_account(key.account)
    assert found is not None
    assert found.twin == created.twin
    assert (found.twin.relay, found.twin.pk) == (
        b"r1.example.com_r2.example.com",
        b"\2" + bytes(32),
    )
    # Text that a library would read as hexadecimal is kept unchanged.
    updated = writer.update_twin(b"0x41", b"0x4142")
    assert updated.twin is not None
    assert (updated.twin.relay, updated.twin.pk) == (b"0x41", b"0x4142")
    erased = writer.update_twin(None, None)
    assert erased.twin is not None
    assert (erased.twin.relay, erased.twin.pk) == (None, None)
    blocks = {each.block_hash for each in (terms, created, updated, erased)}
    assert len(blocks) == 4
    rotation.close()


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (lambda w: w.update_twin(b"r1.example", None), "TwinNotExists"),
        (lambda w: w.create_twin(b"r1.example", None), "UserDidNotSignTermsAndConditions"),
        (lambda w: w.accept_terms("", "abc"), "DocumentLinkInputTooShort"),
        (lambda w: w.accept_terms("no space", "abc"), "InvalidDocumentLinkInput"),
        (lambda w: w.accept_terms("https://x.example", ""), "DocumentHashInputTooShort"),
        (lambda w: w.accept_terms("https://x.example", "a b"), "InvalidDocumentHashInput"),
    ],
)
def test_failures_have_names(
    shared_devchain: Devchain, write: Callable[[Writer], object], name: str
) -> None:
    with pytest.raises(DispatchError, match=name) as caught:
        write(_writer(shared_devchain, _rich(shared_devchain)))
    assert caught.value.name == name
    assert len(caught.value.block_hash) == 32


def test_a_second_twin_of_one_account(shared_devchain: Devchain) -> None:
    writer = _writer(shared_devchain, _rich(shared_devchain))
    _terms(writer)
    writer.create_twin(None, None)
    with pytest.raises(DispatchError, match=r"^create_twin failed: TwinWithPubkeyExists$"):
        writer.create_twin(None, None)


def test_what_the_chain_would_refuse_is_refused_here(devchain: Devchain) -> None:
    writer = _writer(devchain)
    for relay in (b"", b"a.b", b"https://x", b"x:1"):
        with pytest.raises(RelayTextError):
            writer.update_twin(relay, None)
    with pytest.raises(BoundError, match="relay has 1025"):
        writer.update_twin(b"a" * 1025, None)
    with pytest.raises(BoundError, match="pk has 129"):
        writer.create_twin(None, bytes(129))
    with pytest.raises(BoundError, match="document_hash"):
        writer.accept_terms("x", "y" * 51)
    assert devchain.counts()["accepted"] == 1


def test_a_poor_account_is_refused(shared_devchain: Devchain) -> None:
    with pytest.raises(RefusedError, match="Inability to pay some fees") as caught:
        _terms(_writer(shared_devchain, POOR))
    assert caught.value.code == 1010


def test_a_runtime_that_signs_something_else_is_not_signed_for(
    shared_devchain: Devchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extrinsic, "SIGNED_EXTENSIONS", (*extrinsic.SIGNED_EXTENSIONS, "CheckNew"))
    with pytest.raises(RefusedError, match="are made in another way"):
        _terms(_writer(shared_devchain))


def test_no_block_in_time(devchain: Devchain) -> None:
    devchain.set(instant=False)
    writer = _writer(devchain, limit_s=0.3)
    with pytest.raises(OutcomeUnknownError, match=r"is not inBlock after 0 s") as caught:
        _terms(writer)
    assert len(caught.value.extrinsic_hash) == 32
    # It waits in the pool, so the next one gets the next nonce; both go into one block.
    with pytest.raises(OutcomeUnknownError):
        writer.create_twin(b"r1.example", None)
    devchain.new_blocks()
    rotation = Rotation([devchain.url])
    found = rotation.twin_by_account(ALICE.account)
    assert found is not None
    assert found.twin.relay == b"r1.example"
    rotation.close()


def test_a_block_is_not_yet_a_final_one(devchain: Devchain) -> None:
    devchain.set(finality_lag=2)
    _terms(_writer(devchain))
    with pytest.raises(OutcomeUnknownError, match="is not finalized"):
        _terms(_writer(devchain, until=Until.FINALIZED, limit_s=0.3))
    ended = threading.Event()

    def grow() -> None:
        while not ended.wait(0.05):
            devchain.new_blocks()

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        receipt = _writer(devchain, until=Until.FINALIZED).create_twin(None, None)
    finally:
        ended.set()
        thread.join()
    assert receipt.twin is not None


def test_the_next_node_is_taken_before_anything_is_sent(shared_devchain: Devchain) -> None:
    dead = f"ws://127.0.0.1:{free_port()}"
    key = _rich(shared_devchain)
    writer = Writer([dead, shared_devchain.url], key, until=Until.IN_BLOCK)
    _terms(writer)
    with pytest.raises(ChainAwayError, match="refused"):
        _terms(Writer([dead], ALICE))


def test_a_node_lost_after_the_transaction_was_sent(devchain: Devchain) -> None:
    devchain.set(instant=False)
    errors: list[BaseException] = []

    def write() -> None:
        try:
            _terms(_writer(devchain))
        except OutcomeUnknownError as error:
            errors.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    wait_until(lambda: devchain.counts()["waiting_transactions"] == 1, WAIT_S)
    devchain.kill()
    thread.join()
    (error,) = errors
    assert "was sent, what became of it is not known" in str(error)


@pytest.mark.parametrize(
    ("status", "kind", "problem"),
    [
        ("invalid", RefusedError, "is invalid"),
        ({"usurped": "0x" + "00" * 32}, RefusedError, "is usurped"),
        ("dropped", OutcomeUnknownError, "says dropped"),
        ({"finalityTimeout": "0x" + "00" * 32}, OutcomeUnknownError, "finalityTimeout"),
        ({"inBlock": "0x00zz"}, OutcomeUnknownError, "not pairs of hexadecimal digits"),
        ({"inBlock": "0x" + "00" * 32}, OutcomeUnknownError, "does not have the transaction"),
        ({"future": None}, OutcomeUnknownError, "is not inBlock"),
        (None, OutcomeUnknownError, "is not inBlock"),
    ],
)
def test_what_a_node_may_say_of_a_transaction(
    shared_devchain: Devchain, status: Any, kind: type[Exception], problem: str
) -> None:
    """Each status of a transaction that a node may report gives the right error.

    A node in between forwards all other requests, but invents the fate of the transaction.
    """
    real = Connection(shared_devchain.url)

    def answer(websocket: ServerConnection, request: dict[str, Any]) -> None:
        if request["method"] == "author_submitAndWatchExtrinsic":
            result(websocket, request, 7)
            for each in ({"ready": None}, {"broadcast": []}, {"retracted": "0x"}, status):
                params = {"subscription": 7, "result": each}
                websocket.send(json.dumps({"method": "author_extrinsicUpdate", "params": params}))
        elif request["method"] == "chain_getBlock":
            result(websocket, request, {"block": {"extrinsics": ["0x00"]}})
        else:
            real.limit(10)
            result(websocket, request, real.call(request["method"], request["params"]))

    with scripted_node(answer) as url, pytest.raises(kind, match=problem):
        _terms(Writer([url], ALICE, until=Until.IN_BLOCK, limit_s=0.3))
    real.close()


def test_a_node_in_which_something_goes_wrong_may_have_taken_it(
    shared_devchain: Devchain,
) -> None:
    real = Connection(shared_devchain.url)

    def answer(websocket: ServerConnection, request: dict[str, Any]) -> None:
        if request["method"] == "author_submitAndWatchExtrinsic":
            error = {"code": -32603, "message": "Internal error"}
            websocket.send(json.dumps({"id": request["id"], "error": error}))
        else:
            real.limit(10)
            result(websocket, request, real.call(request["method"], request["params"]))

    with scripted_node(answer) as url, pytest.raises(OutcomeUnknownError, match="Internal error"):
        _terms(Writer([url], ALICE, until=Until.IN_BLOCK))
    real.close()


@pytest.mark.parametrize("nonce", [None, -1, 2**32, "1"])
def test_a_node_that_counts_wrongly_is_passed_over(shared_devchain: Devchain, nonce: Any) -> None:
    key = _rich(shared_devchain)
    real = Connection(shared_devchain.url)

    def answer(websocket: ServerConnection, request: dict[str, Any]) -> None:
        if request["method"] == "system_accountNextIndex":
            result(websocket, request, nonce)
        else:
            real.limit(10)
            result(websocket, request, real.call(request["method"], request["params"]))

    with scripted_node(answer) as url:
        with pytest.raises(ChainAwayError, match="invalid nonce"):
            _terms(Writer([url], key))
        _terms(Writer([url, shared_devchain.url], key, until=Until.IN_BLOCK))
    real.close()


def test_threads_write_one_after_the_other(shared_devchain: Devchain) -> None:
    writer = _writer(shared_devchain, _rich(shared_devchain))
    _terms(writer)
    writer.create_twin(None, None)
    errors: list[BaseException] = []

    def write(number: int) -> None:
        try:
            writer.update_twin(b"r%d.example" % number, None)
        except NodeError as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_the_twin_of_another_is_not_in_the_receipt(tmp_path: Path) -> None:
    with running_devchain(tmp_path, [twin(1)], instant=False) as devchain:
        devchain.set_balance(twin(1).account, 10**9)
        receipts: list[Any] = []

        def write() -> None:
            writer = _writer(devchain, twin(1).signing_key)
            receipts.append(writer.update_twin(b"mine.example", None))

        def accept() -> None:
            receipts.append(_writer(devchain).accept_terms("https://x.example", "abc"))

        threads = [threading.Thread(target=each) for each in (write, accept)]
        for thread in threads:
            thread.start()
        wait_until(lambda: devchain.counts()["waiting_transactions"] == 2, WAIT_S)
        devchain.new_blocks()
        for thread in threads:
            thread.join()
        assert receipts[0].block_hash == receipts[1].block_hash
        assert sorted(each.twin.id for each in receipts if each.twin) == [1]
