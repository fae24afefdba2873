"""Fuzz the test node: any message, any transaction, and any order of operations.

Every message gets one answer, never an internal error; a refused transaction leaves no trace; and
twins, accounts and balances are always consistent.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from chain.devchain import accounts, calls, genesis
from chain.devchain.connection import Connection
from chain.devchain.errors import InvalidTransactionError
from chain.devchain.knobs import Knobs
from chain.devchain.ledger import Ledger
from chain.devchain.node import Node
from chain.devchain.server import Server
from proto.chain import events, extrinsic, storage, twin
from proto.chain.headers import to_hex
from proto.chain.twin import Twin
from proto.identity.signing import SigningKey

_KEYS = [genesis.development_key(name) for name in ("Alice", "Bob", "Charlie")]  # TEST KEYS
_ACCOUNTS = [bytes([number]) * 32 for number in range(1, 6)]
_GENESIS = genesis.block(genesis.state([Twin(1, _ACCOUNTS[0], b"r1.example.com")]))
_TERMS = extrinsic.terms_call(calls.ACCEPT_TERMS, b"https://example.org", b"a")
_CALLS = [
    calls.REMARK + b"\0",
    _TERMS,
    extrinsic.twin_call(calls.CREATE_TWIN, b"r1.example.com", b"\2" * 33),
    extrinsic.twin_call(calls.CREATE_TWIN, None, None),
    extrinsic.twin_call(calls.UPDATE_TWIN, b"r2.example.com_r1.example.com", None),
    extrinsic.twin_call(calls.UPDATE_TWIN, b"r.example.com", b""),
]
_ODD: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**31, 2**64, 1e400, 1.5, "", "0x", "0x0", "0xzz"),
    *("0x" + "00" * 32, "\ud800", "devchain1", "chain_newHead", [], {}, [[]], {"a": 1}),
]
_DEV_PARAMS: list[dict[str, Any]] = [
    *({}, {"count": 2}, {"count": 2, "every": True}, {"depth": 1}, {"depth": 2, "count": 9}),
    {"twins": [{"id": 1, "account": to_hex(_ACCOUNTS[0]), "relay": "a b:\udcff"}]},
    {"twins": [{"id": 2, "account": to_hex(_ACCOUNTS[1]), "pk": "0x00"}], "told": False},
    {"account": to_hex(_ACCOUNTS[2]), "free": 10**9},
    *({"states_kept": 1}, {"mute_heads": True}, {"failing": ["*"]}, {"failing": []}),
]


class _Clock:
    def __call__(self) -> float:
        return 1_700_000_000.0


class _Socket:
    """The parts of a websocket that a connection needs while nothing is sent."""

    class transport:
        @staticmethod
        def abort() -> None:
            raise AssertionError("the connection was cut")


def _new_node() -> Node:
    knobs = Knobs(block_time_s=0, finality_delay_s=0)
    return Node(Ledger(_GENESIS), knobs, _Clock(), _KEYS[0].account)


def messages(rng: random.Random) -> None:
    """Send requests of any kind, some damaged: each gets one answer, none is an internal error."""
    node = _new_node()
    connection = Connection(_Socket(), node, Server(node))  # type: ignore[arg-type]
    node.listeners.add(connection)
    for _ in range(rng.randint(1, 12)):
        message = _message(rng, node)
        before = len(connection._waiting)
        connection.receive(message)
        answers = [json.loads(each) for each in list(connection._waiting)[before:]]
        answer = [each for each in answers if "method" not in each]
        assert len(answer) == 1, message
        failing = bool(node.knobs.failing)
        error = answer[0].get("error")
        assert error is None or error["code"] != -32603 or failing, message
    _check(node)


def transactions(rng: random.Random) -> None:
    """Submit damaged transactions: they are refused with a node's codes, unless nothing changed."""
    node = _new_node()
    key = rng.choice(_KEYS)
    good = extrinsic.sign(rng.choice(_CALLS), key, node.chain, rng.choice((0, 0, 0, 1, 7)))
    data = bytearray(good)
    for _ in range(rng.randint(0, 3)):
        place = rng.randrange(len(data))
        if rng.random() < 0.2:
            del data[place : place + rng.randint(1, 4)]
        else:
            data[place] = rng.choice((0, 0xFF, data[place] ^ 1 << rng.randrange(8)))
        if not data:
            break
    try:
        node.submit(bytes(data))
    except InvalidTransactionError as error:
        assert error.code in (1001, 1002, 1010, 1011)
        assert len(node.pool) == 0
        assert len(str(error)) < 1000
    else:
        assert data == good
    node.make_block()
    _check(node)


def lives(rng: random.Random) -> None:
    """Run transactions, changes by hand, blocks and forks in any order."""
    node = _new_node()
    node.knobs.set({"finality_lag": rng.choice((0, 0, 2))})
    for _ in range(rng.randint(1, 25)):
        rng.choice(_ACTIONS)(rng, node)
    _check(node)


def _submit(rng: random.Random, node: Node) -> None:
    key = rng.choice(_KEYS)
    nonce = node.pool.next_nonce(key.account, node.nonce_of(key.account))
    nonce += rng.choice((0, 0, 0, 1))
    data = extrinsic.sign(rng.choice(_CALLS), key, node.chain, nonce, rng.choice((0, 5)))
    try:
        node.submit(data, lambda fate: None)
    except InvalidTransactionError as error:
        assert error.code in (1010, 1013, 1014)


def _make_block(rng: random.Random, node: Node) -> None:
    node.make_blocks(rng.randint(1, 3))


def _put_twins(rng: random.Random, node: Node) -> None:
    number = rng.randint(1, 5)
    changed = Twin(number, _ACCOUNTS[number - 1], rng.choice((None, b"a:1")), (), None)
    try:
        node.put_twins([changed], told=rng.random() < 0.5)
    except ValueError:
        # A transaction created a twin with this number, or the account has another twin.
        assert node.state().get(storage.twin_key(number))


def _fork(rng: random.Random, node: Node) -> None:
    depth = rng.randint(1, 4)
    if depth <= node.ledger.best.number:
        node.fork(depth, depth + rng.randint(1, 2), reinclude=rng.random() < 0.7)


_ACTIONS: list[Callable[[random.Random, Node], None]] = [
    *(_submit, _submit, _submit, _make_block, _make_block, _put_twins, _fork)
]


def _check(node: Node) -> None:
    """Check that the newest state is consistent, and that every block fits its parent."""
    best = node.ledger.best
    node.ledger.states_kept = 0
    issued = 0
    for key in node.ledger.keys(storage.ACCOUNTS, b"", 1000, best):
        issued += accounts.decode(node.ledger.value(key, best)).free
    total = node.ledger.value(accounts.TOTAL_ISSUANCE, best) or b""
    assert issued == int.from_bytes(total, "little")
    last = int.from_bytes(node.ledger.value(storage.LAST_TWIN_ID, best) or b"", "little")
    for key in node.ledger.keys(storage.TWINS, b"", 1000, best):
        found = twin.decode(node.ledger.value(key, best) or b"")
        assert found.id == storage.twin_of_key(key) <= last
        owner = node.ledger.value(storage.twin_id_key(found.account), best) or b""
        assert int.from_bytes(owner, "little") == found.id
    for number in range(1, best.number + 1):
        parent, block = node.ledger.at(number - 1), node.ledger.at(number)
        assert parent is not None and block is not None
        assert block.header.parent_hash == parent.hash == parent.header.hash()
        value = node.ledger.value(storage.EVENTS, block) or b""
        assert events.count(value) >= len(block.extrinsics)
    assert node.final.number <= best.number and node.ledger.is_best_chain(node.final)


def _message(rng: random.Random, node: Node) -> str | bytes:
    method = rng.choice(_METHODS)
    if method.startswith("dev_") and rng.random() < 0.8:
        params: Any = rng.choice(_DEV_PARAMS)
    else:
        params = [_param(rng, node) for _ in range(rng.choice((0, 0, 1, 1, 2, 3)))]
    request = {"jsonrpc": "2.0", "id": rng.choice((1, "a")), "method": method, "params": params}
    if rng.random() < 0.1:
        request[rng.choice(("jsonrpc", "id", "method", "params"))] = rng.choice(_ODD)
    text = json.dumps(request)
    if rng.random() < 0.1:
        place = rng.randrange(len(text))
        text = text[:place] + rng.choice(("", "\0", '"', "[", "9" * 5000)) + text[place + 1 :]
    return text.encode("utf-8", "surrogatepass") if rng.random() < 0.1 else text


def _param(rng: random.Random, node: Node) -> Any:
    if rng.random() < 0.3:
        return rng.choice(_ODD)
    key: SigningKey = rng.choice(_KEYS)
    return rng.choice(
        (
            to_hex(node.ledger.best.hash),
            to_hex(node.ledger.genesis.hash),
            to_hex(storage.twin_key(1)),
            to_hex(storage.TWINS),
            [to_hex(storage.twin_key(1)), to_hex(storage.EVENTS)],
            to_hex(key.account),
            rng.choice(("AccountNonceApi_account_nonce", "Metadata_metadata")),
            to_hex(extrinsic.sign(rng.choice(_CALLS), key, node.chain, rng.randint(0, 2))),
            rng.randint(0, 20),
        )
    )


_METHODS = [*Server(_new_node())._methods, "unknown", ""]
_METHODS.remove("dev_dropConnections")


def targets() -> list[tuple[str, Callable[[random.Random], None]]]:
    """Return the name and the function of each target."""
    return [
        ("devchain.messages", messages),
        ("devchain.transactions", transactions),
        ("devchain.lives", lives),
    ]
