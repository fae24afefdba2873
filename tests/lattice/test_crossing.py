"""Tests of how the bridge handles payloads, results, sizes, deadlines, without relay and NATS."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest

from lattice.bridge.counts import Counts, Passing
from lattice.bridge.links import Links
from lattice.bridge.refusals import FailedError
from lattice.bridge.to_lattice import JSON_SCHEMA, ToLattice
from lattice.bridge.to_twin import ToTwin
from lattice.serving import Call
from peer.client import CommandError, Request
from proto.lattice.entity import Entity
from proto.lattice.messages import decode_invocation
from proto.lattice.policy import Policies, read_policy
from proto.lattice.twin_contract import (
    CALL,
    HANDLE_REQUEST,
    TwinReply,
    TwinRequest,
    decode_request,
    encode_request,
)
from proto.rmb.address import Address
from tests.lattice.test_bridge import Known
from tests.lattice.test_judge import ACTOR, invocation

FIELDS = {"twins": "*", "entities": "*", "names": "*", "max_bytes": 100, "timeout_ms": 2_000}
ECHO = f"lattice.{ACTOR.public}.Echo.Say"
DEEP = b"\x91" * 90


class Lattice:
    """Stand-in for a lattice that returns a fixed result and records the last call.

    Attributes:
        result: result of the next calls.
        asked: operation, payload and time limit in seconds of the last call.
    """

    def __init__(self) -> None:
        self.result = b""
        self.asked: tuple[str, bytes, float] = ("", b"", 0.0)

    async def invoke(
        self, entity: Entity, operation: str, payload: bytes, wait_s: float, passing: Passing
    ) -> bytes:
        self.asked = (operation, payload, wait_s)
        return self.result


@pytest.fixture
def lattice() -> Lattice:
    return Lattice()


@pytest.fixture
def links() -> Links:
    found = Links()
    found.put(ACTOR.public, {"twins": "7", "commands": "calc.*", "serves": "weather.*"})
    return found


def policies() -> Policies:
    return Policies(
        read_policy({"name": each, "direction": each, **FIELDS})
        for each in ("to_lattice", "to_twin")
    )


async def ask(
    lattice: Lattice,
    links: Links,
    command: str = ECHO,
    payload: bytes = b"",
    schema: str | None = JSON_SCHEMA,
    left_s: float = 10,
) -> bytes:
    """Send a request as twin 7, and return the payload of the answer."""
    bridge = ToLattice(lattice.invoke, links, Known(), policies, Counts())
    deadline = int(time.time() + left_s)
    request = Request("uid", Address(7, None), command, payload, schema, None, deadline)
    return (await bridge.handle(request)).payload


async def test_json_crosses_as_msgpack(lattice: Lattice, links: Links) -> None:
    lattice.result = msgpack.packb({"é": [1, None, 2**64 - 1]})
    answer = await ask(lattice, links, payload=b'{"a":[1.5,true]}')
    assert answer.decode() == '{"é": [1, null, 18446744073709551615]}'
    operation, payload, wait_s = lattice.asked
    assert (operation, msgpack.unpackb(payload)) == ("Echo.Say", {"a": [1.5, True]})
    assert wait_s == 2  # the limit of the policy
    await ask(lattice, links, payload=b"\0x", schema="a/b", left_s=1.9)
    assert lattice.asked[1] == b"\0x" and lattice.asked[2] < 2  # the twin's deadline
    await ask(lattice, links, left_s=-5)
    assert 0 < lattice.asked[2] < 0.01


@pytest.mark.parametrize(
    "payload", [b"{", b"\xff", b"[" * 99, b'"\\ud800"', b"9" * 40, b'{"a":' * 19 + b"1"]
)
async def test_payloads_that_are_not_json(lattice: Lattice, links: Links, payload: bytes) -> None:
    with pytest.raises(CommandError, match=r"^bridge: the payload is not JSON") as caught:
        await ask(lattice, links, payload=payload)
    assert caught.value.code == 400 and lattice.asked[0] == ""


@pytest.mark.parametrize(
    "result",
    [
        *(b"\xc1", b"\xdf\xff\xff\xff\xff", DEEP, b"\xc4\x01x", b"\xd4\x05x", b"\xc0\xc0"),
        *(msgpack.packb(float("nan")), msgpack.packb({b"x": 1}), b"\xa1\xff"),
    ],
)
async def test_results_that_no_json_can_hold(lattice: Lattice, links: Links, result: bytes) -> None:
    lattice.result = result
    says = r"^bridge: the result cannot be converted to JSON: ['\w]"
    with pytest.raises(CommandError, match=says) as caught:
        await ask(lattice, links)
    assert caught.value.code == 500
    lattice.result = b"\xc3"
    assert await ask(lattice, links) == b"true"


async def test_sizes_of_the_policy(lattice: Lattice, links: Links) -> None:
    with pytest.raises(CommandError, match=r"^bridge: the payload has 101 bytes") as caught:
        await ask(lattice, links, payload=bytes(101), schema=None)
    assert caught.value.code == 413 and lattice.asked[0] == ""
    lattice.result = bytes(101)
    with pytest.raises(CommandError, match=r"^bridge: the result has 101 bytes") as caught:
        await ask(lattice, links, schema=None)
    assert caught.value.code == 413


async def test_an_actor_that_serves_a_command(lattice: Lattice, links: Links) -> None:
    lattice.result = msgpack.packb({"data": b"sun", "schema": "a/b"})
    assert await ask(lattice, links, "weather.today", b"x", None) == b"sun"
    operation, payload, _ = lattice.asked
    asked = decode_request(payload)
    assert (operation, asked.twin, asked.command) == (HANDLE_REQUEST, 7, "weather.today")
    assert 0 < asked.timeout_ms <= 2_000
    for lattice.result in (DEEP, b"\x90", b"\xff", msgpack.packb({"data": 5})):
        with pytest.raises(CommandError, match=f"^actor: the answer to {HANDLE_REQUEST}") as caught:
            await ask(lattice, links, "weather.today")
        assert caught.value.code == 500
    with pytest.raises(CommandError, match="no linked actor serves") as caught:
        await ask(lattice, links, "calc.add")
    assert caught.value.code == 404


def called(payload: bytes, origin: str = ACTOR.public) -> Call:
    """Return a checked call of an actor."""
    made = decode_invocation(invocation()[1])
    return Call(Entity.actor(origin), CALL, payload, made)


async def test_an_actor_asks_a_twin(links: Links) -> None:
    asked: dict[str, Any] = {}

    async def call(to: Address, command: str, data: bytes, **more: Any) -> Any:
        asked.update(more, to=to, command=command, data=data)
        return SimpleNamespace(payload=data * 60, schema=None)

    bridge = ToTwin(SimpleNamespace(call=call), links, policies, Counts())  # type: ignore[arg-type]
    for timeout_ms, expected_s in ((0, 2), (500, 0.5), (60_000, 2)):
        request = TwinRequest(7, "calc.add", b"x", "session", timeout_ms=timeout_ms)
        reply = await bridge.call(called(encode_request(request)))
        assert msgpack.unpackb(reply) == TwinReply(b"x" * 60)._asdict()
        assert (asked["timeout"], asked["to"]) == (expected_s, Address(7, "session"))
    asked.clear()
    for payload, says in (
        (DEEP, r"the payload is not msgpack: \w"),
        (b"\xc1", r"the payload is not msgpack: \w"),
        (b"\x90", "the payload is not a map"),
        (encode_request(TwinRequest(8, "calc.add")), "does not allow twin 8"),
        (encode_request(TwinRequest(7, "other")), "does not allow the command"),
        (encode_request(TwinRequest(7, "calc.add", bytes(101))), "the payload has 101 bytes"),
    ):
        with pytest.raises(FailedError, match=f"^bridge: .*{says}"):
            await bridge.call(called(payload))
    with pytest.raises(FailedError, match="has no link with the bridge"):
        await bridge.call(called(encode_request(TwinRequest(7, "calc.add")), "M"))
    assert not asked
    with pytest.raises(FailedError, match=r"^bridge: the answer has 120 bytes"):
        await bridge.call(called(encode_request(TwinRequest(7, "calc.add", b"xy"))))
