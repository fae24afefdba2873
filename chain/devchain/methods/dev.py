"""`dev_*`: methods that only the test node has. Parameters are passed by name.

Simulated faults do not affect these methods, so that they can be switched off again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from chain.devchain.bounds import (
    MAX_BLOCKS_PER_CALL,
    MAX_TOLD_BLOCKS_PER_CALL,
    MAX_TWINS_PER_CALL,
)
from chain.devchain.errors import GenesisError, KnobError
from chain.devchain.genesis import parse_account
from chain.devchain.jsonrpc import invalid_params
from chain.devchain.ledger import Block
from chain.devchain.methods.call import Call, Methods
from proto.chain.bounds import MAX_BALANCE, MAX_PK_BYTES, MAX_RELAY_BYTES, MAX_U32
from proto.chain.errors import ChainFormatError
from proto.chain.headers import from_hex, to_hex
from proto.chain.twin import Twin

PREFIX: Final = "dev_"


def _knobs(call: Call) -> object:
    _named(call, {})
    return call.node.knobs.to_json()


def _set_knobs(call: Call) -> object:
    if not isinstance(call.params, Mapping):
        raise invalid_params("knobs go by name")
    try:
        call.node.knobs.set(call.params)
    except KnobError as error:
        raise invalid_params(str(error)) from None
    call.site.apply_knobs()
    return call.node.knobs.to_json()


def _new_blocks(call: Call) -> object:
    given = _named(call, {"count": 1, "every": False})
    every = _flag(given, "every")
    highest = MAX_TOLD_BLOCKS_PER_CALL if every else MAX_BLOCKS_PER_CALL
    count = _number(given, "count", 1, highest)
    if not every:
        return _head(call.node.make_blocks(count))
    for _ in range(count):
        call.node.make_block()
    return _head(call.node.ledger.best)


def _fork(call: Call) -> object:
    given = _named(call, {"depth": 1, "count": None, "reinclude": True})
    depth = _number(given, "depth", 1, MAX_BLOCKS_PER_CALL - 1)
    if given["count"] is None:
        given["count"] = depth + 1
    count = _number(given, "count", 1, MAX_BLOCKS_PER_CALL)
    try:
        retracted = call.node.fork(depth, count, reinclude=_flag(given, "reinclude"))
    except ValueError as error:
        raise invalid_params(str(error)) from None
    hashes = [to_hex(block.hash) for block in retracted]
    return {**_head(call.node.ledger.best), "retracted": hashes}


def _put_twins(call: Call) -> object:
    given = _named(call, {"twins": [], "told": True})
    listed = given["twins"]
    if not isinstance(listed, list) or not 1 <= len(listed) <= MAX_TWINS_PER_CALL:
        raise invalid_params(f"twins must be a list of 1 to {MAX_TWINS_PER_CALL}")
    twins = [_twin(place, each) for place, each in enumerate(listed)]
    try:
        return _head(call.node.put_twins(twins, told=_flag(given, "told")))
    except ValueError as error:
        raise invalid_params(str(error)) from None


def _set_balance(call: Call) -> object:
    given = _named(call, {"account": "", "free": None})
    free = _number(given, "free", 0, MAX_BALANCE // 2)
    try:
        return _head(call.node.set_balance(parse_account(_text(given, "account")), free))
    except GenesisError as error:
        raise invalid_params(str(error)) from None


def _drop_connections(call: Call) -> object:
    _named(call, {})
    return call.site.drop_connections(call.caller)


def _counts(call: Call) -> object:
    _named(call, {})
    return call.site.counts()


def _twin(place: int, value: Any) -> Twin:
    where = f"twins[{place}]"
    if not isinstance(value, dict) or not value.keys() <= {"id", "account", "relay", "pk"}:
        raise invalid_params(f"{where} must have id, account, relay, pk and no others")
    number = _number(value, "id", 1, MAX_U32, where)
    relay = None if value.get("relay") is None else _bytes_of(value, "relay", where)
    if relay is not None and len(relay) > MAX_RELAY_BYTES:
        raise invalid_params(f"{where}: relay has more than {MAX_RELAY_BYTES} bytes")
    pk = value.get("pk")
    try:
        account = parse_account(_text(value, "account", where))
        return Twin(number, account, relay, (), from_hex("pk", pk, MAX_PK_BYTES) if pk else None)
    except (GenesisError, ChainFormatError) as error:
        raise invalid_params(f"{where}: {error}") from None


def _named(call: Call, defaults: dict[str, Any]) -> dict[str, Any]:
    params = call.params
    if not isinstance(params, Mapping):
        if params:
            raise invalid_params("parameters go by name")
        params = {}
    for name in params:
        if name not in defaults:
            raise invalid_params(f"takes {', '.join(defaults) or 'no parameters'}")
    return {**defaults, **params}


def _number(given: Mapping[str, Any], name: str, lowest: int, highest: int, where: str = "") -> int:
    value = given.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
        raise invalid_params(_at(where, f"{name} must be a number from {lowest} to {highest}"))
    return value


def _flag(given: Mapping[str, Any], name: str) -> bool:
    value = given[name]
    if not isinstance(value, bool):
        raise invalid_params(f"{name} must be true or false")
    return value


def _text(given: Mapping[str, Any], name: str, where: str = "") -> str:
    value = given.get(name)
    if not isinstance(value, str):
        raise invalid_params(_at(where, f"{name} must be text"))
    return value


def _bytes_of(given: Mapping[str, Any], name: str, where: str) -> bytes:
    try:
        # Tests write bytes that are not UTF-8 as Python does: one lone surrogate each.
        return _text(given, name, where).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise invalid_params(f"{where}: {name} is not a text") from None


def _at(where: str, problem: str) -> str:
    return f"{where}: {problem}" if where else problem


def _head(block: Block) -> dict[str, Any]:
    return {"number": block.number, "hash": to_hex(block.hash)}


METHODS: Final[Methods] = {
    "dev_counts": _counts,
    "dev_dropConnections": _drop_connections,
    "dev_fork": _fork,
    "dev_knobs": _knobs,
    "dev_newBlocks": _new_blocks,
    "dev_putTwins": _put_twins,
    "dev_setBalance": _set_balance,
    "dev_setKnobs": _set_knobs,
}
