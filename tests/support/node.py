"""Node.js, for the JavaScript peers of `tests/interop/js`."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

PEERS: Final = Path(__file__).parents[1] / "interop" / "js"
START_S: Final = 20.0
ANSWER_BYTES: Final = 1 << 20


class JsError(Exception):
    """A command failed in Node.js.

    Attributes:
        found: description of the error by the program (`steered.js`).
    """

    def __init__(self, found: dict[str, Any]) -> None:
        super().__init__(json.dumps(found))
        self.found = found


class JsClient:
    """A program that is controlled by commands (`steered.js`)."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._ids = itertools.count()
        self._answers: dict[int, asyncio.Future[Any]] = {}

    async def ask(self, verb: str, **given: Any) -> Any:
        """Send a command, and return its value.

        Raises:
            JsError: The command failed.
        """
        return await self.begin(verb, **given)

    def begin(self, verb: str, **given: Any) -> asyncio.Future[Any]:
        """Send a command; return a future of its value."""
        number = next(self._ids)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        assert self._process.stdin is not None
        self._process.stdin.write(
            json.dumps({"id": number, "verb": verb, **given}).encode() + b"\n"
        )
        return answer

    async def read(self) -> None:
        """Pass answers to the waiting commands, until the program ends."""
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            message = json.loads(line)
            answer = self._answers.pop(message["id"])
            if answer.cancelled():
                continue
            if "error" in message:
                answer.set_exception(JsError(message["error"]))
            else:
                answer.set_result(message["value"])
        for answer in self._answers.values():
            answer.set_exception(ConnectionError("the program has ended"))
            answer.exception()  # retrieved, also if no caller waits for it


def node() -> str:
    """Return the path of Node.js: the machine's, or the one that `make peers` installed."""
    return shutil.which("node") or str(Path(sys.executable).with_name("node"))


@asynccontextmanager
async def js_server(
    script: str, certificate: tuple[Path, Path], **config: Any
) -> AsyncIterator[str]:
    """Run a server of `tests/interop/js`; yield its URL.

    Args:
        script: file name of the server.
        certificate: paths of certificate and key.
        config: further members of its configuration.
    """
    path, key = certificate
    async with _running(script, str(key), str(path), json.dumps(config)) as process:
        assert process.stdout is not None
        async with asyncio.timeout(START_S):
            port = int(await process.stdout.readline())
        yield f"wss://127.0.0.1:{port}/"


@asynccontextmanager
async def js_client(script: str, *arguments: str) -> AsyncIterator[JsClient]:
    """Run a controlled program of `tests/interop/js`."""
    async with _running(script, *arguments) as process:
        client = JsClient(process)
        reading = asyncio.create_task(client.read())
        yield client
        assert process.stdin is not None
        process.stdin.close()
        await reading


@asynccontextmanager
async def _running(script: str, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a program that ends with its input."""
    process = await asyncio.create_subprocess_exec(
        node(),
        str(PEERS / script),
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=ANSWER_BYTES,
    )
    assert process.stdin is not None
    try:
        yield process
        process.stdin.close()
        async with asyncio.timeout(START_S):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
