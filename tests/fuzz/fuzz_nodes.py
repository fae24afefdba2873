"""Fuzz the reading of a node's answers: valid ones with parts replaced by any JSON.

Only NodeError may be raised, with a text that fits a log line; every value that is read has the
expected type.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from chain.client import Node, Page, Twins
from chain.errors import NodeError
from proto.chain import scale, storage, twin
from proto.chain.headers import Header, to_hex
from proto.chain.twin import Twin

_HEADER = Header(bytes(32), 300, bytes(32), bytes(32), (b"\x06aura\0",))
_HASH = to_hex(_HEADER.hash())
_TWINS = {number: Twin(number, bytes([number]) * 32, b"r1.example") for number in range(1, 5)}
_ACCOUNT = bytes(32)
_KEYS = sorted(to_hex(storage.twin_key(number)) for number in _TWINS)
_VALUES = {
    **{to_hex(storage.twin_key(each.id)): to_hex(twin.encode(each)) for each in _TWINS.values()},
    to_hex(storage.LAST_TWIN_ID): to_hex(scale.u32("", 4)),
    to_hex(storage.twin_id_key(_ACCOUNT)): to_hex(scale.u32("", 2)),
}
_GOOD: dict[str, Any] = {
    "chain_getHeader": _HEADER.to_json(),
    "chain_getBlockHash": _HASH,
    "state_getKeysPaged": _KEYS,
}
_ODD: list[Any] = [
    *(None, True, False, 0, -1, 2**70, 1.5, "", "0x", "0x0", "0xzz", "0x" + "00" * 32, "\ud800"),
    *([], [[]], [None], {}, {"block": None, "changes": None}, {"digest": {"logs": [7]}}, _HASH),
    *(_KEYS[0], [_KEYS[0]] * 3, [_KEYS[0], None], [[_HASH]], to_hex(twin.encode(_TWINS[1]))),
]


class _OddConnection:
    """Connection that returns a node's answers, damaged on the way."""

    url = "ws://odd"
    usable = True

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def call(self, method: str, params: Sequence[Any] = ()) -> Any:
        if method == "state_queryStorageAt":
            changes = [[key, _VALUES.get(key)] for key in params[0]]
            good: Any = [{"block": _HASH, "changes": changes}]
        else:
            good = _GOOD[method]
        return _damaged(self._rng, good) if self._rng.random() < 0.5 else good

    def call_many(self, calls: Sequence[tuple[str, Sequence[Any]]]) -> list[Any]:
        return [self.call(*each) for each in calls]

    def notification(self, subscription: str, timeout_s: float) -> Any:
        return self.call("chain_getHeader")


class _OddNode(Node):
    """A node without a socket."""

    def __init__(self, rng: random.Random) -> None:
        self.connection: Any = _OddConnection(rng)
        self._runtimes = None
        self._last_head = None
        self._heads = "heads"


def targets() -> list[tuple[str, Callable[[random.Random], None]]]:
    """Return the name and the function of each target."""
    return [("nodes: odd answers", _odd_answers)]


def _odd_answers(rng: random.Random) -> None:
    node = _OddNode(rng)
    ask, kind = rng.choice(_QUESTIONS)
    try:
        answer = ask(node)
    except NodeError as error:
        assert 0 < len(str(error)) < 300, "an error needs a short text"
        return
    assert isinstance(answer, kind)
    if isinstance(answer, Twins):
        assert all(each.id == number for number, each in answer.found.items())


_QUESTIONS: list[tuple[Callable[[Node], Any], Any]] = [
    (lambda node: node.twins([1, 2, 3, 9]), Twins),
    (lambda node: node.twins([1], _HEADER.hash()), Twins),
    (lambda node: node.page(), Page | None),
    (lambda node: node.page(storage.twin_key(1), 4), Page | None),
    (lambda node: node.twin_id_of(_ACCOUNT), tuple),
    (lambda node: node.last_twin_id(), int),
    (lambda node: node.best(), Header),
    (lambda node: node.headers([_HEADER.hash(), None]), list),
    (lambda node: node.block_hashes([1, 2]), list),
    (lambda node: node.next_head(0), Header | None),
]


def _damaged(rng: random.Random, value: Any) -> Any:
    """Return the value with one part replaced, added or removed."""
    if isinstance(value, list) and value and rng.random() < 0.8:
        copy = list(value)
        place = rng.randrange(len(copy))
        match rng.randrange(4):
            case 0:
                del copy[place]
            case 1:
                copy.insert(place, rng.choice([*_ODD, copy[place]]))
            case _:
                copy[place] = _damaged(rng, copy[place])
        return copy
    if isinstance(value, dict) and value and rng.random() < 0.8:
        name = rng.choice(sorted(value))
        if rng.random() < 0.2:
            return {each: part for each, part in value.items() if each != name}
        return value | {name: _damaged(rng, value[name])}
    if isinstance(value, str) and len(value) > 4 and rng.random() < 0.5:
        place = rng.randrange(len(value))
        return value[:place] + rng.choice("0fgx") + value[place + rng.randrange(3) :]
    return rng.choice(_ODD)
