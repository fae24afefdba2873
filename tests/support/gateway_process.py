"""Gateways as processes, and the programs and services that use them through Redis."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support import forking
from tests.support.redis_servers import RedisServer
from tests.support.waiting import eventually

RUNNER = "tests.support.gateway_runner"
STOP_TIMEOUT_S = 20.0
SERVE_S = 0.2


class GatewayProcess:
    """One gateway of a test twin; the same through every restart.

    Args:
        folder: folder of its log.
        twin: number of the twin, see `tests.support.identities`.
        redis: server of its queues.
        relays: URLs of the relays.
        twins: path of the CSV file.
    """

    def __init__(
        self,
        folder: Path,
        twin: int,
        redis: RedisServer,
        relays: Sequence[str],
        twins: Path,
        *more: str,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.twin = twin
        self.redis = redis
        self.log_path = folder / f"gateway-{twin}.log"
        self._folder = folder
        self._arguments = [
            *("--twin", str(twin), "--redis", redis.url, "--twins", str(twins)),
            *(part for url in relays for part in ("--relay", url)),
            *more,
        ]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Id of the running process."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process exists."""
        return self._process is not None and self._process.poll() is None

    def start(self, *faults: str, forked: bool = True) -> GatewayProcess:
        """Start the gateway, optionally with faults that will kill it.

        Args:
            forked: whether to fork it: quicker, but with the memory of the parent process.
        """
        assert not self.running
        arguments = [*self._arguments, *(part for each in faults for part in ("--fault", each))]
        with self.log_path.open("ab") as log:
            options: dict[str, Any] = {
                "cwd": self._folder,
                "env": forking.environment(),
                "stdin": subprocess.DEVNULL,
                "stdout": log,
                "stderr": subprocess.STDOUT,
            }
            if forked:
                self._process = forking.Forked(arguments, module=RUNNER, **options)
            else:
                command = [sys.executable, "-m", RUNNER, *arguments]
                self._process = subprocess.Popen(command, **options)
        return self

    async def connected(self, sessions: int = 1) -> GatewayProcess:
        """Wait until its log shows this number of sign-ins."""

        def said() -> bool:
            assert self.running, self.log()
            return self.log().count("connected to ws://") >= sessions

        await eventually(said, 30, f"gateway {self.twin} is connected")
        return self

    async def died(self) -> None:
        """Wait until a fault has killed the gateway."""
        await eventually(lambda: not self.running, 30, f"gateway {self.twin} is dead")
        assert self._process is not None
        assert self._process.returncode == -signal.SIGKILL, self.log()

    def kill(self) -> None:
        """Kill the gateway (SIGKILL)."""
        if self.running:
            assert self._process is not None
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Terminate the gateway, and kill it if it does not end in time."""
        if self.running:
            assert self._process is not None
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def log(self) -> str:
        """Return all output so far."""
        return self.log_path.read_text(errors="replace")


def request_body(
    command: str,
    destinations: Sequence[int],
    ret: str,
    payload: bytes = b"",
    **fields: Any,
) -> dict[str, Any]:
    """Return a request as programs write it."""
    return {
        "ver": 1,
        "ref": None,
        "cmd": command,
        "exp": 60,
        "dat": base64.b64encode(payload).decode(),
        "tag": None,
        "dst": list(destinations),
        "ret": ret,
        "shm": "application/json",
        "now": int(time.time()),
        **fields,
    }


class Program:
    """A local program that sends requests through a gateway's Redis, and takes the answers."""

    def __init__(self, redis: RedisServer) -> None:
        self.redis = redis

    def push(self, body: dict[str, Any] | bytes) -> None:
        """Write a request."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.redis.run("LPUSH", "msgbus.system.local", raw)

    def ask(
        self, command: str, destinations: Sequence[int], payload: bytes = b"", **fields: Any
    ) -> str:
        """Write a request; return the name of the list for its answers."""
        ret = f"ret-{uuid.uuid4()}"
        self.push(request_body(command, destinations, ret, payload, **fields))
        return ret

    async def answer(self, ret: str, timeout_s: float = 60.0) -> dict[str, Any]:
        """Return the next answer in a list."""
        found = await eventually(lambda: self.redis.run("RPOP", ret), timeout_s, f"answer in {ret}")
        body: dict[str, Any] = json.loads(found)
        return body

    async def call(
        self, command: str, twin: int, payload: bytes = b"", **fields: Any
    ) -> dict[str, Any]:
        """Send a request to one twin and return the answer."""
        return await self.answer(self.ask(command, [twin], payload, **fields))


class Service:
    """A service that takes a command's requests and answers them, until it is stopped.

    Attributes:
        taken: requests taken, in order.
    """

    def __init__(self, redis: RedisServer, command: str, echo: bool = True) -> None:
        self._redis = redis
        self._command = command
        self._echo = echo
        self.taken: list[dict[str, Any]] = []
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Service:
        self._task = asyncio.create_task(asyncio.to_thread(self._serve))
        self._going = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._going = False
        assert self._task is not None
        await self._task

    def _serve(self) -> None:
        self._going = True
        client = self._redis.client()
        try:
            while self._going:
                found = client.brpop([f"msgbus.{self._command}"], timeout=SERVE_S)
                if found is None:
                    continue
                request = json.loads(found[1])
                self.taken.append(request)
                if self._echo:
                    client.lpush(request["ret"], json.dumps(self.reply(request)))
        finally:
            client.close()

    def reply(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer, which echoes the request's payload."""
        return {
            "ver": 1,
            "ref": request["ref"],
            "dat": request["dat"],
            "dst": request["src"],
            "shm": request["shm"],
            "now": int(time.time()),
            "err": None,
        }


def payload_of(body: dict[str, Any]) -> bytes:
    """Return the decoded payload of an answer or request."""
    return base64.b64decode(body["dat"])
