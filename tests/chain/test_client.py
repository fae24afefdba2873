"""Tests of a client of one node: reading from a good node, and detecting one that lies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from chain.client import Node
from chain.errors import BlockUnreadableError, NodeError, StateDiscardedError
from proto.chain import storage
from proto.chain import twin as codec
from proto.chain.headers import Header, to_hex
from proto.chain.twin import Twin
from tests.chain.scripted_node import by_method, scripted_node
from tests.support.devchain import Devchain, as_json
from tests.support.identities import twin


@pytest.fixture
def node(devchain: Devchain) -> Iterator[Node]:
    node = Node(devchain.url)
    yield node
    node.close()


def test_twins_are_read_as_they_are_on_the_chain(devchain: Devchain, node: Node) -> None:
    # A general library returns each of these as different bytes.
    keys = [b"0x41414141", bytes(33), b"AAAA", b"\xff\xfe", b""]
    for number, pk in enumerate(keys, 1):
        devchain.put_twin(twin(number), pk=pk)
    devchain.put_twins([as_json(twin(6)) | {"pk": None, "relay": None}])
    devchain.put_twins([as_json(twin(7)) | {"relay": "\udcff_0x41"}])
    head, found = node.twins([1, 2, 3, 4, 6, 7, 7, 99])
    assert head.height == 7
    assert sorted(found) == [1, 2, 3, 4, 6, 7]
    assert [found[number].pk for number in (1, 2, 3, 4)] == keys[:4]
    assert (found[6].relay, found[6].pk) == (None, None)
    assert found[7].relay == b"\xff_0x41"
    assert found[7].account == twin(7).account


def test_a_look_up_of_many_is_one_query(devchain: Devchain, node: Node) -> None:
    before = devchain.counts()["requests"]
    assert len(node.twins(range(1, 400)).found) == 9
    node.twins(range(1, 400))
    after = devchain.counts()["requests"]
    assert after["state_queryStorageAt"] - before.get("state_queryStorageAt", 0) == 2
    # The height of a block is requested only once.
    assert after["chain_getHeader"] - before.get("chain_getHeader", 0) == 1


def test_other_reads(devchain: Devchain, node: Node) -> None:
    assert node.last_twin_id() == 9
    assert node.twin_id_of(twin(5).account) == (node.twins([]).head, 5)
    assert node.twin_id_of(bytes(32))[1] is None
    best = node.best()
    devchain.new_blocks(3)
    hashes = node.block_hashes([0, 1, 3, 4])
    assert hashes[0] == best.hash()
    assert hashes[3] is None
    headers = node.headers([hashes[1], b"x" * 32, None])
    assert headers[0] is not None and headers[0].parent_hash == best.hash()
    assert headers[1] is None
    assert headers[2] is not None and headers[2].number == 3


def test_pages(devchain: Devchain, node: Node) -> None:
    found: list[Twin] = []
    start, sizes = None, []
    while (page := node.page(start, size=4)) is not None:
        found += page.twins
        sizes.append(len(page.twins))
        start = page.next_key
        assert page.head.height == 0
    assert sizes == [4, 4, 1]
    assert sorted(each.id for each in found) == list(range(1, 10))


def test_events_of_a_discarded_state(devchain: Devchain, node: Node) -> None:
    devchain.new_blocks(5)
    header = node.header(node.block_hashes([1])[0])
    assert header is not None
    assert node.changes([header]) == [()]
    devchain.set(states_kept=2)
    with pytest.raises(StateDiscardedError):
        node.changes([header])
    assert node.usable


HEADER = Header(bytes(32), 7, bytes(32), bytes(32))
HASH = to_hex(HEADER.hash())
ONE = to_hex(codec.encode(Twin(1, bytes(32))))
KEY, OTHER_KEY = (to_hex(storage.twin_key(number)) for number in (1, 2))

NONE = [KEY, None]


def _changes(*changes: list[Any], block: Any = HASH) -> Any:
    return [{"block": block, "changes": list(changes)}]


@pytest.mark.parametrize(
    ("answers", "ask", "problem"),
    [
        ({"state_queryStorageAt": []}, lambda n: n.twins([1]), "not the storage values"),
        ({"state_queryStorageAt": None}, lambda n: n.twins([1]), "not the storage values"),
        ({"state_queryStorageAt": [{}]}, lambda n: n.twins([1]), "not the storage values"),
        ({"state_queryStorageAt": _changes([KEY])}, lambda n: n.twins([1]), "not the storage"),
        ({"state_queryStorageAt": _changes([KEY, "0x01"])}, lambda n: n.twins([1]), "twin.id"),
        ({"state_queryStorageAt": _changes([KEY, 7])}, lambda n: n.twins([1]), "begins with 0x"),
        ({"state_queryStorageAt": _changes([7, ONE])}, lambda n: n.twins([1]), "begins with 0x"),
        ({"state_queryStorageAt": _changes([OTHER_KEY, ONE])}, lambda n: n.twins([1]), "nobody"),
        ({"state_queryStorageAt": _changes(NONE, NONE)}, lambda n: n.twins([1]), "nobody asked"),
        (
            {"state_queryStorageAt": _changes()},
            lambda n: n.twins([1]),
            "1 storage values are missing",
        ),
        (
            {"state_queryStorageAt": _changes(NONE, block="0x")},
            lambda n: n.twins([1]),
            "a hash of 0 bytes",
        ),
        (
            {"state_queryStorageAt": _changes(NONE)},
            lambda n: n.twins([1], b"x" * 32),
            "another block",
        ),
        (
            {"state_queryStorageAt": _changes(NONE), "chain_getHeader": None},
            lambda n: n.twins([1]),
            "does not know the block",
        ),
        (
            # The wrong twin under the right key.
            {"state_queryStorageAt": _changes([OTHER_KEY, ONE])},
            lambda n: n.twins([2]),
            "twin 1 under the key of another",
        ),
        ({"chain_getHeader": None}, lambda n: n.best(), "no best block"),
        ({"chain_getHeader": {"number": "0x1"}}, lambda n: n.best(), "header: digest"),
        ({"chain_getBlockHash": "0x00"}, lambda n: n.block_hashes([1]), "a hash of 1 bytes"),
        ({"chain_getBlockHash": 7}, lambda n: n.block_hashes([1]), "begins with 0x"),
        (
            {"state_getKeysPaged": [KEY], "state_queryStorageAt": _changes(NONE)},
            lambda n: n.page(),
            "a storage key without a value",
        ),
        ({"state_getKeysPaged": {}}, lambda n: n.page(), "not a list"),
        ({"state_getKeysPaged": [KEY] * 501}, lambda n: n.page(), "at most 500"),
        ({"state_getKeysPaged": [KEY, KEY]}, lambda n: n.page(), "out of order"),
        (
            {"state_getKeysPaged": [KEY]},
            lambda n: n.page(storage.twin_key(1)),
            "out of order",
        ),
        (
            {"state_getRuntimeVersion": {"specVersion": "1"}, "state_getStorage": "0x00"},
            lambda n: n.changes([HEADER]),
            "no version of a runtime",
        ),
        (
            {
                "state_getRuntimeVersion": {"specVersion": 1, "transactionVersion": 1},
                "state_getStorage": "0x00",
                "state_getMetadata": "0x6d657461ff",
            },
            lambda n: n.changes([HEADER]),
            "unreadable metadata",
        ),
    ],
)
def test_wrong_answers_are_found_out(
    answers: dict[str, Any], ask: Callable[[Node], Any], problem: str
) -> None:
    defaults = {"chain_getHeader": HEADER.to_json(), "rpc_methods": {"methods": []}}
    with scripted_node(by_method(**defaults | answers)) as url:
        node = Node(url)
        try:
            with pytest.raises(NodeError, match=problem):
                ask(node)
        finally:
            node.close()


def test_another_header_than_was_asked_for_is_none() -> None:
    with scripted_node(by_method(chain_getHeader=HEADER.to_json())) as url:
        node = Node(url)
        assert node.headers([b"x" * 32, HEADER.hash()]) == [None, HEADER]
        node.close()


def test_events_that_do_not_decode(devchain: Devchain, node: Node) -> None:
    devchain.new_blocks()
    runtime = node.events(node.best().hash())[1]
    for value in (b"\4", b"\4\0", bytes.fromhex("04ff"), b"\xff" * 9, bytes.fromhex("feffffff")):
        with pytest.raises(BlockUnreadableError):
            list(runtime.records(value))
