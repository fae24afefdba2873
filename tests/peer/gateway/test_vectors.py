"""Recorded messages of released programs, received by a gateway: the lists get what was meant.

The times in the recordings are long past, so the gateway's clock is set to each of them.
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from peer.gateway import incoming as incoming_module
from peer.gateway.backlog import Backlogs, Waiting
from peer.gateway.calls import Calls
from peer.gateway.commits import Commits
from peer.gateway.incoming import Incoming
from peer.gateway.queue_writes import QueueWrites
from peer.twins import Twin, TwinCache
from proto.identity.agreement import EncryptionKey
from proto.identity.signing import KeyType, SigningKey
from proto.rmb import types_pb2 as pb
from proto.rmb.address import from_message
from proto.rmb.sealing import Sealer
from tests.support.redis_servers import RedisServer
from tests.support.waiting import eventually

VECTORS = Path(__file__).parents[2] / "interop" / "vectors"
ENVELOPES = json.loads((VECTORS / "rmb_envelopes.json").read_text())["envelopes"]
SEALED = [each for each in ENVELOPES if "cipher" in each["fields"]]
REQUESTS = [each for each in SEALED if each["fields"]["kind"] == "request"]
ANSWERS = [each for each in SEALED if each["fields"]["kind"] in ("response", "error")]


class OneTwin:
    """A source that knows the sender of one recording."""

    def __init__(self, twin: Twin) -> None:
        self._twin = twin

    async def by_id(self, twin_id: int) -> Twin | None:
        return self._twin if twin_id == self._twin.id else None

    async def by_account(self, account: bytes) -> Twin | None:
        return None

    async def aclose(self) -> None:
        return None


class Receiver:
    """A gateway's incoming half, as the recipient of one recording."""

    def __init__(self, commits: Commits, entry: dict[str, Any]) -> None:
        recipient, signer = entry["recipient"], entry["signer"]
        # A recording may be for a session with an id.
        own = from_message(pb.Envelope.FromString(bytes.fromhex(entry["hex"])).destination)
        assert own.twin == recipient["twin"]
        secret = bytes.fromhex(recipient["secret_hex"])
        key = SigningKey.from_mini_secret(secret, KeyType.SR25519)
        sealer = Sealer(own, key, EncryptionKey(secret), os.urandom)
        account, pk = bytes.fromhex(signer["pubkey"]), bytes.fromhex(entry["sender_pk"])
        twins = TwinCache(OneTwin(Twin(signer["twin"], account, pk, ())))
        self.sent: list[bytes] = []
        self.counters: Counter[str] = Counter()
        self.backlogs = Backlogs(commits)

        def send(data: bytes, deadline: int) -> None:
            self.sent.append(data)

        self.incoming = Incoming(
            own,
            sealer,
            twins,
            commits,
            QueueWrites(commits, self.counters),
            self.backlogs,
            Calls(sealer, twins, send),
            lambda request: False,
            lambda uid, source, error: None,
            send,
            lambda uid, twin: None,
            lambda uid: False,
            self.counters,
            lambda flooded: None,
        )


@pytest.fixture
async def commits(valkey: RedisServer) -> AsyncIterator[Commits]:
    writing = Commits(valkey.url)
    writing.start()
    await writing.pipe.wait_usable()
    yield writing
    await writing.aclose(1)


def set_clock(monkeypatch: pytest.MonkeyPatch, now: int) -> None:
    clock = SimpleNamespace(time=lambda: float(now), monotonic=time.monotonic)
    monkeypatch.setattr(incoming_module, "time", clock)


def named(entries: list[dict[str, Any]]) -> list[str]:
    return [f"{number}-{each['made_by']}" for number, each in enumerate(entries)]


@pytest.mark.parametrize("entry", REQUESTS, ids=named(REQUESTS))
async def test_requests(
    entry: dict[str, Any], commits: Commits, valkey: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = entry["fields"]
    set_clock(monkeypatch, fields["timestamp"])
    receiver = Receiver(commits, entry)
    receiver.incoming.receive(bytes.fromhex(entry["hex"]))
    queue = f"msgbus.{fields['command']}"
    (raw,) = await eventually(lambda: valkey.run("LRANGE", queue, 0, -1))
    assert receiver.sent == []
    found = json.loads(raw)
    source = from_message(pb.Envelope.FromString(bytes.fromhex(entry["hex"])).source)
    assert base64.b64decode(found["dat"]).hex() == entry["plaintext"]
    assert (found["ref"], found["src"]) == (fields["uid"], str(source))
    assert (found["exp"], found["now"]) == (fields["expiration"], fields["timestamp"])
    assert (found["tag"], found["shm"]) == (fields.get("tags"), fields.get("schema"))
    await receiver.incoming.aclose()


@pytest.mark.parametrize("entry", ANSWERS, ids=named(ANSWERS))
async def test_answers(
    entry: dict[str, Any], commits: Commits, valkey: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = entry["fields"]
    set_clock(monkeypatch, fields["timestamp"])
    receiver = Receiver(commits, entry)
    deadline = int(time.time()) + 60
    receiver.backlogs.add(fields["uid"], Waiting("ret", "mine", deadline))
    receiver.incoming.receive(bytes.fromhex(entry["hex"]))
    (raw,) = await eventually(lambda: valkey.run("LRANGE", "ret", 0, -1))
    found = json.loads(raw)
    assert base64.b64decode(found["dat"]).hex() == entry["plaintext"]
    assert found["ref"] == "mine"
    assert found["src"].partition(":")[0] == str(entry["signer"]["twin"])
    if fields["kind"] == "error":
        assert found["err"] == {"code": fields["code"], "message": fields["message"]}
    else:
        assert found["err"] is None
    await receiver.incoming.aclose()


def test_all_programs_are_there() -> None:
    assert {each["made_by"] for each in REQUESTS} == {"go", "ts", "rmb-peer"}
    assert {each["made_by"] for each in ANSWERS} == {"go", "rmb-peer"}
