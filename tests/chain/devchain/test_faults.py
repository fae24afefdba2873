"""Tests of faults that are switched on and off, block pace, and misbehaving clients."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from websockets.asyncio import client as websocket_client
from websockets.exceptions import ConnectionClosed, InvalidStatus

from chain.devchain import bounds, calls, connection, genesis
from chain.devchain.errors import JournalError
from chain.devchain.jsonrpc import RpcError
from chain.devchain.ledger import Block
from proto.chain import storage
from proto.chain.headers import from_json, to_hex
from tests.chain.devchain.chains import BOB, new_node, signed
from tests.chain.devchain.wire import TIMEOUT_S, Wire, connected, serving

TWINS = list(genesis.made_up_twins(2, b"a.example.com"))
TWIN_1 = to_hex(storage.twin_key(1))
REMARK = calls.REMARK + b"\0"


async def _numbers(wire: Wire, count: int) -> list[int]:
    told = [await wire.notification() for _ in range(count)]
    return [from_json(each["params"]["result"]).number for each in told]


async def test_blocks_come_by_the_clock() -> None:
    node = new_node()
    async with serving(node) as place, place.client() as wire, place.client() as control:
        await wire.call("chain_subscribeNewHeads")
        await control.call("dev_setKnobs", {"block_time_s": 0.01})
        assert await _numbers(wire, 4) == [0, 1, 2, 3]
        await control.call("dev_setKnobs", {"stalled": True})
        best = await wire.call("chain_getHeader")
        wire.told.clear()
        # Blocks can still be made by hand.
        assert (await control.call("dev_newBlocks"))["number"] == from_json(best).number + 1
        assert await _numbers(wire, 1) == [from_json(best).number + 1]
        await control.call("dev_setKnobs", {"stalled": False})
        assert await _numbers(wire, 1) == [from_json(best).number + 2]


async def test_blocks_come_with_transactions() -> None:
    node = new_node()
    async with connected(node) as wire:
        await wire.call("author_submitExtrinsic", [to_hex(signed(node, BOB, REMARK))])
        assert from_json(await wire.call("chain_getHeader")).number == 0
        await wire.call("chain_subscribeNewHeads")
        # A transaction that is already waiting gets a block too.
        await wire.call("dev_setKnobs", {"instant": True})
        assert await _numbers(wire, 2) == [0, 1]
        await wire.call("author_submitExtrinsic", [to_hex(signed(node, BOB, REMARK))])
        assert await _numbers(wire, 1) == [2]
        await wire.call("dev_setKnobs", {"stalled": True})
        await wire.call("author_submitExtrinsic", [to_hex(signed(node, BOB, REMARK))])
        assert await wire.call("author_pendingExtrinsics")
        await wire.call("dev_setKnobs", {"stalled": False})
        assert await _numbers(wire, 1) == [3]


async def test_finality_comes_later() -> None:
    node = new_node()
    node.knobs.set({"finality_delay_s": 0.01})
    async with connected(node) as wire:
        await wire.call("chain_subscribeFinalizedHeads")
        assert (await wire.call("dev_newBlocks"))["number"] == 1
        assert node.final.number == 0
        assert await _numbers(wire, 2) == [0, 1]


async def test_heads_are_skipped_and_muted() -> None:
    async with connected(new_node()) as wire:
        await wire.call("chain_subscribeNewHeads")
        await wire.call("dev_newBlocks", {"count": 700})
        await wire.call("dev_setKnobs", {"mute_heads": True})
        await wire.call("dev_newBlocks", {"count": 2, "every": True})
        await wire.call("dev_setKnobs", {"mute_heads": False, "announce_every": 2})
        await wire.call("dev_newBlocks", {"count": 4, "every": True})
        assert await _numbers(wire, 4) == [0, 700, 704, 706]


async def test_old_states_are_discarded() -> None:
    async with connected(new_node(TWINS)) as wire:
        genesis_hash = await wire.call("chain_getBlockHash", [0])
        await wire.call("dev_newBlocks", {"count": 300})
        assert await wire.call("state_getStorage", [TWIN_1, genesis_hash])
        await wire.call("dev_setKnobs", {"states_kept": 256})
        kept = await wire.call("chain_getBlockHash", [45])
        assert await wire.call("state_getStorage", [TWIN_1, kept])
        gone = await wire.call("chain_getBlockHash", [44])
        for name, params in (
            ("state_getStorage", [TWIN_1]),
            ("state_getStorageAt", [TWIN_1]),
            ("state_queryStorageAt", [[TWIN_1]]),
            ("state_getKeysPaged", [TWIN_1, 5, None]),
            ("state_call", ["AccountNonceApi_account_nonce", to_hex(BOB.account)]),
        ):
            with pytest.raises(RpcError, match="State already discarded for 0x") as error:
                await wire.call(name, [*params, gone])
            assert error.value.code == 4003
        # Headers and bodies are kept.
        assert await wire.call("chain_getBlock", [gone])
        assert await wire.call("state_getMetadata", [gone])


async def test_forks() -> None:
    async with connected(new_node()) as wire:
        await wire.call("dev_newBlocks", {"count": 5})
        await wire.call("chain_subscribeNewHeads")
        old = [await wire.call("chain_getBlockHash", [number]) for number in (4, 5)]
        forked = await wire.call("dev_fork", {"depth": 2})
        assert forked["number"] == 6
        assert forked["retracted"] == old[::-1]
        assert await wire.call("chain_getBlockHash", [5]) not in (None, old[1])
        assert from_json(await wire.call("chain_getHeader", [old[1]])).number == 5
        assert await _numbers(wire, 2) == [5, 6]


async def test_answers_are_held_as_they_were_when_asked() -> None:
    node = new_node(TWINS)
    async with serving(node) as place, place.client() as wire, place.client() as control:
        await control.call("dev_setKnobs", {"held": ["state_getStorage", "system_name"]})
        storage_id = await wire.send("state_getStorage", [TWIN_1])
        name_id = await wire.send("system_name")
        # Other requests are answered in the meantime.
        chain_id = await wire.send("system_chain")
        assert (await wire.message())["id"] == chain_id
        changed = {"id": 1, "account": to_hex(TWINS[0].account), "relay": "new.example.com"}
        await control.call("dev_putTwins", {"twins": [changed]})
        await control.call("dev_setKnobs", {"held": ["system_name"]})
        answer = await wire.message()
        assert answer["id"] == storage_id
        assert b"a.example.com" in bytes.fromhex(answer["result"][2:])
        await control.call("dev_setKnobs", {"held": []})
        assert (await wire.message())["id"] == name_id


async def test_held_subscriptions_answer_before_they_tell() -> None:
    async with serving(new_node()) as place, place.client() as wire, place.client() as control:
        await control.call("dev_setKnobs", {"held": ["*"]})
        number = await wire.send("chain_subscribeNewHeads")
        while not (await control.call("dev_counts"))["subscriptions"]:
            pass
        await control.call("dev_newBlocks")
        await control.call("dev_setKnobs", {"held": []})
        assert (await wire.message())["id"] == number
        assert await _numbers(wire, 2) == [0, 1]
        await control.call("dev_newBlocks")
        assert await _numbers(wire, 1) == [2]


async def test_methods_fail() -> None:
    async with connected(new_node(TWINS)) as wire:
        await wire.call("dev_setKnobs", {"failing": ["state_getStorage"]})
        with pytest.raises(RpcError, match="Internal error") as error:
            await wire.call("state_getStorage", [TWIN_1])
        assert error.value.code == -32603
        assert await wire.call("state_getStorageAt", [TWIN_1])
        await wire.call("dev_setKnobs", {"failing": ["*"]})
        with pytest.raises(RpcError):
            await wire.call("system_chain")
        await wire.call("dev_setKnobs", {"failing": []})
        assert await wire.call("state_getStorage", [TWIN_1])


async def test_answers_are_late() -> None:
    async with connected(new_node()) as wire:
        await wire.call("dev_setKnobs", {"delay_s": 0.05})
        loop = asyncio.get_running_loop()
        begin = loop.time()
        await wire.call("system_chain")
        assert loop.time() - begin >= 0.05
        # Answers to several requests have the same delay; the delays do not add up.
        begin = loop.time()
        for _ in range(100):
            await wire.send("system_chain")
        for _ in range(100):
            await wire.message()
        assert 0.05 <= loop.time() - begin < 100 * 0.05
        assert (await wire.call("dev_knobs"))["delay_s"] == 0.05
        # Heads are delayed too, and never come before the answer that names the subscription.
        number = await wire.send("chain_subscribeNewHeads")
        await wire.send("dev_newBlocks")
        assert (await wire.message())["id"] == number + 1
        assert (await wire.message())["id"] == number
        assert await _numbers(wire, 2) == [0, 1]


async def test_connections_are_dropped() -> None:
    async with serving(new_node()) as place, place.client() as control:
        async with place.client() as wire:
            await wire.call("chain_subscribeNewHeads")
            assert await control.call("dev_dropConnections") == 1
            await wire.notification()
            with pytest.raises(ConnectionClosed) as closed:
                await wire.message()
            assert closed.value.rcvd is None  # no close frame
        assert await control.call("system_chain")


async def test_connections_are_refused() -> None:
    async with serving(new_node()) as place, place.client() as control:
        await control.call("dev_setKnobs", {"refuse_connections": True})
        with pytest.raises(InvalidStatus) as refused:
            async with place.client():
                pass
        assert refused.value.response.status_code == 503
        await control.call("dev_setKnobs", {"refuse_connections": False})
        async with place.client() as wire:
            assert await wire.call("system_chain")


async def test_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chain.devchain.server.MAX_CONNECTIONS", 2)
    async with serving(new_node()) as place, place.client() as first, place.client():
        with pytest.raises(InvalidStatus) as refused:
            async with place.client():
                pass
        assert refused.value.response.status_code == 503
        assert await first.call("system_chain")


MALFORMED: list[tuple[str | bytes, int, Any]] = [
    ("", -32700, None),
    ("{", -32700, None),
    (b"\xff\xfe", -32700, None),
    ("[" * 200_000, -32700, None),
    ('{"id":' + "9" * 10_000 + "}", -32700, None),
    ("null", -32600, None),
    ("5", -32600, None),
    ("{}", -32600, None),
    ('{"jsonrpc":"1.0","id":7,"method":"system_chain"}', -32600, 7),
    ('{"jsonrpc":"2.0","id":"a","method":5}', -32600, "a"),
    ('{"jsonrpc":"2.0","id":8,"method":"system_chain","params":5}', -32600, 8),
    ('{"jsonrpc":"2.0","method":"system_chain"}', -32600, None),
    ('{"jsonrpc":"2.0","id":[1],"method":"nothing"}', -32601, None),
    ('{"jsonrpc":"2.0","id":true,"method":"nothing"}', -32601, None),
    (json.dumps({"jsonrpc": "2.0", "id": "x" * 200, "method": "nothing"}), -32601, None),
    ('{"jsonrpc":"2.0","id":"\\ud800","method":"\\ud800"}', -32601, "\ud800"),
    ("[]", -32005, None),
    ('[{"jsonrpc":"2.0","id":1,"method":"system_chain"}]', -32005, None),
]


async def test_malformed_requests_are_answered() -> None:
    async with connected(new_node()) as wire:
        for message, code, request_id in MALFORMED:
            await wire.socket.send(message)
            answer = await wire.message()
            assert (answer["error"]["code"], answer["id"]) == (code, request_id), message[:100]
        assert await wire.call("system_chain")


async def test_huge_requests_end_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chain.devchain.server.MAX_REQUEST_BYTES", 100_000)
    async with serving(new_node()) as place:
        async with place.client() as wire:
            await wire.socket.send("x" * 100_001)
            with pytest.raises(ConnectionClosed) as closed:
                await wire.message()
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009
        async with place.client() as wire:
            assert await wire.call("system_chain")
    assert bounds.MAX_REQUEST_BYTES > 2 * 5 * 1024 * 1024


async def test_who_does_not_read_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_WAITING_MESSAGES", 50)
    node = new_node()
    async with serving(node) as place, place.client() as control:
        async with websocket_client.connect(place.url, compression=None, max_queue=1) as socket:
            request = {"jsonrpc": "2.0", "id": 1, "method": "state_getMetadata"}
            async with asyncio.timeout(TIMEOUT_S):
                with pytest.raises(ConnectionClosed):
                    while True:
                        await socket.send(json.dumps(request))
        assert await control.call("system_chain")


async def test_too_many_held_answers_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_HELD_ANSWERS", 5)
    async with serving(new_node()) as place, place.client() as control:
        await control.call("dev_setKnobs", {"held": ["*"]})
        async with place.client() as wire:
            for _ in range(6):
                await wire.send("system_chain")
            with pytest.raises(ConnectionClosed):
                await wire.message()


async def test_a_mistake_in_a_method_is_an_internal_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = new_node()
    monkeypatch.setattr(node.pool, "pending", None)
    async with connected(node) as wire:
        with pytest.raises(RpcError, match="Internal error"):
            await wire.call("author_pendingExtrinsics")
        assert await wire.call("system_chain")
    assert "author_pendingExtrinsics failed" in caplog.text


class _FullDisk:
    def append(self, block: Block) -> None:
        raise JournalError("chain.jsonl: No space left on device")

    def flush(self) -> None:
        pass


async def test_a_full_disk_ends_the_node() -> None:
    for knobs, request in (
        ({}, "dev_newBlocks"),
        ({"block_time_s": 0.01}, "system_chain"),
    ):
        node = new_node(journal=_FullDisk())
        node.knobs.set(knobs)
        async with serving(node) as place, place.client() as wire:
            await wire.send(request)
            with pytest.raises(JournalError, match="No space left"):
                async with asyncio.timeout(TIMEOUT_S):
                    await place.server.run()


async def test_a_full_chain_stops_by_itself(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("chain.devchain.ledger.MAX_BLOCKS", 3)
    node = new_node()
    async with connected(node) as wire:
        await wire.call("chain_subscribeNewHeads")
        await wire.call("dev_setKnobs", {"block_time_s": 0.01})
        assert await _numbers(wire, 3) == [0, 1, 2]
        while not (await wire.call("dev_knobs"))["stalled"]:
            await asyncio.sleep(0)
        for name, params in (
            ("dev_newBlocks", {}),
            ("dev_fork", {"depth": 1}),
            ("dev_setBalance", {"account": to_hex(BOB.account), "free": 1}),
            ("dev_putTwins", {"twins": [{"id": 1, "account": to_hex(BOB.account)}]}),
        ):
            with pytest.raises(RpcError, match="at most 3 are kept"):
                await wire.call(name, params)
    assert "no more blocks are made by themselves" in caplog.text
