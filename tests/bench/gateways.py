"""Gateways to be measured: `rmb-peer` processes beside a relay, each with its own Valkey."""

from __future__ import annotations

import contextlib
import csv
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from peer.identity import Identity
from tests.bench import targets
from tests.bench import twins as bench_twins
from tests.bench.layout import on_cores
from tests.bench.targets import Target, TargetError
from tests.support.redis_servers import RedisServer, start_valkey

START_TIMEOUT_S = 60.0
POLL_S = 0.02
CONNECTED = "connected to ws://"
"""Text in the log of a gateway that has signed in."""


@dataclass(frozen=True)
class GatewayTarget:
    """A running gateway."""

    twin: int
    process: subprocess.Popen[bytes]
    redis: RedisServer
    log: Path

    @property
    def roots(self) -> dict[str, int]:
        """Process ids that are measured, with their descendants."""
        return {
            f"gateway {self.twin}": self.process.pid,
            f"redis of {self.twin}": self.redis.pid,
        }


@contextlib.contextmanager
def gateway(
    cores: frozenset[int], relay: Target, twin: int, twins: Path, *options: str
) -> Iterator[GatewayTarget]:
    """Run the gateway of a twin.

    Args:
        cores: cores of the gateway and its Valkey.
        relay: relay at which it signs in.
        twin: twin of the gateway.
        twins: file written by `write_twins`.
        options: further options of its command line.
    """
    with tempfile.TemporaryDirectory(prefix="rmbb-") as name:
        folder = Path(name)
        with on_cores(cores):
            redis = start_valkey(folder / "redis", append_fsync="everysec")
        log = folder / "gateway.log"
        command = [
            *(sys.executable, "-m", "peer.gateway.command", "--redis", redis.unix_url),
            *("--relay", relay.url.replace("127.0.0.1", "localhost"), "--twins", str(twins)),
            *options,
        ]
        secret = bench_twins.secret(twin)
        process = targets.start(command, cores, log, {"RMB_SECRET": secret})
        try:
            _wait_connected(process, log)
            yield GatewayTarget(twin, process, redis, log)
        finally:
            targets.stop(process)
            redis.remove()


def write_twins(path: Path, twins: Sequence[int]) -> None:
    """Write the bench's twins with the keys that encrypt messages to them."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("id", "account", "pk", "relays"))
        for twin in twins:
            identity = Identity.from_secret(bench_twins.secret(twin))
            account, pk = identity.account.hex(), identity.pk.hex()
            writer.writerow((twin, f"0x{account}", f"0x{pk}", "localhost"))


def _wait_connected(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while CONNECTED not in log.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > deadline:
            raise TargetError(f"a gateway did not sign in:\n{log.read_text(errors='replace')}")
        time.sleep(POLL_S)
