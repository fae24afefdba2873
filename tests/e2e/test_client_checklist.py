"""What released RMB clients rely on, point by point, on both servers and over streams.

The eight points come from the observed behaviour of those clients; each test names the point that
it proves.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from proto.identity import tokens
from proto.rmb import types_pb2 as pb
from rmbsite.config import RelayConfig
from tests.support import envelopes, stream_client
from tests.support.relay_process import RelayProcess, directory
from tests.support.rmb_client import RmbClient, connect, session
from tests.support.waiting import eventually
from tests.support.world import (
    CAPITALS_TWIN,
    ELSEWHERE_TWIN,
    HOST_DOMAIN_TWIN,
    PORT_DOMAIN_TWIN,
    URL_DOMAIN_TWIN,
    fresh_twins,
)

SIDS = [None, "", "x", "a:b", "ünicode"]


class OverStreams:
    """A relay whose sessions are carried by streams."""

    def __init__(self, relay: RelayProcess) -> None:
        self.url = stream_client.PREFIX + relay.url
        self.redis = relay.redis
        self.server = "streams"


Carrier = RelayProcess | OverStreams


@pytest.fixture(params=["relay", "daphne_relay", "streams"])
def any_carrier(request: pytest.FixtureRequest) -> Carrier:
    """Return a relay for websockets of each server in turn, then one for streams."""
    if request.param == "streams":
        return OverStreams(request.getfixturevalue("relay"))
    relay: RelayProcess = request.getfixturevalue(request.param)
    return relay


async def _nothing_for(*clients: RmbClient) -> None:
    """Send barriers from all clients, then check that their inboxes are empty."""
    for client in clients:
        await client.barrier()
        assert client.inbox.empty(), client.inbox.get_nowait()[1]


@pytest.mark.parametrize("sid", SIDS)
async def test_1_a_bare_token_signs_in(any_carrier: Carrier, sid: str | None) -> None:
    (twin,) = fresh_twins(1)
    async with session(any_carrier.url, twin, sid) as client:
        pong = await client.barrier()
        assert pong.destination.twin == twin.id
        assert pong.destination.HasField("connection") == (sid is not None)
        assert pong.destination.connection == (sid or "")


async def test_1_sid_null_and_absent_are_one_session(any_carrier: Carrier) -> None:
    (twin,) = fresh_twins(1)
    absent = tokens.issue(twin.signing_key, twin.id, None, int(time.time()), omit_sid=True)
    async with (
        session(any_carrier.url, twin, None) as first,
        session(any_carrier.url, twin, None, token=absent) as second,
    ):
        assert (await first.closed())[0] == 4001
        await second.barrier()


async def test_1_iat_is_compared_with_nothing(any_carrier: Carrier) -> None:
    (twin,) = fresh_twins(1)
    token = twin.token("x", now=int(time.time()) + 86_400)
    async with session(any_carrier.url, twin, "x", token=token) as client:
        await client.barrier()


async def test_1_a_bad_token_does_not_sign_in(any_carrier: Carrier) -> None:
    (twin,) = fresh_twins(1)
    with pytest.raises(InvalidStatus):
        await connect(any_carrier.url, twin, token=twin.token(now=int(time.time()) - 1000))


def _peculiar(source: tuple[int, str | None], destination: tuple[int, str | None]) -> bytes:
    """Return an envelope that no re-encoder would produce: odd order, unknown and empty fields."""
    plain = envelopes.request(source, destination, b"payload")
    plain.tags = ""
    plain.signature = b""
    plain.schema = "application/json"
    plain.federation = ""
    plain.relays.extend(["a", "", "b"])
    whole = plain.SerializeToString()
    uid_bytes = len(plain.uid.encode())
    first_field, rest = whole[: 2 + uid_bytes], whole[2 + uid_bytes :]
    unknown = bytes([0xFA, 0x3F, 3]) + b"abc"  # field 1023
    long_varint = bytes([0x18, 0x80 | 0x01, 0x80, 0x00])  # timestamp 1 in three bytes, repeated
    return long_varint + rest + unknown + first_field


async def test_2_bytes_are_forwarded_untouched(any_carrier: Carrier) -> None:
    one, two = fresh_twins(2)
    async with (
        session(any_carrier.url, one, "s") as sender,
        session(any_carrier.url, two) as receiver,
    ):
        sent = [_peculiar(sender.key, receiver.key) for _ in range(3)]
        for message in sent:
            await sender.send_bytes(message)
        assert [await receiver.receive_bytes() for _ in sent] == sent


async def test_2_bytes_survive_the_queue_untouched(any_carrier: Carrier) -> None:
    one, two = fresh_twins(2)
    async with session(any_carrier.url, one) as sender:
        sent = [_peculiar(sender.key, (two.id, "later")) for _ in range(3)]
        for message in sent:
            await sender.send_bytes(message)
        await sender.barrier()
    async with session(any_carrier.url, two, "later") as receiver:
        assert [await receiver.receive_bytes() for _ in sent] == sent


async def test_2_an_offer_of_compression_is_harmless(any_relay: RelayProcess) -> None:
    one, two = fresh_twins(2)
    async with (
        session(any_relay.url, one, compression="deflate") as sender,
        session(any_relay.url, two) as receiver,
    ):
        assert not sender.websocket.protocol.extensions
        await sender.request(receiver.key, b"z" * 10_000)
        assert (await receiver.receive()).plain == b"z" * 10_000


async def test_3_websocket_pings_are_answered(any_relay: RelayProcess) -> None:
    (twin,) = fresh_twins(1)
    async with session(any_relay.url, twin) as client:
        for payload in (b"", b"x" * 125):
            await asyncio.wait_for(await client.websocket.ping(payload), 5)


async def test_3_envelope_pong(any_carrier: Carrier) -> None:
    (twin,) = fresh_twins(1)
    async with session(any_carrier.url, twin, "s") as client:
        ping = envelopes.ping(client.key, uid="mine")
        ping.plain = b"before "
        ping.signature = b"kept"
        pong = await asyncio.wait_for(await client.start_barrier(ping), 5)
        assert (pong.uid, pong.WhichOneof("message")) == ("mine", "pong")
        assert (pong.destination.twin, pong.destination.connection) == client.key
        assert pong.HasField("source") and pong.source.twin == 0
        assert (pong.plain, pong.signature) == (b"before hello world", b"kept")
        bare = envelopes.ping(client.key, uid="bare")
        bare.ClearField("destination")
        assert not (await asyncio.wait_for(await client.start_barrier(bare), 5)).HasField("source")


async def test_3_the_idle_limit_leaves_slow_clients_alone() -> None:
    # Released clients are silent for up to 45 s; 0 would be no limit.
    assert RelayConfig().idle_timeout_s >= 45


async def test_4_a_newer_connection_replaces_and_stays(any_carrier: Carrier) -> None:
    one, two = fresh_twins(2)
    async with (
        session(any_carrier.url, two) as sender,
        session(any_carrier.url, one, "s") as first,
        session(any_carrier.url, one, "s") as second,
    ):
        assert (await first.closed())[0] == 4001
        await first.abort()
        for number in range(20):
            await sender.request(second.key, b"%d" % number)
        got = [(await second.receive()).plain for _ in range(20)]
        assert got == [b"%d" % number for number in range(20)]
        assert f"{one.id}:s" in directory(any_carrier.redis)


async def test_4_a_redial_storm_ends_with_the_last_one_connected(any_carrier: Carrier) -> None:
    one, two = fresh_twins(2)
    async with session(any_carrier.url, two) as sender:
        storm = [await connect(any_carrier.url, one, "s") for _ in range(25)]
        for replaced in storm[:-1]:
            assert (await replaced.closed())[0] == 4001
        await sender.request((one.id, "s"), b"for the last")
        assert (await storm[-1].receive()).plain == b"for the last"
        await storm[-1].abort()


async def test_4_sessions_of_other_sids_are_not_replaced(any_carrier: Carrier) -> None:
    (twin,) = fresh_twins(1)
    clients = [await connect(any_carrier.url, twin, sid) for sid in SIDS]
    for client in clients:
        await client.barrier()
        await client.abort()


async def test_5_delivery_is_exact_to_the_connection(any_carrier: Carrier) -> None:
    one, two = fresh_twins(2)
    receivers = {sid: await connect(any_carrier.url, two, sid) for sid in (None, "", "x")}
    async with session(any_carrier.url, one, "s") as sender:
        for sid, receiver in receivers.items():
            await sender.request((two.id, sid), b"for you")
            assert (await receiver.receive()).destination.HasField("connection") == (
                sid is not None
            )
            await _nothing_for(*receivers.values())
    for receiver in receivers.values():
        await receiver.abort()


async def test_5_messages_for_an_absent_session_wait_for_it(any_carrier: Carrier) -> None:
    one, two = fresh_twins(2)
    async with session(any_carrier.url, one) as sender:
        for number in range(500):
            await sender.request((two.id, None), b"%d" % number)
        await sender.barrier()
        async with session(any_carrier.url, two, "other") as other:
            await _nothing_for(other)
        async with session(any_carrier.url, two) as receiver:
            got = [(await receiver.receive()).plain for _ in range(500)]
            assert got == [b"%d" % number for number in range(500)]
    stream = f"stream:{two.id}"
    await eventually(
        lambda: not any_carrier.redis.run("EXISTS", stream) or _length(any_carrier, stream) == 0
    )


def _length(relay: Carrier, stream: str) -> int:
    assert relay.redis is not None
    length: int = relay.redis.run("XLEN", stream)
    return length


async def test_5_the_queue_has_the_name_and_shape_of_the_reference(
    any_carrier: Carrier,
) -> None:
    one, two = fresh_twins(2)
    async with session(any_carrier.url, one) as sender:
        sent = await sender.request((two.id, "s"), b"queued")
        await sender.barrier()
    entries = any_carrier.redis.run("XRANGE", f"stream:{two.id}:s", "-", "+")
    assert [fields for _, fields in entries] == [{b"_": sent.SerializeToString()}] or [
        fields for _, fields in entries
    ] == [[b"_", sent.SerializeToString()]]
    assert any_carrier.redis.run("TTL", f"stream:{two.id}:s") >= 3600


async def test_6_errors_have_no_source_and_go_to_requests_only(any_carrier: Carrier) -> None:
    one, absent = fresh_twins(2)
    async with session(any_carrier.url, one, "s") as sender:
        sent = await sender.request((absent.id, None), b"", tags="a,fail-fast b")
        answer = await sender.receive()
        assert answer.uid == sent.uid
        assert (answer.error.code, answer.error.message) == (0, "destination offline")
        assert not answer.HasField("source") and not answer.HasField("signature")
        assert (answer.destination.twin, answer.destination.connection) == sender.key
        assert abs(answer.timestamp - time.time()) < 5 and answer.expiration == 300
        for kind in ("response", "error", "pong"):
            envelope = envelopes.request(sender.key, (absent.id, None), tags="fail-fast")
            getattr(envelope, kind).SetInParent()
            await sender.send(envelope)
        await _nothing_for(sender)


@pytest.mark.parametrize("content", [b"\xff\xff\xff", b"0" * (16 * 1024 * 1024 + 1)])
async def test_7_fatal_input_closes_and_the_client_may_redial(
    any_carrier: Carrier, content: bytes
) -> None:
    (twin,) = fresh_twins(1)
    async with session(any_carrier.url, twin) as client:
        # A client that is still writing may be reset before it reads the close frame (daphne).
        with contextlib.suppress(ConnectionClosed):
            await client.send_bytes(content)
        code, _ = await client.closed()
        expected = 1007 if len(content) == 3 else 1009
        assert code == expected or (any_carrier.server == "daphne" and code == 1006)
    async with session(any_carrier.url, twin) as client:
        await client.barrier()


async def test_7_the_largest_messages_pass(any_carrier: Carrier) -> None:
    one, two = fresh_twins(2)
    async with session(any_carrier.url, one) as sender, session(any_carrier.url, two) as receiver:
        payload = bytes(15 * 1024 * 1024)
        await sender.request(receiver.key, payload)
        assert (await receiver.receive(30)).plain == payload


@pytest.mark.parametrize("server", ["uvicorn", "daphne"])
async def test_8_own_domains_are_free_text(start_relay, server: str) -> None:
    (one,) = fresh_twins(1)
    relay = start_relay(
        server=server,
        domains=("localhost", "127.0.0.1", "127.0.0.1:8080", "ws:/127.0.0.1:9100"),
    )
    own = (HOST_DOMAIN_TWIN, PORT_DOMAIN_TWIN, URL_DOMAIN_TWIN, CAPITALS_TWIN)
    async with session(relay.url, one) as sender:
        for twin in (*own, ELSEWHERE_TWIN):
            await sender.request((twin.id, None), b"mail")
        await sender.barrier()
        for twin in own:
            assert _length(relay, f"stream:{twin.id}") == 1
        assert not relay.redis.run("EXISTS", f"stream:{ELSEWHERE_TWIN.id}")


async def test_any_valid_envelope_is_an_envelope() -> None:
    # The peculiar envelope must be valid, or the tests above would prove nothing.
    parsed = pb.Envelope.FromString(_peculiar((1, None), (2, "x")))
    assert parsed.SerializeToString(deterministic=True) != _peculiar((1, None), (2, "x"))
    assert parsed.plain == b"payload"
