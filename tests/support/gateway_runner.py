"""Run one gateway of a test twin as a process, with faults that a test specifies.

    python -m tests.support.gateway_runner --twin 5 --twins twins.csv --relay ws://... --redis ...

A fault `peer.gateway.commits:Commits._write:before:3` kills the process (SIGKILL) just before the
third call of that function; `after` kills it just after the call has returned.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import importlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop

from peer.gateway.app import Gateway
from peer.identity import Identity
from peer.links import Links
from peer.modules.api import Module
from peer.modules.files import Uploads
from peer.twins import TwinCache, open_source
from proto.identity import tokens
from proto.identity.agreement import EncryptionKey
from proto.identity.signing import KeyType
from proto.limits.backoff import Backoff
from tests.support import identities

QUICK = Backoff(first_s=0.1, longest_s=0.5, factor=1.5, jitter=0.5)


def arm(fault: str) -> None:
    """Insert a fault into a function of the gateway."""
    module_name, path, when, number = fault.split(":")
    owner: Any = importlib.import_module(module_name)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    function: Callable[..., Any] = getattr(owner, name)
    left = int(number)

    @functools.wraps(function)
    def faulty(*arguments: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if when == "before" and left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        found = function(*arguments, **named)
        if when == "after" and left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    setattr(owner, name, faulty)


def loaded(name: str) -> Module:
    """Return a module of the gateway, named as package:attribute."""
    package, _, attribute = name.partition(":")
    found: Module = getattr(importlib.import_module(package), attribute)
    return found


async def run(options: argparse.Namespace) -> None:
    """Serve until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    known = identities.Twin(options.twin, key_type=KeyType(options.key_type))
    encryption = known.encryption_key
    if options.encryption:
        encryption = EncryptionKey(bytes.fromhex(options.encryption))
    identity = Identity(known.signing_key, encryption)
    cache = TwinCache(open_source(options.twins, options.substrate))
    own = await cache.get(options.twin)
    assert own is not None

    def token() -> str:
        return tokens.issue(identity.key, own.id, None, int(time.time()))

    gateway = Gateway(
        identity,
        own,
        cache,
        lambda on_message, on_change: Links(
            options.relay, token, on_message, on_change, backoff=QUICK
        ),
        options.redis,
        [Uploads(options.uploads), *(loaded(each) for each in options.module)],
    )
    try:
        await gateway.run(stop)
        # Tests read these figures from the last line of the log.
        print(dict(+gateway.counters), gateway.gauges(), flush=True)
    finally:
        await cache.aclose()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--twin", type=int, required=True)
    parser.add_argument("--key-type", type=int, default=KeyType.SR25519.value)
    parser.add_argument("--encryption", help="hex of another key than the twin's own")
    parser.add_argument("--twins")
    parser.add_argument("--substrate", action="append", default=[])
    parser.add_argument("--relay", action="append", required=True)
    parser.add_argument("--redis", required=True)
    parser.add_argument("--module", action="append", default=[])
    parser.add_argument("--uploads", type=Path)
    parser.add_argument("--fault", action="append", default=[])
    options = parser.parse_args()
    sys.path.insert(0, "")  # for modules in the current folder, also if this process is forked
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    for fault in options.fault:
        arm(fault)
    uvloop.run(run(options))


if __name__ == "__main__":
    main()
