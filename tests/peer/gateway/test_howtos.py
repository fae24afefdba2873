"""The examples of the how-tos about modules and uploads, run unchanged."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway_process import Program as Asker
from tests.support.gateway_process import payload_of
from tests.support.identities import Twin
from tests.support.peer_process import CLI, GATEWAY, Program, environment, run_program
from tests.support.redis_servers import RedisServer
from tests.support.relay_process import RelayProcess
from tests.support.waiting import eventually
from tests.support.world import fresh_twins

HOWTO = Path(__file__).parents[3] / "docs" / "howto"
OTHER = "102"
"""Number of the twin that the pages call; it has another number here."""


class Page:
    """A page, with its files in a folder where its commands can be run."""

    def __init__(
        self, name: str, folder: Path, relay: RelayProcess, twins: Path, asker: Twin, asked: Twin
    ) -> None:
        self.text = (HOWTO / name).read_text().replace(OTHER, str(asked.id))
        self.folder = folder
        self._places = {
            "RMB_RELAY": relay.url.replace("127.0.0.1", "localhost"),
            "RMB_TWINS": str(twins),
        }
        self.asker, self.asked = asker, asked
        for block in re.findall(r"(?:^    .*\n|^\n(?=(?:\n*    )))+", self.text, re.MULTILINE):
            code = "\n".join(line[4:] for line in block.strip("\n").split("\n"))
            found = re.match(r"# (\w+\.py)\n", code)
            if found:
                (folder / found[1]).write_text(code + "\n")

    def variables(self, twin: Twin) -> dict[str, str]:
        """Return the environment of a twin's program: its secret, the relay and the twins."""
        secret = f"0x{twin.mini_secret.hex()}"
        return {**environment(), **self._places, "RMB_SECRET": secret}

    def commands(self, start: str) -> list[list[str]]:
        """Return the command lines that begin with `start`, without comments."""
        lines = re.findall(rf"^    ({re.escape(start)}.*)$", self.text, re.MULTILINE)
        return [shlex.split(line) for line in lines]

    async def rmb(self, arguments: list[str]) -> str:
        """Run one of the `rmb` lines as the asking twin and return its output."""
        done = await asyncio.to_thread(
            run_program, CLI, self.folder, *arguments, more=self.variables(self.asker)
        )
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout.decode().strip()

    def start(self, module: str, *arguments: str) -> Program:
        """Start a program as the twin that is called, with the page's files importable."""
        more = self.variables(self.asked)
        more["PYTHONPATH"] += f":{self.folder}"
        return Program(module, self.folder, *arguments, more=more)


@pytest.fixture
def page(tmp_path: Path, relay: RelayProcess, twins_file: Path) -> Callable[[str], Page]:
    asker, asked = fresh_twins(2)
    return lambda name: Page(name, tmp_path, relay, twins_file, asker, asked)


async def test_modules(page: Callable[[str], Page]) -> None:
    modules = page("modules.md")
    (serve,) = modules.commands("rmb serve")
    served = modules.start(CLI, *serve[1:], "--module", "my_relay_race:Race")
    try:
        await served.says("calc.*")
        add, whoami = modules.commands("rmb call 1")[:2]
        (race,) = [call for call in modules.commands("rmb call") if "race.pass" in call]
        assert await modules.rmb(add[1:]) == "6"
        assert await modules.rmb(whoami[1:]) == f"twin {modules.asker.id}"
        assert await modules.rmb(race[1:]) == f"twin {modules.asked.id}"
    finally:
        served.stop()


async def test_the_same_module_in_a_gateway(
    page: Callable[[str], Page], redises: Callable[[], RedisServer]
) -> None:
    modules, redis = page("modules.md"), redises()
    (peer,) = modules.commands("rmb-peer --secret-file")
    options = peer[peer.index("--module") :]
    gateway = modules.start(GATEWAY, "--redis", redis.url, *options, *places(modules))
    try:
        await gateway.says("connected to ws://")
        for command in modules.commands("rmb call 1")[:1]:
            assert await modules.rmb(command[1:]) == "6"
        version = await modules.rmb(["call", str(modules.asked.id), "rmb.version"])
        assert json.loads(version)
    finally:
        gateway.stop()


async def test_uploads(page: Callable[[str], Page], redises: Callable[[], RedisServer]) -> None:
    uploads, redis = page("upload.md"), redises()
    report = uploads.folder / "report.pdf"
    report.write_bytes(b"%PDF-1.7 of a test")
    (uploads.folder / "uploads").mkdir()
    gateway = uploads.start(
        GATEWAY,
        "--redis",
        redis.url,
        "--uploads",
        str(uploads.folder / "uploads"),
        *places(uploads),
    )
    try:
        await gateway.says("connected to ws://")
        shown = [await uploads.rmb(command[1:]) for command in uploads.commands("rmb upload")]
        assert json.loads(shown[2])["size"] == len(report.read_bytes())
        script = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-W", "error", "send_report.py"],
            cwd=uploads.folder,
            env=uploads.variables(uploads.asker),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert script.returncode == 0, script.stderr
        assert script.stdout.startswith("python.pdf: 18 bytes")
        folder = uploads.folder / "uploads" / str(uploads.asker.id)
        assert {path.name for path in folder.iterdir()} == {"report.pdf", "july.pdf", "python.pdf"}
        assert {path.read_bytes() for path in folder.iterdir()} == {report.read_bytes()}
        # The command that the second line of the page names.
        await eventually(lambda: redis.run("LLEN", "msgbus.reports.new"))
        entry = json.loads(redis.run("RPOP", "msgbus.reports.new"))
        call = json.loads(base64.b64decode(entry["dat"]))
        assert set(call) == set(fields_of_arrival(uploads.text))
        assert call["path"] == str(folder / "july.pdf")
    finally:
        gateway.stop()


async def test_a_program_uploads(
    page: Callable[[str], Page], redises: Callable[[], RedisServer], tmp_path: Path
) -> None:
    """A program uploads a file with the JSON of the page, except for the path."""
    uploads, redis = page("upload.md"), redises()
    pushed = re.search(r"LPUSH msgbus.system.local '(\{.*?\})'", uploads.text, re.DOTALL)
    assert pushed
    body: dict[str, Any] = json.loads(pushed[1])
    assert json.loads(base64.b64decode(body["dat"])) == {"path": "/srv/report.pdf"}
    report = tmp_path / "report.pdf"
    report.write_bytes(b"x" * 1000)
    body["dat"] = base64.b64encode(json.dumps({"path": str(report)}).encode()).decode()
    folder = tmp_path / "uploads"
    folder.mkdir()
    gateway = uploads.start(
        GATEWAY, "--redis", redis.url, "--uploads", str(folder), *places(uploads)
    )
    try:
        await gateway.says("connected to ws://")
        asker = Asker(redis)
        asker.push(body)  # to itself: a gateway is a twin like any other
        answer = await asker.answer(body["ret"])
        id = json.loads(payload_of(answer))

        async def status() -> dict[str, Any]:
            payload = json.dumps({"id": id}).encode()
            found = await asker.call("file.status", uploads.asked.id, payload)
            return dict(json.loads(payload_of(found)))

        async def done() -> bool:
            return (await status())["state"] == "done"

        await eventually(done)
        assert set(await status()) == {"id", "state", "twin", "path", "size", "done"}
        assert (folder / str(uploads.asked.id) / "report.pdf").read_bytes() == report.read_bytes()
    finally:
        gateway.stop()


def places(page: Page) -> list[str]:
    """Return the options for the relay and the twins."""
    variables = page.variables(page.asked)
    return ["--relay", variables["RMB_RELAY"], "--twins", variables["RMB_TWINS"]]


def fields_of_arrival(text: str) -> list[str]:
    """Return the names of the fields that the page shows for a file that has arrived."""
    shown = re.search(r"^    (\{\"id\": .*?\})$", text, re.MULTILINE | re.DOTALL)
    assert shown
    return re.findall(r"\"(\w+)\": ", shown[1])
