"""Stand-in nodes of tfchain for tests: real processes on free loopback ports.

    with running_devchain(folder, twins=(twin(7),)) as chain:
        chain.put_twin(7, relay="b.example")     # a block with TwinUpdated
        chain.set(stalled=True)                  # see chain.devchain.knobs
        SubstrateInterface(url=chain.url)

A `Devchain` keeps its port, its file and therefore its chain through `stop` or `kill` and `start`.
It has a separate control connection: no fault affects the `dev_` methods, and `drop_connections`
spares that connection. Blocks are made only for transactions and by these calls, unless
`block_time_s` is given.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from websockets.sync import client as websocket_client

from chain.devchain.cli import READY
from chain.devchain.jsonrpc import RpcError
from proto.chain.headers import to_hex
from proto.identity import ss58
from tests.support.identities import Twin
from tests.support.redis_servers import free_port

ROOT = Path(__file__).parents[2]
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
CALL_TIMEOUT_S = 60.0


class Control:
    """JSON-RPC client of a node; it makes one call after another, from any thread."""

    def __init__(self, url: str) -> None:
        self._stack = contextlib.ExitStack()
        self._socket = self._stack.enter_context(
            websocket_client.connect(url, compression=None, max_size=None)
        )
        self._number = 0
        self._lock = threading.Lock()

    def call(self, method: str, params: list[Any] | dict[str, Any] | None = None) -> Any:
        """Return the result of a method.

        Raises:
            RpcError: The node answered with an error.
        """
        with self._lock:
            self._number += 1
            request = {"jsonrpc": "2.0", "id": self._number, "method": method}
            self._socket.send(json.dumps({**request, "params": params or []}))
            answer = json.loads(self._socket.recv(timeout=CALL_TIMEOUT_S))
        if "error" in answer:
            error = answer["error"]
            raise RpcError(error["code"], error["message"], error.get("data"))
        return answer["result"]

    def close(self) -> None:
        """Close the connection."""
        self._stack.close()


class Devchain:
    """One node.

    Attributes:
        url: URL on which it listens, the same after a restart.
        file: file that stores its chain.
    """

    def __init__(
        self,
        folder: Path,
        twins: Iterable[Twin] = (),
        *,
        made_up_twins: int = 0,
        block_time_s: float = 0,
        instant: bool = True,
        port: int = 0,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.port = port or free_port()
        self.url = f"ws://127.0.0.1:{self.port}"
        self.file = folder / "chain.jsonl"
        self._log_path = folder / "devchain.log"
        self._arguments = [
            *("--listen", f"127.0.0.1:{self.port}", "--file", str(self.file)),
            *("--block-time", str(block_time_s)),
            *(("--instant",) if instant else ()),
        ]
        if made_up_twins:
            self._arguments += ["--twins", str(made_up_twins)]
        elif listed := list(twins):
            self._arguments += ["--import", str(_write_csv(folder / "twins.csv", listed))]
        self._process: subprocess.Popen[str] | None = None
        self._control: Control | None = None

    def start(self) -> Devchain:
        """Start the node and return when it listens."""
        with self._log_path.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "chain.devchain", *self._arguments],
                cwd=ROOT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        try:
            self._await_ready(self._process)
            self._control = Control(self.url)
        except BaseException:
            self.kill()
            raise
        return self

    @property
    def pid(self) -> int:
        """Process id."""
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        """Stop the node as an operator does; a later `start` continues the same chain."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the node, as a power failure does."""
        self._end(signal.SIGKILL)

    def log(self) -> str:
        """Return what the node wrote to stderr."""
        return self._log_path.read_text()

    def call(self, method: str, params: list[Any] | dict[str, Any] | None = None) -> Any:
        """Return the result of a JSON-RPC method, called on the control connection."""
        assert self._control is not None, "not started"
        return self._control.call(method, params)

    def set(self, **knobs: Any) -> None:
        """Set knobs, by their names in `chain.devchain.knobs`."""
        self.call("dev_setKnobs", knobs)

    def new_blocks(self, count: int = 1, *, every: bool = False) -> int:
        """Make blocks at once; return the last number. Only that is announced unless `every`."""
        number: int = self.call("dev_newBlocks", {"count": count, "every": every})["number"]
        return number

    def fork(self, depth: int = 1, count: int | None = None, *, reinclude: bool = True) -> Any:
        """Replace the newest blocks by a longer branch; return number, hash, retracted."""
        params = {"depth": depth, "count": count, "reinclude": reinclude}
        return self.call("dev_fork", params)

    def put_twin(
        self, twin: Twin, relays: str | None = None, *, pk: bytes | None = None, told: bool = True
    ) -> int:
        """Make a block in which a twin is new or changed; return its number.

        Args:
            twin: the twin.
            relays: its relays, in any form; default: those of `twin`.
            pk: its encryption key; default: that of `twin`.
            told: whether the block has the event; otherwise the state changes silently.
        """
        return self.put_twins([as_json(twin, relays, pk)], told=told)

    def put_twins(self, twins: list[dict[str, Any]], *, told: bool = True) -> int:
        """Do the same for many twins (see `as_json`), in one block."""
        number: int = self.call("dev_putTwins", {"twins": twins, "told": told})["number"]
        return number

    def set_balance(self, account: bytes, free: int) -> None:
        """Make a block that sets the free balance of an account."""
        self.call("dev_setBalance", {"account": to_hex(account), "free": free})

    def drop_connections(self) -> int:
        """Cut all connections except the control connection; return their number."""
        count: int = self.call("dev_dropConnections")
        return count

    def requests(self, method: str) -> int:
        """Return how often a method was called."""
        count: int = self.counts()["requests"].get(method, 0)
        return count

    def counts(self) -> Any:
        """Return requests, connections, accepted, subscriptions, waiting_transactions."""
        return self.call("dev_counts")

    def _await_ready(self, process: subprocess.Popen[str]) -> None:
        # A thread reads the lines, so that a node that prints nothing causes a time-out.
        lines: queue.Queue[str] = queue.Queue()
        assert process.stdout is not None
        stdout = process.stdout

        def read() -> None:
            with stdout:
                for line in stdout:
                    lines.put(line)
            lines.put("")

        threading.Thread(target=read, daemon=True).start()
        while line := lines.get(timeout=START_TIMEOUT_S):
            if line.startswith(READY):
                return
        code = process.wait(STOP_TIMEOUT_S)
        raise RuntimeError(f"the node ended with {code}:\n{self.log()}")

    def _end(self, number: signal.Signals) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(STOP_TIMEOUT_S)
            self._process = None


@contextlib.contextmanager
def running_devchain(
    folder: Path, twins: Iterable[Twin] = (), **options: Any
) -> Iterator[Devchain]:
    """Run a node during the block; the options are those of `Devchain`."""
    chain = Devchain(folder, twins, **options).start()
    try:
        yield chain
    finally:
        chain.stop()


def as_json(twin: Twin, relays: str | None = None, pk: bytes | None = None) -> dict[str, Any]:
    """Return a twin in the form that `dev_putTwins` accepts."""
    return {
        "id": twin.id,
        "account": ss58.encode(twin.account),
        "relay": twin.relays if relays is None else relays,
        "pk": to_hex(twin.encryption_key.public if pk is None else pk),
    }


def _write_csv(path: Path, twins: list[Twin]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("id", "account", "pk", "relays"))
        for twin in twins:
            public = to_hex(twin.encryption_key.public)
            writer.writerow((twin.id, ss58.encode(twin.account), public, twin.relays))
    return path
