"""`rmb sbd`: test an SBD server from two terminals."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from peer.arguments import FAILED, UsageError, at_home
from peer.cli.inputs import add_count, add_timeout
from peer.cli.output import printable
from peer.cli.session import Session
from peer.errors import ConnectError
from peer.sbd import E2eClient, KeyFormatError, SbdClient, SbdError, key_of_path, path_of_key
from proto.sbd.bounds import KEY_BYTES
from proto.sbd.frames import accept_as_argument

ANSWER_S: Final = 5.0

READS: Final[tuple[str, ...]] = ()
EPILOG: Final = """\
examples:
  rmb sbd listen ws://127.0.0.1:8080               # print this client's key, then every message
  rmb sbd send ws://127.0.0.1:8080 KEY hello       # in another terminal
  rmb sbd send ws://127.0.0.1:8080 KEY < lines     # one message for each line of standard input
  rmb sbd echo ws://127.0.0.1:8080 --seed my.seed  # send every message back; keep the key
  rmb sbd ping ws://127.0.0.1:8080 [KEY]           # to itself, or to a client that runs echo

A key has 43 characters of base64url, as in the URL of the connection. Use --encrypt on both sides
or on neither.
"""

Client = SbdClient | E2eClient


def add(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    accept_as_argument(parser)
    parser.add_argument("action", choices=tuple(_ACTIONS), help="what to do")
    parser.add_argument("url", metavar="URL", help="SBD server: ws://host:port or wss://host")
    parser.add_argument("key", nargs="?", metavar="KEY", help="public key of the receiver")
    parser.add_argument(
        "message", nargs="*", metavar="MESSAGE", help="texts to send, one message each"
    )
    parser.add_argument("--encrypt", action="store_true", help="encrypt end to end")
    parser.add_argument(
        "--seed",
        metavar="FILE",
        help="file with the key of this client; created if it does not exist",
    )
    parser.add_argument(
        "--auth", metavar="TEXT", help="request a token first, with this body of PUT /authenticate"
    )
    add_count(parser, "pings")
    add_timeout(parser, ANSWER_S, "the server, and for an echo")


async def run(options: argparse.Namespace, session: Session) -> int:
    """Run an action; return 1 if a ping is not answered.

    Raises:
        UsageError: a key or a URL is malformed.
        ConnectError: the server cannot be used, or the connection ended.
    """
    try:
        key = None if options.key is None else key_of_path(options.key)
        client = _client(options)
    except (KeyFormatError, ValueError) as error:
        raise UsageError(str(error)) from None
    if key is None and options.action == "send":
        raise UsageError("KEY is missing: the key of the receiver")
    try:
        async with client:
            return await _ACTIONS[options.action](client, key, options, session.json)
    except SbdError as error:
        raise ConnectError(str(error)) from error


def _client(options: argparse.Namespace) -> Client:
    more: dict[str, Any] = {"open_timeout_s": options.timeout}
    if options.auth is not None:
        more["auth_material"] = options.auth.encode()
    seed = None if options.seed is None else _seed(at_home(options.seed))
    if options.encrypt:
        return E2eClient(options.url, seed, listener=options.action != "send", **more)
    return SbdClient(options.url, seed, **more)


def _seed(path: Path) -> bytes:
    """Return the key in a file, which has 64 hexadecimal digits; create the file if needed.

    Raises:
        UsageError: the file cannot be read or created, or contains something else.
    """
    try:
        if not path.exists():
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w", encoding="ascii") as file:
                file.write(os.urandom(KEY_BYTES).hex() + "\n")
        found = bytes.fromhex(path.read_text(encoding="ascii"))
    except OSError as error:
        raise UsageError(f"--seed {path}: {error.strerror}") from None
    except ValueError:
        found = b""
    if len(found) != KEY_BYTES:
        raise UsageError(f"--seed {path}: expected {2 * KEY_BYTES} hexadecimal digits")
    return found


async def _listen(
    client: Client, key: bytes | None, options: argparse.Namespace, as_json: bool
) -> int:
    _show_key(client, as_json)
    async for source, message in client:
        _show(source, message, as_json)
        if options.action == "echo":
            await client.send(source, message)
    raise SbdError("the server ended the connection")


async def _send(
    client: Client, key: bytes | None, options: argparse.Namespace, as_json: bool
) -> int:
    assert key is not None
    if options.message:
        for text in options.message:
            await client.send(key, text.encode())
    else:
        while line := await asyncio.to_thread(sys.stdin.buffer.readline):
            await client.send(key, line.rstrip(b"\r\n"))
    await client.drain()
    return 0


async def _ping(
    client: Client, key: bytes | None, options: argparse.Namespace, as_json: bool
) -> int:
    target = key or client.key
    answers: list[dict[str, Any]] = []
    if key is None and options.encrypt:
        raise UsageError("KEY is missing: with --encrypt, ping needs another client's key")
    for number in range(options.count):
        message = number.to_bytes(4, "big") + os.urandom(4)
        began = time.perf_counter()
        await client.send(target, message)
        try:
            async with asyncio.timeout(options.timeout):
                while await client.receive() != (target, message):
                    pass
        except TimeoutError:
            answers.append({"error": f"no echo within {options.timeout:g} s"})
        else:
            answers.append({"ms": round((time.perf_counter() - began) * 1e3, 3)})
        if not as_json:
            answer = answers[-1]
            text = f"ok  {answer['ms']:.1f} ms" if "ms" in answer else f"FAIL  {answer['error']}"
            print(f"{path_of_key(target)}  {text}", flush=True)
    if as_json:
        print(json.dumps({"key": path_of_key(target), "answers": answers}))
    return FAILED if any("error" in answer for answer in answers) else 0


def _show_key(client: Client, as_json: bool) -> None:
    key = path_of_key(client.key)
    print(json.dumps({"key": key}) if as_json else f"key  {key}", flush=True)


def _show(source: bytes, message: bytes, as_json: bool) -> None:
    key = path_of_key(source)
    if as_json:
        print(json.dumps({"from": key, "hex": message.hex()}), flush=True)
    else:
        print(f"{key}  {printable(message.decode(errors='replace'))}", flush=True)


_Action = Callable[[Any, bytes | None, argparse.Namespace, bool], Coroutine[Any, Any, int]]
_ACTIONS: Final[dict[str, _Action]] = {
    "listen": _listen,
    "send": _send,
    "echo": _listen,
    "ping": _ping,
}
