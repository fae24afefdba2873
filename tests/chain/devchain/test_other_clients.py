"""Requests of clients in other languages, call by call, as seen on the wire.

rmb-rs is built on subxt 0.28, the Go peer on gsrpc 4.0.12, the TypeScript client on @polkadot/api.
"""

from __future__ import annotations

from chain.devchain import accounts, calls, genesis
from proto.chain import events, extrinsic, headers, storage, twin
from proto.chain.headers import to_hex
from proto.chain.scale import Reader
from proto.chain.twin import Twin
from proto.identity import ss58
from tests.chain.devchain.chains import BOB, new_node
from tests.chain.devchain.wire import connected

TWINS = list(genesis.made_up_twins(3, b"a.example.com"))
STORED, UPDATED = calls.TWIN_STORED, calls.TWIN_UPDATED
EVENTS = to_hex(storage.EVENTS)


def _raw(text: str) -> bytes:
    return bytes.fromhex(text[2:])


async def test_subxt_looks_up_and_listens() -> None:
    node = new_node(TWINS)
    async with connected(node) as wire:
        # On connecting, all at once.
        asked = [
            await wire.send("chain_getBlockHash", [0]),
            await wire.send("state_getRuntimeVersion", [None]),
            await wire.send("state_call", ["Metadata_metadata", "0x", None]),
        ]
        answers = [await wire.message() for _ in asked]
        assert [each["id"] for each in answers] == asked
        wrapped = Reader(_raw(answers[2]["result"]))
        assert wrapped.blob("metadata", 2**20)[:5] == b"meta\x0e"
        wrapped.finish("metadata")

        best = await wire.call("chain_getBlockHash", [None])
        value = await wire.call("state_getStorage", [to_hex(storage.twin_key(2)), best])
        assert twin.decode(_raw(value)) == TWINS[1]

        await wire.call("chain_subscribeNewHeads", [])
        await wire.notification()
        changed = Twin(2, TWINS[1].account, b"b.example.com")
        node.put_twins([changed], told=True)
        head = headers.from_json((await wire.notification())["params"]["result"])
        # The client computes the hash.
        value = _raw(await wire.call("state_getStorage", [EVENTS, to_hex(head.hash())]))
        assert events.count(value) == 2
        offset = value.index(UPDATED) - 5
        change = events.read_twin_record(value, offset, STORED, UPDATED)
        assert change == events.TwinChange(changed, created=False)

        # Catching up: the head, its number, and the blocks in between.
        node.make_blocks(5)
        best = await wire.call("chain_getBlockHash", [None])
        number = headers.from_json(await wire.call("chain_getHeader", [best])).number
        for missed in range(head.number + 1, number + 1):
            block = await wire.call("chain_getBlockHash", [missed])
            value = _raw(await wire.call("state_getStorage", [EVENTS, block]))
            assert events.count(value) == 1


async def test_subxt_updates_its_twin() -> None:
    node = new_node([Twin(1, BOB.account)])
    node.knobs.set({"instant": True})
    async with connected(node) as wire:
        nonce = await wire.call("system_accountNextIndex", [ss58.encode(BOB.account)])
        call = extrinsic.twin_call(calls.UPDATE_TWIN, b"r1.example.com", b"\2" * 33)
        data = to_hex(extrinsic.sign(call, BOB, node.chain, nonce))
        await wire.call("author_submitAndWatchExtrinsic", [data])
        told = [(await wire.notification())["params"]["result"] for _ in range(3)]
        final = told[-1]["finalized"]
        block = (await wire.call("chain_getBlock", [final]))["block"]
        assert block["extrinsics"].index(data) == 1
        value = _raw(await wire.call("state_getStorage", [EVENTS, final]))
        offset = value.index(UPDATED) - 5
        change = events.read_twin_record(value, offset, STORED, UPDATED)
        assert change is not None and change.twin.relay == b"r1.example.com"


async def test_gsrpc_connects_and_asks_the_time() -> None:
    node = new_node(TWINS)
    node.make_block()
    async with connected(node) as wire:
        assert (await wire.call("state_getMetadata")).startswith("0x6d6574610e")
        assert await wire.call("chain_getBlockHash", [0]) == to_hex(node.ledger.genesis.hash)
        await wire.call("state_getRuntimeVersion")
        now = await wire.call("state_getStorage", [to_hex(calls.NOW)])
        # It refuses a node whose time is more than 12 s behind its own.
        assert int.from_bytes(_raw(now), "little") == int(node._clock() * 1000)
        account = await wire.call("state_getStorage", [to_hex(storage.account_key(BOB.account))])
        assert accounts.decode(_raw(account)).free == genesis.DEVELOPMENT_BALANCE
        await wire.call("chain_subscribeNewHead")
        assert (await wire.notification())["method"] == "chain_newHead"


async def test_polkadot_js_connects_and_reads() -> None:
    async with connected(new_node(TWINS)) as wire:
        for method, params in (
            ("system_chain", []),
            ("system_properties", []),
            ("rpc_methods", []),
            ("state_getMetadata", []),
            ("chain_getBlockHash", [0]),
            ("state_getRuntimeVersion", []),
            ("state_subscribeRuntimeVersion", []),
            ("state_call", ["Metadata_metadata_versions", "0x"]),
            ("chain_getHeader", []),
            ("chain_getFinalizedHead", []),
        ):
            assert await wire.call(method, params)
        key = to_hex(storage.twin_id_key(TWINS[2].account))
        ((changes,),) = (
            [each["changes"] for each in await wire.call("state_queryStorageAt", [[key]])],
        )
        assert changes == [[key, "0x03000000"]]
