"""Tests of every method over the wire: its answers, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from chain.devchain import calls, genesis, metadata
from chain.devchain.bounds import MAX_SUBSCRIPTIONS
from chain.devchain.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, RpcError
from chain.devchain.methods import author, chain, dev, state, system
from proto.chain import extrinsic, headers, scale, storage, twin
from proto.chain.headers import to_hex
from proto.chain.twin import Twin
from proto.identity import ss58
from tests.chain.devchain.chains import BOB, new_node, signed
from tests.chain.devchain.wire import connected, serving

TWINS = list(genesis.made_up_twins(12, b"a.example.com"))
REMARK = calls.REMARK + b"\0"
TERMS = extrinsic.terms_call(calls.ACCEPT_TERMS, b"https://example.org", b"a")
UNKNOWN = "0x" + "12" * 32
TWIN_1 = to_hex(storage.twin_key(1))


async def test_what_the_node_is() -> None:
    async with connected(new_node()) as wire:
        assert await wire.call("system_chain") == "TFChain stand-in"
        assert await wire.call("system_name") == "devchain"
        assert (await wire.call("system_properties"))["ss58Format"] == 42
        assert not (await wire.call("system_health"))["isSyncing"]
        assert await wire.call("system_chainType") == "Development"
        assert await wire.call("system_nodeRoles") == ["Authority"]
        assert await wire.call("system_version")
        listed = await wire.call("rpc_methods")
    groups = (author.METHODS, chain.METHODS, state.METHODS, system.METHODS)
    assert listed["methods"] == sorted({"rpc_methods"}.union(*groups))
    # substrate-interface chooses its methods by these; other clients warn about unknown names.
    assert {"chain_getHead", "state_getStorageAt", "state_call"} <= set(listed["methods"])
    assert not [name for name in listed["methods"] if name.startswith(dev.PREFIX)]


async def test_blocks() -> None:
    node = new_node()
    node.submit(signed(node, BOB, REMARK))
    node.make_blocks(3)
    best = node.ledger.best
    async with connected(node) as wire:
        genesis_hash = to_hex(node.ledger.genesis.hash)
        for name in ("chain_getBlockHash", "chain_getHead", "chain_getFinalizedHead"):
            assert await wire.call(name) == to_hex(best.hash)
        assert await wire.call("chain_getBlockHash", [None]) == to_hex(best.hash)
        assert await wire.call("chain_getBlockHash", [0]) == genesis_hash
        assert await wire.call("chain_getBlockHash", ["0x0"]) == genesis_hash
        assert await wire.call("chain_getBlockHash", [4]) is None
        assert await wire.call("chain_getBlockHash", [[0, 3, 4]]) == [
            *(genesis_hash, to_hex(best.hash), None)
        ]
        header = headers.from_json(await wire.call("chain_getHeader"))
        assert header == best.header and header.hash() == best.hash
        first = to_hex(node.ledger.at(1).hash)  # type: ignore[union-attr]
        block = await wire.call("chain_getBlock", [first])
        assert block["justifications"] is None
        assert headers.from_json(block["block"]["header"]).number == 1
        assert len(block["block"]["extrinsics"]) == 2
        assert await wire.call("chain_getHeader", [UNKNOWN]) is None
        assert await wire.call("chain_getBlock", [UNKNOWN]) is None


async def test_state() -> None:
    node = new_node(TWINS)
    node.put_twins([Twin(1, TWINS[0].account, b"b.example.com")], told=True)
    genesis_hash, best = to_hex(node.ledger.genesis.hash), to_hex(node.ledger.best.hash)
    async with connected(node) as wire:
        for name in ("state_getStorage", "state_getStorageAt"):
            assert await wire.call(name, [TWIN_1]) == await wire.call(name, [TWIN_1, best])
            old = bytes.fromhex((await wire.call(name, [TWIN_1, genesis_hash]))[2:])
            assert twin.decode(old) == TWINS[0]
            assert await wire.call(name, [to_hex(storage.twin_key(99))]) is None
        found = await wire.call("state_queryStorageAt", [[TWIN_1, "0x00"], genesis_hash])
        assert found == [
            {"block": genesis_hash, "changes": [[TWIN_1, to_hex(old)], ["0x00", None]]}
        ]
        prefix = to_hex(storage.TWINS)
        first = await wire.call("state_getKeysPaged", [prefix, 7, prefix, best])
        rest = await wire.call("state_getKeysPaged", [prefix, 1000, first[-1], best])
        ids = sorted(storage.twin_of_key(bytes.fromhex(key[2:])) for key in [*first, *rest])
        assert ids == list(range(1, 13))
        for name, params in (
            ("state_getStorage", [TWIN_1, UNKNOWN]),
            ("state_queryStorageAt", [[TWIN_1], UNKNOWN]),
            ("state_getKeysPaged", ["0x", 5, None, UNKNOWN]),
            ("state_getMetadata", [UNKNOWN]),
            ("state_getRuntimeVersion", [UNKNOWN]),
        ):
            with pytest.raises(RpcError, match="UnknownBlock: Header was not found") as error:
                await wire.call(name, params)
            assert error.value.code == 4003


async def test_the_runtime() -> None:
    node = new_node()
    node.submit(signed(node, BOB, REMARK))
    node.make_block()
    async with connected(node) as wire:
        version = await wire.call("state_getRuntimeVersion", [None])
        assert (version["specName"], version["specVersion"]) == ("substrate-threefold", 149)
        assert (version["transactionVersion"], version["stateVersion"]) == (2, 0)
        assert await wire.call("state_getMetadata") == to_hex(metadata.build())
        # As subxt and polkadot-js ask for it.
        blob = scale.blob("metadata", metadata.build(), 2**20)
        assert await wire.call("state_call", ["Metadata_metadata", "0x", None]) == to_hex(blob)
        versions = await wire.call("state_call", ["Metadata_metadata_versions", "0x"])
        assert versions == "0x040e000000"
        at = "Metadata_metadata_at_version"
        assert await wire.call("state_call", [at, "0x0e000000"]) == to_hex(b"\1" + blob)
        assert await wire.call("state_call", [at, "0x0f000000"]) == "0x00"
        nonce = ["AccountNonceApi_account_nonce", to_hex(BOB.account)]
        assert await wire.call("state_call", [*nonce, None]) == "0x01000000"
        genesis_hash = to_hex(node.ledger.genesis.hash)
        assert await wire.call("state_call", [*nonce, genesis_hash]) == "0x00000000"
        data = to_hex(signed(node, BOB, TERMS))
        size = len(data) // 2 - 1
        info = "TransactionPaymentApi_query_info"
        answer = await wire.call("state_call", [info, data + size.to_bytes(4, "little").hex()])
        fee = (10_000 + size).to_bytes(16, "little")
        assert answer == "0xe2bed3415538" + "00" + fee.hex()
        for name, argument in (
            ("AccountNonceApi_account_nonce", "0x00"),
            ("Metadata_metadata", "0x00"),
            (at, "0x"),
            ("TransactionPaymentApi_query_info", "0x0404000000"),
            ("TransactionPaymentApi_query_info", data + "00"),
            ("BabeApi_configuration", "0x"),
        ):
            with pytest.raises(RpcError, match="Execution failed: ") as error:
                await wire.call("state_call", [name, argument])
            assert error.value.code == 4003


async def test_nonces_count_what_waits() -> None:
    node = new_node()
    address = ss58.encode(BOB.account)
    async with connected(node) as wire:
        for count in range(3):
            assert await wire.call("system_accountNextIndex", [address]) == count
            assert await wire.call("account_nextIndex", [address]) == count
            data = to_hex(signed(node, BOB, REMARK))
            assert await wire.call("author_submitExtrinsic", [data])
        assert len(await wire.call("author_pendingExtrinsics")) == 3


async def test_a_transaction_is_watched_to_its_end() -> None:
    node = new_node()
    node.knobs.set({"instant": True})
    async with connected(node) as wire:
        data = to_hex(signed(node, BOB, REMARK))
        subscription = await wire.call("author_submitAndWatchExtrinsic", [data])
        told = [await wire.notification() for _ in range(3)]
        block = to_hex(node.ledger.best.hash)
        assert [each["method"] for each in told] == ["author_extrinsicUpdate"] * 3
        assert {each["params"]["subscription"] for each in told} == {subscription}
        assert [each["params"]["result"] for each in told] == [
            *("ready", {"inBlock": block}, {"finalized": block})
        ]
        # The final status ends the subscription.
        assert await wire.call("author_unwatchExtrinsic", [subscription]) is False
        assert data in (await wire.call("chain_getBlock", [block]))["block"]["extrinsics"]


async def test_a_refused_transaction_is_not_watched() -> None:
    node = new_node()
    async with connected(node) as wire:
        data = to_hex(signed(node, BOB, REMARK, nonce=0)[:-2] + b"\4\0")
        for name in ("author_submitAndWatchExtrinsic", "author_submitExtrinsic"):
            with pytest.raises(RpcError) as error:
                await wire.call(name, [data])
            assert error.value.code in (1001, 1002, 1010)
        assert (await wire.call("dev_counts"))["subscriptions"] == {}


async def test_who_stops_watching_is_told_nothing() -> None:
    node = new_node()
    async with connected(node) as wire:
        data = to_hex(signed(node, BOB, REMARK))
        subscription = await wire.call("author_submitAndWatchExtrinsic", [data])
        assert (await wire.notification())["params"]["result"] == "ready"
        assert await wire.call("author_unwatchExtrinsic", [subscription]) is True
        node.make_block()
        await wire.call("system_chain")
        assert not wire.told


@pytest.mark.parametrize(
    ("subscribe", "unsubscribe", "told_as"),
    [
        ("chain_subscribeNewHeads", "chain_unsubscribeNewHeads", "chain_newHead"),
        ("chain_subscribeNewHead", "chain_unsubscribeNewHead", "chain_newHead"),
        ("subscribe_newHead", "unsubscribe_newHead", "chain_newHead"),
        ("chain_subscribeAllHeads", "chain_unsubscribeAllHeads", "chain_allHead"),
        (
            "chain_subscribeFinalizedHeads",
            "chain_unsubscribeFinalizedHeads",
            "chain_finalizedHead",
        ),
        (
            "chain_subscribeFinalisedHeads",
            "chain_unsubscribeFinalisedHeads",
            "chain_finalizedHead",
        ),
    ],
)
async def test_heads(subscribe: str, unsubscribe: str, told_as: str) -> None:
    node = new_node()
    node.make_blocks(2)
    async with connected(node) as wire:
        # The answer comes first, then the current head.
        number = await wire.send(subscribe)
        answer = await wire.message()
        assert answer["id"] == number
        subscription = answer["result"]
        for expected in (2, 3, 4):
            told = await wire.notification()
            assert told["method"] == told_as
            assert told["params"]["subscription"] == subscription
            header = headers.from_json(told["params"]["result"])
            assert header == node.ledger.at(expected).header  # type: ignore[union-attr]
            node.make_block()
        await wire.notification()
        assert await wire.call(unsubscribe, [subscription]) is True
        assert await wire.call(unsubscribe, [subscription]) is False
        node.make_block()
        await wire.call("system_chain")
        assert not wire.told


async def test_versions_and_values_are_followed() -> None:
    node = new_node(TWINS)
    async with connected(node) as wire:
        subscription = await wire.call("state_subscribeRuntimeVersion")
        told = await wire.notification()
        assert told["method"] == "state_runtimeVersion"
        assert told["params"]["result"]["specVersion"] == 149
        assert await wire.call("state_unsubscribeRuntimeVersion", [subscription]) is True

        other = to_hex(storage.twin_key(2))
        subscription = await wire.call("state_subscribeStorage", [[TWIN_1, other]])
        told = await wire.notification()
        assert told["method"] == "state_storage"
        assert [key for key, _ in told["params"]["result"]["changes"]] == [TWIN_1, other]
        node.make_block()
        node.put_twins([Twin(1, TWINS[0].account)], told=False)
        changed = (await wire.notification())["params"]["result"]
        assert changed["block"] == to_hex(node.ledger.best.hash)
        assert changed["changes"] == [[TWIN_1, to_hex(twin.encode(Twin(1, TWINS[0].account)))]]
        assert await wire.call("state_unsubscribeStorage", [subscription]) is True


async def test_subscriptions_are_counted_and_bounded() -> None:
    async with serving(new_node()) as place:
        async with place.client() as wire:
            for _ in range(MAX_SUBSCRIPTIONS):
                await wire.call("chain_subscribeNewHeads")
            with pytest.raises(RpcError, match="Too many subscriptions") as error:
                await wire.call("chain_subscribeFinalizedHeads")
            assert error.value.code == -32006
            async with place.client() as other:
                counts = await other.call("dev_counts")
        assert counts["subscriptions"] == {"best_heads": MAX_SUBSCRIPTIONS}
        assert counts["connections"] == counts["accepted"] == 2
        assert counts["requests"]["chain_subscribeNewHeads"] == MAX_SUBSCRIPTIONS


async def test_they_go_with_their_connection() -> None:
    async with serving(new_node()) as place, place.client() as wire:
        async with place.client() as other:
            await other.call("chain_subscribeNewHeads")
        while (counts := await wire.call("dev_counts"))["connections"] > 1:
            pass
        assert counts["subscriptions"] == {}


async def test_methods_that_there_are_not() -> None:
    async with connected(new_node()) as wire:
        for name in ("chain_getBlok", "", "x" * 10_000, "dev_destroy"):
            with pytest.raises(RpcError, match="Method not found") as error:
                await wire.call(name)
            assert error.value.code == METHOD_NOT_FOUND
        assert (await wire.call("dev_counts"))["requests"] == {"(unknown)": 4, "dev_counts": 1}


BAD_PARAMS: list[tuple[str, Any]] = [
    ("system_chain", [1]),
    ("system_chain", {"a": 1}),
    ("chain_getBlockHash", ["abc"]),
    ("chain_getBlockHash", [-1]),
    ("chain_getBlockHash", [2**32]),
    ("chain_getBlockHash", [True]),
    ("chain_getBlockHash", [1.5]),
    ("chain_getBlockHash", [list(range(1001))]),
    ("chain_getBlockHash", [[[]]]),
    ("chain_getBlockHash", [0, 0]),
    ("chain_getHeader", ["0x12"]),
    ("chain_getHeader", [5]),
    ("chain_getHeader", [UNKNOWN + "00"]),
    ("chain_getBlock", ["0x" + "zz" * 32]),
    ("chain_unsubscribeNewHeads", []),
    ("chain_unsubscribeNewHeads", ["x" * 200]),
    ("state_getStorage", []),
    ("state_getStorage", ["0x" + "00" * 1025]),
    ("state_getStorage", ["twin"]),
    ("state_getStorage", [None]),
    ("state_getKeysPaged", ["0x"]),
    ("state_getKeysPaged", ["0x", 1001]),
    ("state_getKeysPaged", ["0x", -1]),
    ("state_queryStorageAt", [TWIN_1]),
    ("state_queryStorageAt", [[TWIN_1] * 1001]),
    ("state_queryStorageAt", [[None]]),
    ("state_subscribeStorage", []),
    ("state_call", ["Metadata_metadata"]),
    ("state_call", ["Metadata_metadata", None]),
    ("state_call", [5, "0x"]),
    ("system_accountNextIndex", ["nobody"]),
    ("system_accountNextIndex", []),
    ("author_submitExtrinsic", []),
    ("author_submitExtrinsic", ["00"]),
    ("author_submitAndWatchExtrinsic", [{"a": 1}]),
    ("dev_newBlocks", [5]),
    ("dev_newBlocks", {"count": 0}),
    ("dev_newBlocks", {"count": 20_001}),
    ("dev_newBlocks", {"count": 1001, "every": True}),
    ("dev_newBlocks", {"count": 1, "every": 1}),
    ("dev_newBlocks", {"number": 1}),
    ("dev_fork", {"depth": 1}),
    ("dev_fork", {"depth": 0}),
    ("dev_fork", {"depth": 1, "count": "2"}),
    ("dev_putTwins", {}),
    ("dev_putTwins", {"twins": [{}]}),
    ("dev_putTwins", {"twins": [5]}),
    ("dev_putTwins", {"twins": [{"id": 0, "account": UNKNOWN}]}),
    ("dev_putTwins", {"twins": [{"id": 1, "account": "0x12"}]}),
    ("dev_putTwins", {"twins": [{"id": 1, "account": "\ud800"}]}),
    ("dev_putTwins", {"twins": [{"id": 1, "account": UNKNOWN, "relay": 5}]}),
    ("dev_putTwins", {"twins": [{"id": 1, "account": UNKNOWN, "relay": "\ud800"}]}),
    ("dev_putTwins", {"twins": [{"id": 1, "account": UNKNOWN, "relay": "a" * 1025}]}),
    ("dev_putTwins", {"twins": [{"id": 1, "account": UNKNOWN, "pk": "0x" + "00" * 129}]}),
    ("dev_putTwins", {"twins": [{"id": 1, "account": UNKNOWN, "pk": 5}]}),
    ("dev_putTwins", {"twins": [{"id": 1, "account": UNKNOWN, "colour": 5}]}),
    ("dev_setBalance", {"account": UNKNOWN}),
    ("dev_setBalance", {"account": "nobody", "free": 1}),
    ("dev_setBalance", {"account": UNKNOWN, "free": 2**128}),
    ("dev_setKnobs", [1]),
    ("dev_setKnobs", {"stall": True}),
    ("dev_setKnobs", {"stalled": 1}),
    ("dev_setKnobs", {"delay_s": -1}),
    ("dev_setKnobs", {"delay_s": True}),
    ("dev_setKnobs", {"delay_s": 1e9}),
    ("dev_setKnobs", {"states_kept": -1}),
    ("dev_setKnobs", {"announce_every": 0}),
    ("dev_setKnobs", {"held": "state_getStorage"}),
    ("dev_setKnobs", {"held": [5]}),
    ("dev_setKnobs", {"failing": ["a"] * 65}),
    ("dev_dropConnections", [1]),
]


async def test_parameters_that_do_not_fit() -> None:
    node = new_node()
    async with connected(node) as wire:
        for name, params in BAD_PARAMS:
            with pytest.raises(RpcError, match="Invalid params") as error:
                await wire.call(name, params)
            assert error.value.code == INVALID_PARAMS, (name, params)
            assert error.value.data, (name, params)
    assert node.ledger.best.number == 0
    assert node.knobs == new_node().knobs
