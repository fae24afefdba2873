"""Uploads between two gateways through a relay: 200 MB with kills half-way, and `rmb upload`."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import psutil
import pytest

from peer.client import Client
from peer.modules.files import Uploads
from peer.modules.version import version_module
from proto.files.bounds import CHUNK_BYTES, SENDER_WINDOW_CHUNKS
from tests.peer.client.conftest import secret_of
from tests.peer.gateway.conftest import StartGateway
from tests.peer.modules.test_files_plain import Reference
from tests.support.gateway_process import GatewayProcess, Program, payload_of
from tests.support.identities import Twin
from tests.support.redis_servers import RedisServer
from tests.support.relay_process import ROOT, RelayProcess
from tests.support.waiting import eventually
from tests.support.world import fresh_twins

MB = 1_000_000
TIMEOUT_S = 90.0


def make_file(path: Path, size_bytes: int) -> str:
    """Write a file whose parts differ; return its SHA-256."""
    block = random.Random(1).randbytes(MB)
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for number in range(0, size_bytes, MB):
            data = (number.to_bytes(8, "big") + block)[: min(MB, size_bytes - number)]
            file.write(data)
            digest.update(data)
    return digest.hexdigest()


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Pair:
    """A sending and a receiving gateway, and a program beside each."""

    def __init__(self, start_gateway: StartGateway, folder: Path, redis: Any) -> None:
        twins = fresh_twins(2)
        self.folder = folder / "uploads"
        self.folder.mkdir()
        self.sender_redis: RedisServer = redis()
        self.receiver_redis: RedisServer = redis()
        self.sender = start_gateway(twin=twins[0], redis=self.sender_redis)
        more = ("--uploads", str(self.folder))
        self.receiver = start_gateway(twin=twins[1], redis=self.receiver_redis, more=more)
        self.program = Program(self.sender_redis)

    async def connected(self) -> Pair:
        await self.sender.connected()
        await self.receiver.connected()
        return self

    async def ask(self, command: str, **fields: Any) -> dict[str, Any]:
        payload = json.dumps(fields).encode()
        answer = await self.program.call(command, self.receiver.twin, payload)
        assert not answer.get("err"), answer
        found: dict[str, Any] = json.loads(payload_of(answer))
        return found

    def arrived(self, name: str) -> Path:
        return self.folder / str(self.sender.twin) / name

    async def status(self, id: object) -> dict[str, Any]:
        return await self.ask("file.status", id=id)

    async def done(self, id: object) -> dict[str, Any]:
        async def ended() -> dict[str, Any] | None:
            status = await self.status(id)
            assert status["state"] != "failed", status
            return status if status["state"] == "done" else None

        found: dict[str, Any] = await eventually(ended, TIMEOUT_S, "the upload is done")
        return found

    async def sent(self, id: object, size_bytes: int) -> None:
        async def so_much() -> bool:
            status = await self.status(id)
            assert status["state"] == "sending", status
            return bool(status["done"] >= size_bytes)

        await eventually(so_much, TIMEOUT_S, f"{size_bytes} bytes are sent")


@pytest.fixture
async def pair(
    start_gateway: StartGateway, tmp_path: Path, redises: Callable[[], RedisServer]
) -> Pair:
    return await Pair(start_gateway, tmp_path, redises).connected()


async def test_two_hundred_megabytes_survive_the_kill_of_either_gateway(
    pair: Pair, tmp_path: Path
) -> None:
    source = tmp_path / "big.bin"
    digest = make_file(source, 200 * MB)
    id: Any = await pair.ask("file.upload", path=str(source), cmd="files.new")
    await pair.sent(id, 40 * MB)
    pair.receiver.kill()
    pair.receiver.start(forked=False)
    await pair.receiver.connected(2)
    await pair.sent(id, 100 * MB)
    pair.sender.kill()
    pair.sender.start(forked=False)
    await pair.sender.connected(2)
    status = await pair.done(id)
    assert status["size"] == status["done"] == 200 * MB
    assert sha256_of(pair.arrived("big.bin")) == digest
    (call,) = await calls_of(pair.receiver_redis, "files.new", 1)
    assert json.loads(base64.b64decode(call["dat"])) == {
        "id": id,
        "path": str(pair.arrived("big.bin")),
        "name": "big.bin",
        "size": 200 * MB,
        "sha256": digest,
    }
    assert call["src"] == str(pair.sender.twin)
    # The window bounds the memory of both, not the file's size.
    for gateway in (pair.sender, pair.receiver):
        assert peak_bytes(gateway) < 75 * MB + 6 * SENDER_WINDOW_CHUNKS * CHUNK_BYTES


async def test_what_a_program_is_told(pair: Pair, tmp_path: Path) -> None:
    source = tmp_path / "small.bin"
    make_file(source, 3 * MB)
    id: Any = await pair.ask("file.upload", path=str(source), name="other.bin")
    await pair.done(id)
    assert pair.arrived("other.bin").read_bytes() == source.read_bytes()
    assert [job["id"] for job in await statuses(pair)] == [id]
    for fields, text in (
        ({"path": "/missing"}, "can't read"),
        ({"path": str(tmp_path)}, "not a regular file"),
        ({"path": str(source), "name": "../x"}, "file name"),
        ({"path": str(source), "name": "other.bin", "cmd": "x"}, "is there already"),
        ({}, "path must be"),
    ):
        answer = await pair.program.call(
            "file.upload", pair.receiver.twin, json.dumps(fields).encode()
        )
        assert text in answer["err"]["message"]
        assert answer["err"]["code"] > 0
    wrong = await pair.program.call("file.upload", pair.receiver.twin, b"{}", shm="text/plain")
    assert wrong["err"]["message"] == "expected content schema to be application/json"
    ret = pair.program.ask("file.upload", [pair.receiver.twin, 7], b"{}")
    both = await pair.program.answer(ret)
    assert both["err"]["message"] == "can only upload to one destination"


async def test_a_receiver_that_is_away_is_told_when_the_request_expires(
    pair: Pair, tmp_path: Path
) -> None:
    source = tmp_path / "small.bin"
    make_file(source, MB)
    pair.receiver.stop()
    payload = json.dumps({"path": str(source)}).encode()
    ret = pair.program.ask("file.upload", [pair.receiver.twin], payload, exp=2)
    answer = await pair.program.answer(ret)
    assert answer["err"] == {
        "code": 102,
        "message": "request has expired before it was carried out",
    }


async def test_a_gateway_without_a_folder_refuses(
    pair: Pair, start_gateway: StartGateway, tmp_path: Path
) -> None:
    source = tmp_path / "small.bin"
    make_file(source, MB)
    other = start_gateway(redis=pair.receiver_redis)
    await other.connected()
    payload = json.dumps({"path": str(source)}).encode()
    answer = await pair.program.call("file.upload", other.twin, payload)
    assert answer["err"] == {"code": 403, "message": "this peer takes no uploads"}


ARRIVALS = """
from pathlib import Path
from peer.modules.api import Module, Request

module = Module("arrivals")

@module.command("new")
async def new(request: Request) -> None:
    Path("arrived.json").write_bytes(request.payload)
"""


async def test_the_command_may_be_that_of_a_module(
    start_gateway: StartGateway, tmp_path: Path, redises: Callable[[], RedisServer]
) -> None:
    (tmp_path / "gateways").mkdir()
    (tmp_path / "gateways" / "arrivals.py").write_text(ARRIVALS)
    (tmp_path / "uploads").mkdir()
    redis = redises()
    more = ("--uploads", str(tmp_path / "uploads"), "--module", "arrivals:module")
    gateway = await start_gateway(redis=redis, more=more).connected()
    source = tmp_path / "a.bin"
    source.write_bytes(b"x")
    payload = json.dumps({"path": str(source), "cmd": "arrivals.new"}).encode()
    answer = await Program(redis).call("file.upload", gateway.twin, payload)  # to itself
    told = tmp_path / "gateways" / "arrived.json"
    await eventually(lambda: told.exists() and told.read_bytes(), 20, "the module is called")
    assert json.loads(told.read_bytes())["id"] == json.loads(payload_of(answer))
    assert not redis.run("EXISTS", "msgbus.arrivals.new")


async def test_a_receiver_that_answers_as_the_reference(
    start_gateway: StartGateway,
    tmp_path: Path,
    relay: RelayProcess,
    twins_file: Path,
    redises: Callable[[], RedisServer],
) -> None:
    reference, uploads = Reference(), Uploads(None)
    redis = redises()
    await start_gateway(redis=redis).connected()
    source = tmp_path / "a.bin"
    make_file(source, 3 * MB)
    receiver, sender = fresh_twins(2)
    modules = [reference, version_module()]
    async with (
        Client(secret_of(receiver), [relay.url], twins_file, sid=None, modules=modules),
        Client(secret_of(sender), [relay.url], twins_file, modules=[uploads]),
    ):
        names = [(await uploads.send(receiver.id, source)).name]
        payload = json.dumps({"path": str(source)}).encode()
        answer = await Program(redis).call("file.upload", receiver.id, payload)
        assert not answer.get("err"), answer
        names.append(json.loads(payload_of(answer)))
        await eventually(lambda: reference.closed == set(names), TIMEOUT_S, "both are closed")
    assert reference.files == dict.fromkeys(names, source.read_bytes())


async def test_rmb_upload(
    pair: Pair, relay: RelayProcess, twins_file: Path, tmp_path: Path
) -> None:
    source = tmp_path / "Grüße.bin"
    digest = make_file(source, 30 * MB + 7)
    me = fresh_twins(1)[0]
    command = Rmb(me, relay, twins_file, tmp_path)
    process = command.start(pair.receiver, source)
    part = f"{pair.folder}/.incoming"
    await eventually(lambda: any(part_bytes(part) > 0 for _ in "1"), 30, "something has come")
    process.kill()
    process.wait()
    done = await asyncio.to_thread(command.run, pair.receiver, source, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["name"], told["size"], told["sha256"]) == (source.name, 30 * MB + 7, digest)
    assert told["twin"] == pair.receiver.twin
    assert sha256_of(pair.folder / str(me.id) / source.name) == digest
    again = await asyncio.to_thread(command.run, pair.receiver, source)
    assert "were there before" in again.stdout
    source.write_bytes(b"changed")
    refused = await asyncio.to_thread(command.run, pair.receiver, source, "--json")
    assert refused.returncode == 1
    assert json.loads(refused.stdout)["error"]["message"].endswith("is there already")
    missing = await asyncio.to_thread(command.run, pair.receiver, tmp_path / "missing")
    assert missing.returncode == 1 and "can't read" in missing.stderr


async def test_rmb_upload_tells_of_a_receiver_that_is_away(
    pair: Pair, relay: RelayProcess, twins_file: Path, tmp_path: Path
) -> None:
    source = tmp_path / "late.bin"
    make_file(source, MB)
    pair.receiver.stop()
    command = Rmb(fresh_twins(1)[0], relay, twins_file, tmp_path)
    told = tmp_path / "told"
    with told.open("wb") as stderr, command.start(pair.receiver, source, stderr) as process:
        try:
            text = f"twin {pair.receiver.twin} has not answered yet"
            await eventually(lambda: text in told.read_text())
            pair.receiver.start()
            assert await asyncio.to_thread(process.wait, TIMEOUT_S) == 0
        finally:
            process.kill()
    assert len(told.read_text().splitlines()) == 1, "told once"


class Rmb:
    """`rmb upload` of one twin."""

    def __init__(self, twin: Twin, relay: RelayProcess, twins: Path, folder: Path) -> None:
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "RMB_SECRET": f"0x{twin.mini_secret.hex()}",
            "RMB_RELAY": relay.url,
            "RMB_TWINS": str(twins),
        }
        self._folder = folder

    def _command(self, receiver: GatewayProcess, path: Path, *more: str) -> list[str]:
        code = "import sys; from peer.cli.command import main; sys.exit(main())"
        return [sys.executable, "-c", code, "upload", str(receiver.twin), str(path), *more]

    def start(
        self, receiver: GatewayProcess, path: Path, stderr: int | IO[bytes] = subprocess.DEVNULL
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._command(receiver, path),
            env=self._environment,
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )

    def run(
        self, receiver: GatewayProcess, path: Path, *more: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._command(receiver, path, *more),
            env=self._environment,
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )


async def statuses(pair: Pair) -> list[dict[str, Any]]:
    answer = await pair.program.call("file.status", pair.receiver.twin)
    found: list[dict[str, Any]] = json.loads(payload_of(answer))
    return found


async def calls_of(redis: RedisServer, command: str, count: int) -> list[dict[str, Any]]:
    """Return the requests in the list of a command without a service."""
    await eventually(lambda: redis.run("LLEN", f"msgbus.{command}") >= count)
    return [json.loads(entry) for entry in redis.run("LRANGE", f"msgbus.{command}", 0, -1)]


def part_bytes(folder: str) -> int:
    """Return the disk space that unfinished uploads use, in bytes."""
    return sum(
        os.stat(entry.path).st_blocks * 512
        for entry in os.scandir(folder)
        if entry.name.endswith(".part")
    )


def peak_bytes(gateway: GatewayProcess) -> int:
    """Return a gateway's peak memory in bytes, or its current memory if the system has no peak."""
    for line in Path(f"/proc/{gateway.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return psutil.Process(gateway.pid).memory_info().rss
