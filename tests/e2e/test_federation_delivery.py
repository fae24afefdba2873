"""Messages between two relays of this kind, and with relays of the reference kind."""

from __future__ import annotations

import time

from proto.federation import batch
from proto.rmb import challenge
from tests.e2e.conftest import Trio
from tests.support import envelopes, raw_http
from tests.support.federated import World
from tests.support.partner import partner
from tests.support.rmb_client import signing_session
from tests.support.waiting import eventually

MIB = 1 << 20


def post(path: str, body: bytes, **headers: str) -> bytes:
    """Return a request as a partner relay sends it."""
    lines = [f"POST {path} HTTP/1.1", "host: x", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def test_both_ways_in_order(trio: Trio, world: World) -> None:
    (one,), (two,) = world.twins("a", 1), world.twins("b", 1)
    errors = {
        name: trio[name].counted("federation_message_error_total", relay=trio[other].domain)
        for name, other in (("a", "b"), ("b", "a"))
    }
    async with (
        signing_session(trio["a"].url, one, "phone") as here,
        signing_session(trio["b"].url, two) as there,
    ):
        sent = [await here.request(there.key, b"%d" % number) for number in range(300)]
        got = [await there.receive_bytes() for _ in sent]
        assert got == [envelope.SerializeToString() for envelope in sent], "the very bytes"
        for request in sent:
            await there.respond(request, request.plain)
        answers = await here.receive_many(300)
        assert [answer.plain for answer in answers] == [request.plain for request in sent]
        assert {answer.destination.connection for answer in answers} == {"phone"}
    for name, other in (("a", "b"), ("b", "a")):
        relay, domain = trio[name], trio[other].domain
        await eventually(lambda relay=relay, domain=domain: relay.held_for(domain) == 0)
        state = await eventually(
            lambda relay=relay, domain=domain: (
                int(relay.partner_state(domain).get("sent", 0)) >= 300
                and relay.partner_state(domain)
            )
        )
        assert state["kind"] == "ours"
        await eventually(
            lambda relay=relay, domain=domain: (
                relay.counted("federation_message_success_total", relay=domain) >= 300
            )
        )
        assert relay.counted("federation_message_error_total", relay=domain) == errors[name]
        assert relay.counted("federation_delivery_seconds_count") >= 300


async def test_mail_for_an_absent_session_waits_at_its_own_relay(trio: Trio, world: World) -> None:
    (one,), (two,) = world.twins("a", 1), world.twins("b", 1)
    async with signing_session(trio["a"].url, one) as here:
        for number in range(20):
            await here.request((two.id, None), b"%d" % number)
        await here.barrier()
    await eventually(lambda: trio["b"].store.run("XLEN", f"stream:{two.id}") == 20)
    async with signing_session(trio["b"].url, two) as there:
        got = [envelope.plain for envelope in await there.receive_many(20)]
    assert got == [b"%d" % number for number in range(20)]


async def test_refusals_come_back_to_the_session_that_asked(trio: Trio, world: World) -> None:
    """Refusals reach the requesting session: fail-fast to an absent twin, and unsigned messages."""
    (one,), (two,) = world.twins("a", 1), world.twins("b", 1)
    async with (
        signing_session(trio["a"].url, one, "phone") as here,
        signing_session(trio["a"].url, one) as other,
    ):
        sent = await here.request((two.id, None), tags="fail-fast")
        notice = await here.receive()
        assert (notice.uid, notice.error.code) == (sent.uid, 0)
        assert notice.error.message.endswith("destination offline")
        assert notice.destination == sent.source
        assert not notice.HasField("source")
        here.signs = False
        sent = await here.request((two.id, None), b"unsigned")
        notice = await here.receive()
        assert notice.uid == sent.uid
        assert notice.error.message.endswith("destination offline")
        await other.barrier()
        assert other.inbox.empty()
    assert trio["b"].store.run("XLEN", f"stream:{two.id}") == 0
    async with (
        signing_session(trio["b"].url, two) as there,
        signing_session(trio["a"].url, one) as here,
    ):
        await here.request(there.key, b"quick", tags="fail-fast")
        assert (await there.receive()).plain == b"quick"


async def test_twins_nobody_knows(trio: Trio, world: World) -> None:
    (one,) = world.twins("a", 1)
    async with signing_session(trio["a"].url, one) as here:
        await here.request((2, None))
        assert (await here.receive()).error.message == "unknown twin destination"
        await here.barrier()
        assert here.inbox.empty()


async def test_large_messages(trio: Trio, world: World) -> None:
    """A message that exceeds a batch is sent by itself, in its place in the order."""
    (one,), (two,) = world.twins("a", 1), world.twins("b", 1)
    payloads = [b"small", bytes(5 * MIB), b"between", bytes(15 * MIB), b"last"]
    async with (
        signing_session(trio["a"].url, one) as here,
        signing_session(trio["b"].url, two) as there,
    ):
        for payload in payloads:
            await here.request(there.key, payload)
        got = [envelope.plain for envelope in await there.receive_many(5, 60)]
    assert got == payloads


async def test_to_a_relay_of_the_reference_kind(trio: Trio, world: World) -> None:
    (port,) = world.partner_ports()
    (one,), (two,) = world.twins("a", 1), world.twins(f"127.0.0.1:{port}", 1)
    async with partner(port) as reference, signing_session(trio["a"].url, one) as here:
        sent = [await here.request((two.id, "x"), b"%d" % number) for number in range(50)]
        await eventually(lambda: len(reference.deliveries) == 50)
        await here.barrier()
        assert here.inbox.empty()
    first = reference.deliveries[0]
    assert (first.method, first.path) == ("POST", "/")
    assert first.headers["host"] == reference.domain
    assert first.headers["content-type"] == "application/octet-stream"
    bodies = [delivery.body for delivery in reference.deliveries]
    assert bodies == [envelope.SerializeToString() for envelope in sent]
    assert len({delivery.connection for delivery in reference.deliveries}) <= 2, "kept alive"
    state = await eventually(
        lambda: (found := trio["a"].partner_state(reference.domain)).get("sent") == "50" and found
    )
    assert "kind" not in state


async def test_from_a_relay_of_the_reference_kind(trio: Trio, world: World) -> None:
    """A relay of the reference kind sends one envelope per POST, without this relay's headers."""
    (one,), (two,) = world.twins("a", 1), world.twins("b", 1)
    async with signing_session(trio["b"].url, two) as there:
        for number in range(20):
            envelope = envelopes.request((one.id, None), there.key, b"%d" % number)
            challenge.sign(envelope, one.signing_key)
            answer = await raw_http.exchange(
                trio["b"].port, post("/", envelope.SerializeToString())
            )
            assert answer.status == 202
            assert answer.headers["rmb-federation"] == batch.OFFER
        got = [envelope.plain for envelope in await there.receive_many(20)]
        assert got == [b"%d" % number for number in range(20)]


async def test_a_relay_has_several_domains(trio: Trio, world: World) -> None:
    """Twins that list another name of relay b are local to it; relay b sends nothing to itself."""
    (one,), (two,), (three,) = world.twins("a", 1), world.twins("b", 1), world.twins("proxy", 1)
    async with (
        signing_session(trio["b"].url, two) as local,
        signing_session(trio["b"].url, three) as there,
    ):
        await local.request(there.key, b"local")
        assert (await there.receive()).plain == b"local"
        envelope = envelopes.request((one.id, None), there.key, b"from elsewhere")
        challenge.sign(envelope, one.signing_key)
        answer = await raw_http.exchange(trio["b"].port, post("/", envelope.SerializeToString()))
        assert answer.status == 202
        assert (await there.receive()).plain == b"from elsewhere"


async def test_operators_decisions_reach_who_delivers(trio: Trio, world: World) -> None:
    """A reset ends a back-off; deliveries that are paused wait and continue when resumed."""
    (port,) = world.partner_ports()
    domain = f"127.0.0.1:{port}"
    (one,), (two,), (three,) = world.twins("a", 1), world.twins(domain, 1), world.twins("c", 1)
    a, c = trio["a"], trio["c"]
    async with signing_session(a.url, one) as here:
        await here.request((two.id, None), b"while it is away")
        await eventually(
            lambda: float(a.partner_state(domain).get("retry_at", 0)) > time.time() + 1
        )
        async with partner(port) as other:
            began = time.monotonic()
            a.reset_partners()
            await eventually(lambda: other.payloads() == [b"while it is away"])
            assert time.monotonic() - began < 2.5, "the back-off ended by itself"
            a.decide(domain, "paused")
            await a.noticed(here, (three.id, None), c.domain)
            await here.request((two.id, None), b"while it is paused")
            await a.noticed(here, (three.id, None), c.domain)  # any delivery has been sent by now
            assert a.held_for(domain) == 1
            a.decide(domain, "")
            await eventually(lambda: other.payloads()[1:] == [b"while it is paused"])
