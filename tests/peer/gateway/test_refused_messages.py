"""Unusable messages from other twins, and the answers to them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
from websockets.asyncio.server import ServerConnection, serve

from proto.identity.agreement import EncryptionKey
from proto.rmb import challenge, opening
from proto.rmb import types_pb2 as pb
from proto.rmb.sealing import PeerTwin, Sealer, new_uid
from tests.peer.gateway.conftest import StartGateway
from tests.support.gateway_process import GatewayProcess, Program, Service
from tests.support.identities import Twin, twins_csv
from tests.support.relay_process import RelayProcess
from tests.support.rmb_client import RmbClient, connect
from tests.support.waiting import eventually
from tests.support.world import fresh_twins


class Stranger(NamedTuple):
    """Another twin's client, which can make every mistake."""

    client: RmbClient
    twin: Twin
    sealer: Sealer
    gateway: GatewayProcess
    receiver: PeerTwin

    def request(self, command: str = "calc.add") -> pb.Envelope:
        """Return a request that is not sealed yet."""
        envelope = self.sealer.new(new_uid(os.urandom), (self.gateway.twin, None))
        envelope.request.command = command
        return envelope

    def sealed(self, envelope: pb.Envelope, expiration_s: int = 60) -> pb.Envelope:
        """Return the envelope, sealed correctly."""
        data = self.sealer.seal(envelope, b"x", self.receiver, int(time.time()), expiration_s)
        return pb.Envelope.FromString(data)

    async def answer(self, envelope: pb.Envelope) -> pb.Envelope:
        """Send an envelope and return the answer, after checking its signature."""
        await self.client.send(envelope)
        answer = await self.client.receive()
        assert answer.uid == envelope.uid
        payload = opening.open_envelope(answer, self.receiver, self.sealer, int(time.time()))
        assert payload == b""
        return answer


@pytest.fixture
async def stranger(start_gateway: StartGateway, relay: RelayProcess) -> AsyncIterator[Stranger]:
    own, other = fresh_twins(2)
    gateway = start_gateway(twin=own)
    await gateway.connected()
    client = await connect(relay.url, other)
    sealer = Sealer((other.id, None), other.signing_key, other.encryption_key, os.urandom)
    receiver = PeerTwin(own.account, own.encryption_key.public)
    yield Stranger(client, other, sealer, gateway, receiver)
    await client.close()


def failure(answer: pb.Envelope) -> tuple[int, str]:
    assert answer.WhichOneof("message") == "error"
    return answer.error.code, answer.error.message


async def test_what_is_no_message_costs_neither_the_connection_nor_the_rest(
    start_gateway: StartGateway,
) -> None:
    """An invalid message (codes 100 and 101) affects neither the connection nor other messages.

    It is not answered, as its sender is unknown.
    """
    own, other = fresh_twins(2)
    sealer = Sealer((other.id, None), other.signing_key, other.encryption_key, os.urandom)
    receiver = PeerTwin(own.account, own.encryption_key.public)
    said = bytearray()

    async def broken(connection: ServerConnection) -> None:
        await connection.send("a text")
        await connection.send(b"\xff no envelope")
        await connection.send(b"\x08")  # truncated
        now = int(time.time())
        good = sealer.request("u", (own.id, None), "calc.add", b"x", receiver, now, 60)
        await connection.send(good)
        async for message in connection:
            assert isinstance(message, bytes)
            said.extend(message)

    async with serve(broken, "127.0.0.1", 0) as server:
        (port,) = (each.getsockname()[1] for each in server.sockets)
        gateway = start_gateway(twin=own, relays=(f"ws://127.0.0.1:{port}",))
        await eventually(lambda: gateway.redis.run("LLEN", "msgbus.calc.add"))
        gateway.stop()
    assert "'rejected:100': 1" in gateway.log()
    assert "'rejected:101': 2" in gateway.log()
    assert "'requests_received': 1" in gateway.log()
    assert gateway.log().count("connected to ws://") == 1
    assert not said


async def test_expired(stranger: Stranger) -> None:
    envelope = stranger.request()
    stranger.sealer.seal(envelope, b"x", stranger.receiver, int(time.time()) - 100, 60)
    answer = await stranger.answer(envelope)
    assert failure(answer) == (102, "envelope validation error: message has expired")
    assert answer.expiration == 60
    assert len(answer.cipher) == 28  # the asker has a key: an empty payload, encrypted


async def test_unknown_twin(
    start_gateway: StartGateway, relay: RelayProcess, tmp_path: Path
) -> None:
    own, other = fresh_twins(2)
    path = tmp_path / "twins.csv"
    path.write_text(twins_csv([own]))
    gateway = start_gateway(twin=own, twins=path)
    await gateway.connected()
    client = await connect(relay.url, other)
    sealer = Sealer((other.id, None), other.signing_key, other.encryption_key, os.urandom)
    receiver = PeerTwin(own.account, own.encryption_key.public)
    stranger = Stranger(client, other, sealer, gateway, receiver)
    answer = await stranger.answer(stranger.sealed(stranger.request()))
    assert failure(answer) == (103, f"unknown twin id '{other.id}'")
    assert not answer.HasField("cipher")
    assert not answer.HasField("plain")
    await client.close()


async def test_not_signed(stranger: Stranger) -> None:
    envelope = stranger.sealed(stranger.request())
    envelope.ClearField("signature")
    answer = await stranger.answer(envelope)
    assert failure(answer) == (104, "invalid envelope signature: message is not signed")


async def test_signature_too_short(stranger: Stranger) -> None:
    envelope = stranger.sealed(stranger.request())
    envelope.signature = envelope.signature[:64]
    answer = await stranger.answer(envelope)
    assert failure(answer) == (
        104,
        "invalid envelope signature: invalid signature length, expected: 65, found: 64",
    )


async def test_signed_by_somebody_else(stranger: Stranger) -> None:
    envelope = stranger.sealed(stranger.request())
    challenge.sign(envelope, fresh_twins(1)[0].signing_key)
    answer = await stranger.answer(envelope)
    assert failure(answer) == (
        104,
        "invalid envelope signature: sr25519 signature verification failed",
    )


async def test_encrypted_without_a_key_of_its_own(
    start_gateway: StartGateway, relay: RelayProcess, tmp_path: Path
) -> None:
    own, other = fresh_twins(2)
    rows = twins_csv([own, other]).splitlines()
    number, account, _, relays = rows[2].split(",")
    path = tmp_path / "twins.csv"
    path.write_text("\n".join([*rows[:2], f"{number},{account},,{relays}", ""]))
    gateway = start_gateway(twin=own, twins=path)
    await gateway.connected()
    client = await connect(relay.url, other)
    sealer = Sealer((other.id, None), other.signing_key, other.encryption_key, os.urandom)
    receiver = PeerTwin(own.account, own.encryption_key.public)
    stranger = Stranger(client, other, sealer, gateway, receiver)
    answer = await stranger.answer(stranger.sealed(stranger.request()))
    assert failure(answer) == (105, "sender twin has no public key")
    await client.close()


async def test_a_cipher_that_does_not_open(stranger: Stranger) -> None:
    envelope = stranger.sealed(stranger.request())
    envelope.cipher = envelope.cipher[:-1] + bytes([envelope.cipher[-1] ^ 1])
    challenge.sign(envelope, stranger.twin.signing_key)
    answer = await stranger.answer(envelope)
    assert failure(answer) == (106, "e2e error: invalid cipher data")


@pytest.mark.parametrize(
    "command", ["system.local", "system.reply", "backlog.x", "processing", "module.file", "dead"]
)
async def test_commands_that_would_be_our_own_lists(stranger: Stranger, command: str) -> None:
    answer = await stranger.answer(stranger.sealed(stranger.request(command)))
    assert failure(answer) == (500, f"unknown command: {command}")
    redis = stranger.gateway.redis
    assert redis.run("LLEN", f"msgbus.{command}") == 0 if command != "processing" else True


async def test_an_unknown_command_stays_in_its_list(stranger: Stranger) -> None:
    await stranger.client.send(stranger.sealed(stranger.request("nobody.serves")))
    redis = stranger.gateway.redis
    await eventually(lambda: redis.run("LLEN", "msgbus.nobody.serves") == 1)


async def test_repeats_are_dropped_also_after_a_restart(stranger: Stranger) -> None:
    envelope = stranger.sealed(stranger.request())
    redis = stranger.gateway.redis
    await stranger.client.send(envelope)
    await stranger.client.send(envelope)
    await eventually(lambda: redis.run("LLEN", "msgbus.calc.add"))
    stranger.gateway.kill()
    stranger.gateway.start()
    await stranger.gateway.connected(2)
    await stranger.client.send(envelope)
    other = stranger.sealed(stranger.request())
    await stranger.client.send(other)
    await eventually(lambda: redis.run("LLEN", "msgbus.calc.add") == 2)
    assert other.uid.encode() in redis.run("LINDEX", "msgbus.calc.add", 0)


async def test_a_changed_key_is_noticed(start_gateway: StartGateway, tmp_path: Path) -> None:
    here, there = fresh_twins(2)
    path = tmp_path / "twins.csv"
    path.write_text(twins_csv([here, there]))
    first = start_gateway(twin=here, twins=path)
    second = start_gateway(twin=there, twins=path)
    await first.connected()
    await second.connected()
    program = Program(first.redis)
    async with Service(second.redis, "calc.add") as service:
        assert (await program.call("calc.add", there.id))["err"] is None
        second.stop()
        # The twin has another encryption key from now on, also in the table.
        changed = "7f" * 32
        pk = EncryptionKey(bytes.fromhex(changed)).public.hex()
        path.write_text(path.read_text().replace(there.encryption_key.public.hex(), pk))
        second = start_gateway(
            twin=there, twins=path, redis=second.redis, more=("--encryption", changed)
        )
        # The first request is sealed for the old key. Its refusal is sealed with the new one, so
        # the asker looks up the twin again, in a file that it reads once a second.
        failures = []
        async with asyncio.timeout(30):
            while True:
                ret = program.ask("calc.add", [there.id])
                with contextlib.suppress(AssertionError):
                    answer = await program.answer(ret, timeout_s=1)
                    if answer["err"] is None:
                        break
                    failures.append(answer["err"]["code"])
    assert set(failures) <= {106}
    assert len(service.taken) == 2
