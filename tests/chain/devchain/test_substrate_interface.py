"""Tests of a real client, substrate-interface, against a real node process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from substrateinterface import Keypair, KeypairType, SubstrateInterface

from tests.support.devchain import Devchain, running_devchain
from tests.support.identities import twin

TIMEOUT_S = 12
TWINS = 120
PK = "0x" + "02" * 33


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Devchain]:
    with running_devchain(tmp_path_factory.mktemp("chain"), made_up_twins=TWINS) as node:
        yield node


@pytest.fixture(scope="module")
def client(chain: Devchain) -> Iterator[SubstrateInterface]:
    with SubstrateInterface(
        url=chain.url, ws_options={"timeout": TIMEOUT_S}, auto_reconnect=False
    ) as interface:
        yield interface


def test_twins_are_found_by_id_and_by_account(client: SubstrateInterface) -> None:
    found = client.query("TfgridModule", "Twins", [7]).value
    assert (found["id"], found["relay"], found["entities"]) == (7, "localhost", [])
    by_account = client.query("TfgridModule", "TwinIdByAccountID", [found["account_id"]])
    assert by_account.value == 7
    assert client.query("TfgridModule", "Twins", [TWINS + 5000]).value is None
    assert client.query("TfgridModule", "TwinID").value >= TWINS


def test_all_twins_come_in_pages(client: SubstrateInterface) -> None:
    pages = client.query_map("TfgridModule", "Twins", page_size=50)
    found = {key.value: value.value["id"] for key, value in pages}
    assert set(range(1, TWINS + 1)) <= set(found)
    assert all(key == value for key, value in found.items())


def test_a_changed_twin_is_an_event(chain: Devchain, client: SubstrateInterface) -> None:
    number = chain.put_twin(twin(7000), "r1.example.com_r2.example.com")
    block_hash = client.get_block_hash(number)
    events = [each.value for each in client.get_events(block_hash)]
    assert [each["event_id"] for each in events] == ["ExtrinsicSuccess", "TwinStored"]
    assert events[1]["attributes"]["relay"] == "r1.example.com_r2.example.com"
    assert client.query("TfgridModule", "Twins", [7000], block_hash).value["id"] == 7000
    before = client.get_block_hash(number - 1)
    assert client.query("TfgridModule", "Twins", [7000], before).value is None


@pytest.mark.parametrize("finalized_only", [False, True])
def test_heads_are_followed(
    chain: Devchain, client: SubstrateInterface, finalized_only: bool
) -> None:
    chain.set(finality_delay_s=0)  # else three blocks become final with one head
    seen: list[int] = []

    def handle(head: dict[str, Any], count: int, subscription: str) -> str | None:
        seen.append(head["header"]["number"])
        if count == 0:
            threading.Thread(target=chain.new_blocks, args=(3,), kwargs={"every": True}).start()
        return "enough" if count == 3 else None

    assert client.subscribe_block_headers(handle, finalized_only=finalized_only) == "enough"
    assert seen == list(range(seen[0], seen[0] + 4))


@pytest.mark.parametrize("key_type", [KeypairType.SR25519, KeypairType.ED25519])
@pytest.mark.parametrize("era", [None, {"period": 64}])
def test_a_twin_is_made_and_changed_by_transactions(
    chain: Devchain, client: SubstrateInterface, key_type: int, era: dict[str, int] | None
) -> None:
    # TEST KEY
    key = Keypair.create_from_seed(bytes([key_type, bool(era)] * 16), crypto_type=key_type)
    chain.set_balance(key.public_key, 10**9)

    def send(function: str, **arguments: Any) -> Any:
        call = client.compose_call("TfgridModule", function, arguments)
        extrinsic = client.create_signed_extrinsic(call, key, era=era)
        return client.submit_extrinsic(extrinsic, wait_for_inclusion=True)

    refused = send("create_twin", relay="r1.example.com", pk=None)
    assert refused.error_message["name"] == "UserDidNotSignTermsAndConditions"
    terms = {"document_link": "https://example.org/terms", "document_hash": "abc-123"}
    assert send("user_accept_tc", **terms).is_success
    created = send("create_twin", relay="r1.example.com", pk=PK)
    assert created.is_success
    assert "TwinStored" in [each.value["event_id"] for each in created.triggered_events]
    assert created.total_fee_amount == 10_000 + len(created.extrinsic.data.data)
    assert send("update_twin", relay="r2.example.com", pk=None).is_success
    twin_id = client.query("TfgridModule", "TwinIdByAccountID", [key.ss58_address]).value
    stored = client.query("TfgridModule", "Twins", [twin_id]).value
    assert (stored["relay"], stored["pk"]) == ("r2.example.com", None)
    wrong = send("update_twin", relay="r2.example.com:8080", pk=None)
    assert not wrong.is_success
    assert wrong.error_message["name"] == "InvalidRelayAddress"
    assert client.get_account_nonce(key.ss58_address) == 5
    assert client.query("System", "Account", [key.ss58_address]).value["nonce"] == 5


def test_a_transaction_becomes_final(client: SubstrateInterface) -> None:
    key = Keypair.create_from_uri("//Bob")  # TEST KEY
    call = client.compose_call("System", "remark", {"remark": "0x00"})
    extrinsic = client.create_signed_extrinsic(call, key, tip=5)
    receipt = client.submit_extrinsic(extrinsic, wait_for_finalization=True)
    assert receipt.is_success
    assert receipt.finalized
    assert receipt.block_hash == client.get_chain_finalised_head()
    assert client.get_block(receipt.block_hash)["extrinsics"][1].value["tip"] == 5


def test_a_fee_is_known_before(client: SubstrateInterface) -> None:
    key = Keypair.create_from_uri("//Charlie")  # TEST KEY
    call = client.compose_call("System", "remark", {"remark": "0x0011"})
    expected = client.get_payment_info(call, key)["partialFee"]
    extrinsic = client.create_signed_extrinsic(call, key)
    receipt = client.submit_extrinsic(extrinsic, wait_for_inclusion=True)
    assert receipt.total_fee_amount == expected


def test_the_rest_of_the_library(chain: Devchain, client: SubstrateInterface) -> None:
    assert client.get_constant("System", "SS58Prefix").value == 42
    assert client.token_symbol == "TFT" and client.token_decimals == 7
    assert client.runtime_version == 149
    storage_keys = [client.create_storage_key("TfgridModule", "Twins", [each]) for each in (1, 2)]
    assert [value["id"].value for _, value in client.query_multi(storage_keys)] == [1, 2]
    told: list[int] = []

    def handle(found: Any, count: int, subscription: str) -> str | None:
        told.append(found.value)
        if count == 0:
            threading.Thread(target=chain.put_twin, args=(twin(8000),)).start()
        return "enough" if count else None

    assert client.query("TfgridModule", "TwinID", subscription_handler=handle) == "enough"
    assert told[1] == 8000
    assert client.retrieve_pending_extrinsics() == []
    assert len(client.get_metadata_call_functions()) == 5
    assert client.get_metadata_error("TfgridModule", "TwinNotExists") is not None
