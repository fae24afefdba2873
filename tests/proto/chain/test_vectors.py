"""Bytes of a chain that ran the real runtime decode to the recorded values and encode back."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from proto.chain import events, extrinsic, headers, relays, storage, twin
from proto.chain.extrinsic import Chain
from proto.chain.twin import Entity, Twin
from proto.identity import ss58
from tests.interop.recorded import recorded_chain

VECTORS = recorded_chain()
STORED, UPDATED = b"\x19\x0b", b"\x19\x0c"
CALLS = {"create_twin": b"\x19\x11", "update_twin": b"\x19\x12", "user_accept_tc": b"\x19\x19"}
CHAIN = Chain(
    VECTORS["runtime_version"]["specVersion"],
    VECTORS["runtime_version"]["transactionVersion"],
    headers.from_hex("genesis_hash", VECTORS["genesis_hash"], 32),
)


def _raw(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("0x"))


def _optional(text: str | None) -> bytes | None:
    return None if text is None else _raw(text)


def _twin(entry: dict[str, Any]) -> Twin:
    entities = tuple(Entity(e["entity_id"], _raw(e["signature"])) for e in entry["entities"])
    return Twin(
        entry["id"],
        _raw(entry["account_hex"]),
        _optional(entry["relay_hex"]),
        entities,
        _optional(entry["pk"]),
    )


def _named(entries: list[dict[str, Any]]) -> list[Any]:
    return [pytest.param(entry, id=f"{n}: {entry['what']}") for n, entry in enumerate(entries)]


@pytest.mark.parametrize("entry", _named(VECTORS["twins"]))
def test_twins(entry: dict[str, Any]) -> None:
    value = _raw(entry["value"])
    expected = _twin(entry["twin"])
    assert twin.decode(value) == expected
    assert twin.encode(expected) == value
    assert storage.twin_key(expected.id) == _raw(entry["key"])
    assert storage.twin_of_key(_raw(entry["key"])) == expected.id
    assert ss58.encode(expected.account) == entry["twin"]["account"]
    assert list(relays.split(expected.relay)) == (entry["twin"]["relays"] or [])


def test_prefixes() -> None:
    keys = VECTORS["keys"]
    assert _raw(keys["Twins"]) == storage.TWINS
    assert _raw(keys["TwinIdByAccountID"]) == storage.TWIN_ID_BY_ACCOUNT
    assert storage.LAST_TWIN_ID == _raw(keys["TwinID"]) == _raw(VECTORS["twin_id_last"]["key"])
    assert _raw(keys["System.Events"]) == storage.EVENTS


@pytest.mark.parametrize("entry", VECTORS["twin_id_by_account"], ids=lambda entry: entry["id"])
def test_ids_of_accounts(entry: dict[str, Any]) -> None:
    assert storage.twin_id_key(ss58.decode(entry["account"])) == _raw(entry["key"])


def test_keys_of_what_is_absent() -> None:
    expected = [_raw(entry["key"]) for entry in VECTORS["absent"]]
    stranger = ss58.decode("5FFFvUdHFrE7DkosiN2YWQcj3DBYuyw7TfQN1X76bZnpEXAh")
    twins = [storage.twin_key(n) for n in (0, 999, 2**32 - 1)]
    assert [*twins, storage.twin_id_key(stranger)] == expected


@pytest.mark.parametrize("entry", VECTORS["headers"], ids=lambda entry: entry["header"]["number"])
def test_headers(entry: dict[str, Any]) -> None:
    header = headers.from_json(entry["header"])
    assert header.encode() == _raw(entry["scale"])
    assert header.hash() == _raw(entry["hash"])
    assert headers.from_json(header.to_json()) == header


def test_headers_follow_one_another() -> None:
    chain = [headers.from_json(entry["header"]) for entry in VECTORS["headers"]]
    joints = [(a, b) for a, b in pairwise(chain) if b.number == a.number + 1]
    assert len(joints) == 12
    assert all(b.parent_hash == a.hash() for a, b in joints)


@pytest.mark.parametrize("entry", _named(VECTORS["transactions"]))
def test_transactions(entry: dict[str, Any]) -> None:
    raw = _raw(entry["extrinsic"])
    read = extrinsic.decode(raw)
    assert extrinsic.encode(read) == raw
    assert read.call == _raw(entry["params"].get("call_scale", entry.get("call_scale", "")))
    assert read.signed is not None
    assert ss58.encode(read.signed.account) == entry["signer"]
    extrinsic.verify(read, CHAIN)


@pytest.mark.parametrize("entry", _named(VECTORS["transactions"]))
def test_calls(entry: dict[str, Any]) -> None:
    params, index = entry["params"], CALLS[entry["call"]]
    if entry["call"] == "user_accept_tc":
        link, document_hash = params["document_link"], params["document_hash"]
        made = extrinsic.terms_call(index, link.encode(), document_hash.encode())
    else:
        relay = params["relay"]
        text = relay.encode() if relay is not None else None
        made = extrinsic.twin_call(index, text, _optional(params["pk"]))
    assert made == extrinsic.decode(_raw(entry["extrinsic"])).call


@pytest.mark.parametrize("entry", _named(VECTORS["event_blocks"]))
def test_event_blocks(entry: dict[str, Any]) -> None:
    value = _raw(entry["value"])
    assert events.count(value) == entry["count"]
    for expected in entry["twin_events"]:
        record = _raw(expected["bytes"])
        change = events.read_twin_record(value, expected["offset"], STORED, UPDATED)
        assert change is not None
        assert change.twin == _twin(expected["twin"])
        assert change.created == (expected["event"] == "TwinStored")
        extrinsic_number = int.from_bytes(record[1:5], "little")
        index = STORED if change.created else UPDATED
        made = events.encode_record(index, twin.encode(change.twin), extrinsic_number)
        # Nearly all recorded records stop before the topics.
        assert made.startswith(record) or record == made
        assert value[expected["offset"] :].startswith(made)
