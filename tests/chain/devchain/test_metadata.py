"""Tests of the metadata, decoded with the library that substrate-interface uses."""

from __future__ import annotations

from typing import Any

import pytest
from scalecodec.base import RuntimeConfigurationObject, ScaleBytes
from scalecodec.type_registry import load_type_registry_preset

from chain.devchain import calls, metadata, pallets
from proto.chain import storage
from tests.interop.recorded import recorded_chain

VECTORS = recorded_chain()


@pytest.fixture(scope="module")
def config() -> RuntimeConfigurationObject:
    config = RuntimeConfigurationObject(ss58_format=42)
    config.update_type_registry(load_type_registry_preset("legacy"))
    config.update_type_registry(load_type_registry_preset("core"))
    return config


@pytest.fixture(scope="module")
def decoded(config: RuntimeConfigurationObject) -> Any:
    decoder = config.create_scale_object("MetadataVersioned", data=ScaleBytes(metadata.build()))
    decoder.decode(check_remaining=True)
    config.add_portable_registry(decoder)
    return decoder


def _pallet(decoded: Any, name: str) -> Any:
    return next(each for each in decoded.pallets if each.name == name)


def _numbers(variants: Any) -> dict[str, int]:
    return {each.name: each.value["index"] for each in variants}


def test_it_is_always_the_same() -> None:
    assert metadata.build() == metadata.build()
    assert metadata.build()[:5] == b"meta" + bytes([VECTORS["metadata"]["version"]])


def test_pallets_have_the_numbers_of_tfchain(decoded: Any) -> None:
    assert {each.name: each.value["index"] for each in decoded.pallets} == {
        "System": 0,
        "Timestamp": 1,
        "Balances": 20,
        "TransactionPayment": 21,
        "TfgridModule": 25,
    }


def test_calls_events_and_errors_have_the_numbers_of_tfchain(decoded: Any) -> None:
    tfgrid = _pallet(decoded, "TfgridModule")
    assert _numbers(tfgrid.calls) == {"create_twin": 17, "update_twin": 18, "user_accept_tc": 25}
    assert _numbers(tfgrid.events) == {
        "TwinStored": 11,
        "TwinUpdated": 12,
        "TwinEntityStored": 13,
        "TwinEntityRemoved": 14,
        "TwinDeleted": 15,
        "TwinAccountBounded": 16,
    }
    errors = _numbers(tfgrid.errors)
    assert errors["TwinNotExists"] == 27
    assert errors["TwinWithPubkeyExists"] == 28
    assert errors["UnauthorizedToUpdateTwin"] == 30
    assert errors["UserDidNotSignTermsAndConditions"] == 39
    assert (errors["RelayTooShort"], errors["RelayTooLong"], errors["InvalidRelay"]) == (47, 48, 49)
    assert errors["InvalidRelayAddress"] == 113
    # Libraries look up an error by its position, so positions and numbers must agree.
    assert list(errors.values()) == list(range(len(errors)))


def test_calls_are_carried_out_under_these_numbers(decoded: Any) -> None:
    numbers = {
        bytes([pallet.value["index"], call.value["index"]])
        for pallet in decoded.pallets
        for call in pallet.calls or ()
    }
    assert numbers == {
        calls.REMARK,
        calls.SET_TIME,
        calls.CREATE_TWIN,
        calls.UPDATE_TWIN,
        calls.ACCEPT_TERMS,
    }


def test_signed_extensions_are_in_order(decoded: Any) -> None:
    assert list(decoded.get_signed_extensions()) == [
        "CheckNonZeroSender",
        "CheckSpecVersion",
        "CheckTxVersion",
        "CheckGenesis",
        "CheckMortality",
        "CheckNonce",
        "CheckWeight",
        "ChargeTransactionPayment",
    ]


def test_twins_are_kept_under_hashed_keys(decoded: Any) -> None:
    items = {
        each.value["name"]: each.value
        for each in _pallet(decoded, "TfgridModule").storage
        if not each.value["name"].startswith(":")
    }
    for name in ("Twins", "TwinIdByAccountID", "UsersTermsAndConditions"):
        assert items[name]["modifier"] == "Optional"
        assert items[name]["type"]["Map"]["hashers"] == ["Blake2_128Concat"]
    assert items["TwinID"]["modifier"] == "Default"


def test_constants(decoded: Any) -> None:
    constants = {each.value["name"]: each for each in _pallet(decoded, "System").constants}
    assert constants["SS58Prefix"].constant_value == bytes([VECTORS["ss58_format"], 0])
    assert constants["BlockHashCount"].constant_value == (2400).to_bytes(4, "little")


@pytest.mark.parametrize("entry", VECTORS["twins"], ids=lambda entry: entry["what"])
def test_recorded_twins_are_read_with_it(
    entry: dict[str, Any], config: RuntimeConfigurationObject, decoded: Any
) -> None:
    kind = next(
        each.value["type"]["Map"]["value"]
        for each in _pallet(decoded, "TfgridModule").storage
        if each.value["name"] == "Twins"
    )
    found = config.create_scale_object(f"scale_info::{kind}", ScaleBytes(entry["value"]))
    value = found.decode(check_remaining=True)
    assert (value["id"], value["account_id"]) == (entry["twin"]["id"], entry["twin"]["account"])


@pytest.mark.parametrize("entry", VECTORS["event_blocks"], ids=lambda entry: entry["what"])
def test_recorded_events_are_read_with_it(
    entry: dict[str, Any], config: RuntimeConfigurationObject, decoded: Any
) -> None:
    """The metadata decodes all events of recorded blocks of the real runtime, with the same names.

    Each event ends where the next begins.
    """
    kind = next(
        each.value["type"]["Plain"]
        for each in _pallet(decoded, "System").storage
        if each.value["name"] == "Events"
    )
    found = config.create_scale_object(
        f"scale_info::{kind}", ScaleBytes(entry["value"]), metadata=decoded
    )
    records = found.decode(check_remaining=True)
    names = [(each["event"]["module_id"], each["event"]["event_id"]) for each in records]
    assert names == [(each["pallet"], each["event"]) for each in entry["events"]]


def test_keys_are_those_of_the_chain() -> None:
    keys = VECTORS["keys"]
    assert f"0x{storage.TWINS.hex()}" == keys["Twins"]
    assert f"0x{storage.EVENTS.hex()}" == keys["System.Events"]
    assert pallets.TFGRID_ERRORS["InvalidRelayAddress"] == 113
