"""SBD over TLS, over IPv6, and under daphne."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from peer.sbd import ClosedError, ConnectError, E2eClient, SbdClient
from proto.sbd import frames
from proto.sbd.bounds import MAX_MESSAGE_BYTES, MAX_PAYLOAD_BYTES
from tests.e2e.conftest import StartRelay
from tests.proto.sbd.pairs import Identity
from tests.support.certificates import make_certificate
from tests.support.redis_servers import free_port
from tests.support.relay_process import RelayProcess
from tests.support.sbd_client import RawClient
from tests.support.waiting import eventually

SETTINGS = {"sbd.enabled": "true", "sbd.limit_kbit_per_s": "0"}
IPV6_PORT = free_port()


async def talk(one: SbdClient | E2eClient, two: SbdClient | E2eClient) -> None:
    for source, target, text in ((one, two, b"hello"), (two, one, b"world")):
        await source.send(target.key, text)
        async with asyncio.timeout(60):
            assert await target.receive() == (source.key, text)


async def test_tls(start_relay: StartRelay, tmp_path: Path) -> None:
    """Certificates are verified unless the client disables it, also for tokens."""
    certificate, key = make_certificate(tmp_path)
    settings = {
        **SETTINGS,
        "relay.tls_cert": str(certificate),
        "relay.tls_key": str(key),
        "sbd.listen": f"[::1]:{IPV6_PORT}",
    }
    relay = start_relay(processes=2, settings=settings, wait=False)
    await eventually(lambda: "\nready after" in relay.log(), timeout_s=60)
    url, ipv6 = f"wss://127.0.0.1:{relay.port}", f"wss://[::1]:{IPV6_PORT}"
    trusted = ssl.create_default_context(cafile=str(certificate))
    careless = ssl._create_unverified_context()
    for material in (None, b"material"):
        with pytest.raises(ConnectError, match="certificate verify failed"):
            await SbdClient(url, auth_material=material).open()
        async with (
            SbdClient(url, tls=trusted, auth_material=material) as one,
            SbdClient(ipv6, tls=careless, auth_material=material) as two,
        ):
            await talk(one, two)
    async with (
        E2eClient(ipv6, tls=trusted, listener=True) as one,
        E2eClient(url, tls=trusted, listener=True) as two,
    ):
        await talk(one, two)
    with pytest.raises(ConnectError):  # no TLS on a TLS port
        await SbdClient(url.replace("wss", "ws")).open()


@pytest.fixture
def daphne(start_relay: StartRelay) -> Iterator[RelayProcess]:
    yield start_relay(server="daphne", settings={**SETTINGS, "sbd.idle_ms": "1000"})


async def test_under_daphne(daphne: RelayProcess) -> None:
    """Packets arrive under daphne; connections end on bad protocol or replacement, as elsewhere."""
    seed = bytes(range(32))
    async with SbdClient(daphne.url) as one, SbdClient(daphne.url, seed) as two:
        await talk(one, two)
        for payload in (b"", bytes(MAX_PAYLOAD_BYTES)):
            await one.send(two.key, payload)
            assert await two.receive() == (one.key, payload)
        async with SbdClient(daphne.url, seed) as newer:
            async with asyncio.timeout(60):
                with pytest.raises(ClosedError):
                    await two.receive()
            await talk(one, newer)
    raw = RawClient(daphne.url, Identity(1))
    async with raw as client:
        assert await client.close(4321) == 1000  # autobahn has its own answer
    for message in (bytes(31), bytes(MAX_MESSAGE_BYTES + 1), frames.auth_response(bytes(64))):
        async with RawClient(daphne.url, Identity(2)) as client:
            await client.send(message)
            assert await client.ended() is None
    async with RawClient(daphne.url, Identity(3)).opened() as client:
        await client.challenge()
        await client.send(frames.auth_response(bytes(64)))
        assert await client.ended() is None
    async with RawClient(daphne.url, Identity(4)).opened() as client:
        await client.challenge()
        assert await client.ended() is None  # its time-out has passed
    ends = ("too_short", "too_large", "second_response", "bad_signature", "handshake_timeout")
    for reason in ends:
        await eventually(
            lambda reason=reason: daphne.counted(f"sbd_ended_{reason}_total") == 1, what=reason
        )
    assert daphne.counted("sbd_connections") == 0
