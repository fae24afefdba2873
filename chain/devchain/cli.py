"""Command line of the test node, and its run from start to stop."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from chain.devchain import genesis
from chain.devchain.bounds import MAX_BLOCK_TIME_S, MAX_GENESIS_TWINS
from chain.devchain.errors import DevchainError, GenesisError
from chain.devchain.journal import FileJournal
from chain.devchain.knobs import Knobs
from chain.devchain.ledger import Ledger
from chain.devchain.node import Node
from chain.devchain.server import Server
from proto.chain import relays
from proto.chain.bounds import MAX_RELAY_BYTES
from proto.chain.twin import Twin

DEFAULT_LISTEN: Final = "127.0.0.1:9944"
READY: Final = "devchain ready: "
"""Beginning of the line on stdout that says where the node listens."""

_AUTHOR: Final = "Alice"
_MAX_PORT: Final = 65535


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to a parser."""
    parser.add_argument(
        "--listen",
        default=DEFAULT_LISTEN,
        metavar="HOST:PORT",
        help=f"address to listen on (default {DEFAULT_LISTEN}); port 0: any free port",
    )
    parser.add_argument(
        "--block-time",
        type=float,
        default=6.0,
        metavar="SECONDS",
        help="seconds between blocks (default 6, as on TFChain); 0: no regular blocks",
    )
    parser.add_argument(
        "--instant", action="store_true", help="make a block at once for every transaction"
    )
    parser.add_argument(
        "--file", type=Path, help="keep the chain in this file; if it exists, continue its chain"
    )
    parser.add_argument(
        "--twins",
        type=int,
        default=0,
        metavar="N",
        help="add twins 1 to N with test keys to a new chain",
    )
    parser.add_argument(
        "--relay",
        default="localhost",
        metavar="DOMAINS",
        help="relays of these twins, joined by an underscore (default localhost)",
    )
    parser.add_argument(
        "--import",
        dest="twins_file",
        type=Path,
        metavar="CSV",
        help="add the twins of this file, which `rmb_twin export` wrote, to a new chain",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a node until SIGINT or SIGTERM; return exit code 2 if it cannot start."""
    parser = argparse.ArgumentParser(
        prog="python -m chain.devchain",
        description="Run a test node that behaves like TFChain, for work without a network.",
    )
    add_arguments(parser)
    options = parser.parse_args(arguments)
    logging.basicConfig(format="%(levelname)s %(message)s")
    try:
        run(options)
    except DevchainError as error:
        print(f"devchain: {error}", file=sys.stderr)
        return 2
    return 0


def run(options: argparse.Namespace) -> None:
    """Run a node with these options until SIGINT or SIGTERM.

    Raises:
        DevchainError: the node cannot start.
    """
    host, port = _parse_listen(options.listen)
    if not 0 <= options.block_time <= MAX_BLOCK_TIME_S:
        raise DevchainError(f"--block-time must be from 0 to {MAX_BLOCK_TIME_S:g} seconds")
    with contextlib.ExitStack() as stack:
        journal = None
        if options.file is not None:
            journal = stack.enter_context(contextlib.closing(FileJournal(options.file)))
        ledger = journal.load() if journal else None
        if ledger is None:
            ledger = Ledger(genesis.block(genesis.state(_first_twins(options))))
            if journal is not None:
                journal.append(ledger.genesis)
                journal.flush()
        elif options.twins or options.twins_file:
            print(f"{options.file} already contains a chain: --twins and --import are ignored")
        knobs = Knobs(block_time_s=options.block_time, instant=options.instant)
        author = genesis.development_key(_AUTHOR).account
        node = Node(ledger, knobs, time.time, author, journal)
        asyncio.run(_serve(node, host, port))


async def _serve(node: Node, host: str, port: int) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    server = Server(node)
    try:
        await server.start(host, port)
    except OSError as error:
        raise DevchainError(f"cannot listen on {host}:{port}: {error.strerror}") from None
    shown = f"[{host}]" if ":" in host else host
    print(
        f"{READY}ws://{shown}:{server.port} at block {node.ledger.best.number}, "
        f"genesis 0x{node.ledger.genesis.hash.hex()}",
        flush=True,
    )
    pace = asyncio.create_task(server.run())
    stop = asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait((pace, stop), return_when=asyncio.FIRST_COMPLETED)
        if pace.done():
            pace.result()
    finally:
        pace.cancel()
        stop.cancel()
        await asyncio.gather(pace, stop, return_exceptions=True)
        await server.stop()


def _first_twins(options: argparse.Namespace) -> list[Twin]:
    if options.twins and options.twins_file:
        raise GenesisError("use --twins or --import, not both")
    if options.twins_file:
        return genesis.read_csv(options.twins_file)
    if not 0 <= options.twins <= MAX_GENESIS_TWINS:
        raise GenesisError(f"--twins must be from 0 to {MAX_GENESIS_TWINS}")
    relay = relays.join(options.relay.split(relays.SEPARATOR))
    if len(relay) > MAX_RELAY_BYTES:
        raise GenesisError(f"--relay must have at most {MAX_RELAY_BYTES} bytes")
    return list(genesis.made_up_twins(options.twins, relay))


def _parse_listen(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > _MAX_PORT:
        raise DevchainError(f"--listen {text}: must be host:port")
    return host.strip("[]"), int(port)
