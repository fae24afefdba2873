"""Tests of the events of recorded blocks and of damaged ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chain import events
from chain.client import Node
from chain.errors import BlockUnreadableError
from chain.runtime import Runtime
from proto.chain import events as records
from proto.chain import twin as codec
from tests.interop.recorded import recorded_chain
from tests.proto.chain.strategies import twins
from tests.support.devchain import running_devchain

BLOCKS = recorded_chain()["event_blocks"]
VALUES = [bytes.fromhex(entry["value"][2:]) for entry in BLOCKS]


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """Return the runtime of the stand-in, whose metadata names the same events as the chain's."""
    with running_devchain(tmp_path_factory.mktemp("chain")) as chain:
        chain.new_blocks()
        node = Node(chain.url)
        yield node.events(node.best().hash())[1]
        node.close()


@pytest.mark.parametrize("entry", BLOCKS, ids=lambda entry: entry["what"])
def test_recorded_blocks(entry: dict[str, Any], runtime: Runtime) -> None:
    value = bytes.fromhex(entry["value"][2:])
    listed = list(runtime.records(value))
    assert [(each.pallet, each.name, each.extrinsic) for each in listed] == [
        (each["pallet"], each["event"], each["extrinsic"]) for each in entry["events"]
    ]
    changes = events.twin_changes(value, runtime)
    assert [(change.twin.id, change.created) for change in changes] == [
        (each["twin"]["id"], each["event"] == "TwinStored") for each in entry["twin_events"]
    ]
    for change, expected in zip(changes, entry["twin_events"], strict=True):
        assert codec.encode(change.twin) in bytes.fromhex(expected["bytes"][2:])


def test_how_recorded_transactions_ended(runtime: Runtime) -> None:
    ends = {}
    for entry, value in zip(BLOCKS, VALUES, strict=True):
        if entry["count"] > 1:
            ends[entry["what"]] = events.failure(value, runtime, 1)
    failed = {what for what, name in ends.items() if name is not None}
    assert failed == {what for what in ends if "fails" in what}
    # These two have the same number in the runtime that recorded them and in the stand-in's.
    assert ends["second create_twin of one account: fails"] == "TwinWithPubkeyExists"
    assert ends["update_twin without a twin: fails"] == "TwinNotExists"


def test_a_transaction_that_is_not_in_the_block(runtime: Runtime) -> None:
    with pytest.raises(BlockUnreadableError, match="nothing of how transaction 9 ended"):
        events.failure(VALUES[0], runtime, 9)


@pytest.mark.parametrize(
    ("error", "name"),
    [
        ("03191b000000", "TwinNotExists"),
        ("0319ff000000", "error 255 of pallet 25"),
        ("03ee01000000", "error 1 of pallet 238"),
        ("00", "Other"),
        ("02", "BadOrigin"),
        ("0700", "Token.FundsUnavailable"),
        ("0801", "Arithmetic.Overflow"),
    ],
)
def test_names_of_errors(error: str, name: str, runtime: Runtime) -> None:
    # ExtrinsicFailed: the error, then weights, class and whether it pays.
    record = records.encode_record(b"\0\1", bytes.fromhex(error) + b"\4\4\0\0", 2)
    assert events.failure(records.encode_block([record]), runtime, 2) == name


@given(st.lists(twins, max_size=3))
def test_any_twin(runtime: Runtime, some: list[codec.Twin]) -> None:
    value = records.encode_block(
        [records.encode_record(b"\x19\x0c", codec.encode(each), n) for n, each in enumerate(some)]
    )
    assert [change.twin for change in events.twin_changes(value, runtime)] == some


@given(st.sampled_from(VALUES), st.data())
def test_damaged_blocks_give_changes_or_the_declared_error(
    runtime: Runtime, value: bytes, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(value) - 1))
    damaged = data.draw(
        st.sampled_from(
            [
                value[:place],
                value[:place] + bytes([data.draw(st.integers(0, 255))]) + value[place + 1 :],
                data.draw(st.binary(max_size=200)),
            ]
        )
    )
    for read in (
        lambda: events.twin_changes(damaged, runtime),
        lambda: events.failure(damaged, runtime, 1),
    ):
        try:
            read()
        except BlockUnreadableError as error:
            assert 0 < len(str(error)) < 400
