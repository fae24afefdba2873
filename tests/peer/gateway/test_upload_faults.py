"""Gateways killed at every step of an upload: the file arrives whole, and its command is called."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path

from peer.client import Client
from peer.modules.files import Uploads
from tests.peer.gateway.conftest import StartGateway
from tests.support.gateway_process import GatewayProcess, Program
from tests.support.redis_servers import RedisServer
from tests.support.relay_process import RelayProcess
from tests.support.waiting import eventually
from tests.support.world import fresh_twins

TIMEOUT_S = 60.0
CONTENT = os.urandom(2_500_000)  # five chunks

FOLDER = "peer.modules.files_folder"
RECEIVER_FAULTS = (
    f"{FOLDER}:UploadFolder.save:before:1",  # the offer is not on disk
    f"{FOLDER}:UploadFolder.save:after:1",
    f"{FOLDER}:write_chunk:before:2",
    f"{FOLDER}:write_chunk:after:4",
    f"{FOLDER}:write_footer:before:3",
    f"{FOLDER}:seal:before:1",
    f"{FOLDER}:seal:after:1",
    f"{FOLDER}:UploadFolder.save:before:2",  # everything is there, and checked
    f"{FOLDER}:UploadFolder.place:before:1",
    f"{FOLDER}:UploadFolder.place:after:1",
    f"{FOLDER}:UploadFolder.save:before:3",  # it has its name
    f"{FOLDER}:UploadFolder.save:after:3",
    f"{FOLDER}:UploadFolder.save:before:4",  # its command is called
    f"{FOLDER}:UploadFolder.save:after:4",
)
STORE = "peer.gateway.handlers:ModuleStore"
SENDER_FAULTS = (
    f"{STORE}.put:before:1",
    f"{STORE}.put:after:1",
    "peer.modules.files_sender:SourceFile.chunk:before:3",
    "peer.modules.files_sender:SourceFile.check_unchanged:before:1",
    f"{STORE}.remove:before:1",
    f"{STORE}.remove:after:1",
)


class Receiver:
    """A gateway with a folder for uploads."""

    def __init__(self, start: StartGateway, folder: Path, redis: RedisServer, *faults: str) -> None:
        folder.mkdir()
        self.folder = folder
        self.redis = redis
        self.gateway: GatewayProcess = start(*faults, redis=redis, more=("--uploads", str(folder)))

    async def has(self, sender: int) -> None:
        """Wait until the whole file has arrived and its command is in its list."""
        path = self.folder / str(sender) / "file.bin"
        await eventually(lambda: path.exists(), TIMEOUT_S, f"{path} arrives")
        assert path.read_bytes() == CONTENT
        await eventually(lambda: self.redis.run("LLEN", "msgbus.files.new"), TIMEOUT_S, "a call")
        entry = json.loads(self.redis.run("RPOP", "msgbus.files.new"))
        assert entry["src"].partition(":")[0] == str(sender)

    def left(self) -> list[str]:
        return [path.name for path in self.folder.glob(".incoming/*.part")]


async def test_receivers_killed_at_every_step(
    start_gateway: StartGateway,
    tmp_path: Path,
    relay: RelayProcess,
    twins_file: Path,
    redises: Callable[[], RedisServer],
) -> None:
    source = tmp_path / "file.bin"
    source.write_bytes(CONTENT)
    receivers = [
        Receiver(start_gateway, tmp_path / str(number), redises(), fault)
        for number, fault in enumerate(RECEIVER_FAULTS)
    ]
    sender, uploads = fresh_twins(1)[0], Uploads(None)
    secret = f"0x{sender.mini_secret.hex()}"

    async def through(receiver: Receiver) -> None:
        await receiver.gateway.connected()
        sending = asyncio.create_task(uploads.send(receiver.gateway.twin, source, cmd="files.new"))
        await receiver.gateway.died()
        receiver.gateway.start()
        await asyncio.wait_for(sending, TIMEOUT_S)
        await receiver.has(sender.id)
        assert receiver.left() == []

    async with Client(secret, [relay.url], twins_file, modules=[uploads]):
        await asyncio.gather(*map(through, receivers))


async def test_senders_killed_at_every_step(
    start_gateway: StartGateway, tmp_path: Path, redises: Callable[[], RedisServer]
) -> None:
    source = tmp_path / "file.bin"
    source.write_bytes(CONTENT)
    receiver = Receiver(start_gateway, tmp_path / "uploads", redises())
    await receiver.gateway.connected()

    async def through(fault: str) -> None:
        redis = redises()
        sender = await start_gateway(fault, redis=redis).connected()
        program = Program(redis)
        payload = json.dumps({"path": str(source), "cmd": "files.new"}).encode()
        ret = program.ask("file.upload", [receiver.gateway.twin], payload)
        await sender.died()
        sender.start()
        await receiver.has(sender.twin)
        answer = await program.answer(ret, TIMEOUT_S)
        assert not answer.get("err"), answer
        # Nothing remains to be sent at the next start.
        await eventually(lambda: not redis.run("EXISTS", "msgbus.module.file"), TIMEOUT_S)

    for fault in SENDER_FAULTS:
        await through(fault)
