"""A client whose connection ends immediately after its close frame.

Released clients and the systems under them do so, by ending the process or by a reset. The close
frame acknowledges at the latest what the client had read by then, so nothing of it may be delivered
again. What was not sent to the client is delivered to its next connection.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from pathlib import Path

import pytest

from tests.e2e.conftest import StartRelay
from tests.support.certificates import make_certificate
from tests.support.ledger import Ledger
from tests.support.relay_process import RelayProcess
from tests.support.rmb_client import RmbClient, connect, session
from tests.support.waiting import eventually
from tests.support.world import fresh_twins

# A close frame with code 1000 and a mask of zeros.
CLOSE_FRAME = bytes.fromhex("88820000000003e8")
LINGER_RESET = struct.pack("ii", 1, 0)
ROUNDS = 40
MESSAGES = 5


def _cut(client: RmbClient, reset: bool) -> None:
    """Send the close frame and end the connection at once."""
    transport = client.websocket.transport
    handle = transport.get_extra_info("socket")
    if reset:
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_RESET)
    transport.write(CLOSE_FRAME)  # the buffer is empty, so the kernel gets it at once
    transport.abort()


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
async def test_nothing_comes_again_after_a_goodbye(any_relay: RelayProcess, reset: bool) -> None:
    one, two = fresh_twins(2)
    ledger = Ledger()
    page = ledger.sender()
    async with session(any_relay.url, one) as sender:
        for _ in range(ROUNDS):
            client = await connect(any_relay.url, two)
            got = ledger.receiver(client.key)
            client.on_message = got.take
            for _ in range(MESSAGES):
                await sender.request(client.key, page.next_payload(client.key))
            await eventually(lambda got=got: len(got.got) >= MESSAGES)
            _cut(client, reset)
            await client.closed()
        await sender.barrier()
        page.confirm(page.sent)
        async with session(any_relay.url, two) as last:
            ledger.receiver(last.key)
            await last.barrier()
            assert last.inbox.empty()
    ledger.check()


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
async def test_nothing_read_comes_again_under_load(relay: RelayProcess, reset: bool) -> None:
    """No message that a client has read is delivered again when it closes like this under load.

    Messages that were acknowledged but not yet read are lost to a client that closes like this.
    """
    one, two = fresh_twins(2)
    ledger = Ledger()
    page = ledger.sender()
    left = asyncio.Event()
    async with session(relay.url, one) as sender:

        async def send() -> None:
            while not left.is_set():
                for _ in range(8):
                    await sender.request((two.id, None), page.next_payload((two.id, None)))
                await sender.barrier()

        sending = asyncio.create_task(send())
        for _ in range(ROUNDS):
            client = await connect(relay.url, two)
            got = ledger.receiver(client.key)
            client.on_message = got.take
            await eventually(lambda got=got: len(got.got) >= MESSAGES)
            _cut(client, reset)
            await client.closed()
        left.set()
        await sending
    assert not ledger.duplicates()


@pytest.mark.parametrize("ends", ["goodbye", "drain"])
async def test_nothing_comes_again_over_tls(
    start_relay: StartRelay, tmp_path: Path, ends: str
) -> None:
    """No message is delivered again over TLS.

    The relay cannot find out what a client had received on a dead TLS connection.
    """
    certificate, key = make_certificate(tmp_path)
    settings = {"relay.tls_cert": str(certificate), "relay.tls_key": str(key)}
    relay = start_relay(settings=settings, wait=False)
    await eventually(lambda: "\nready after" in relay.log(), timeout_s=60)
    url = relay.url.replace("ws:", "wss:")
    context = ssl.create_default_context(cafile=str(certificate))
    one, two = fresh_twins(2)
    ledger = Ledger()
    page = ledger.sender()
    async with session(url, one, ssl=context) as sender:
        for _ in range(ROUNDS if ends == "goodbye" else 1):
            client = await connect(url, two, ssl=context)
            got = ledger.receiver(client.key)
            client.on_message = got.take
            for _ in range(MESSAGES):
                await sender.request(client.key, page.next_payload(client.key))
            await eventually(lambda got=got: len(got.got) >= MESSAGES)
            if ends == "goodbye":
                await client.close()
            else:
                relay.hang_up()
                assert (await client.closed())[0] == 1012
        if ends == "goodbye":
            await sender.barrier()
    page.confirm(page.sent)
    async with session(url, two, ssl=context) as last:
        ledger.receiver(last.key)
        await last.barrier()
        assert last.inbox.empty()
    ledger.check()
