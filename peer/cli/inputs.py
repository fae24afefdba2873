"""Parsing of user input: destinations, time-outs, and bodies as text, in a file or on stdin."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
from typing import Final, NamedTuple

from peer.arguments import UsageError, at_home, whole_number
from peer.modules.api import JSON_SCHEMA, MAX_BODY_BYTES
from proto.identity.bounds import MAX_TWIN
from proto.rmb.address import Address, parse
from proto.rmb.bounds import MAX_EXPIRATION_S
from proto.rmb.errors import AddressError, BoundError

STANDARD_INPUT: Final = "-"
FILE_MARK: Final = "@"
MAX_COUNT: Final = 1_000_000


class Body(NamedTuple):
    """A payload and its content type."""

    payload: bytes
    schema: str | None


def add_count(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the option for the number of requests."""
    parser.add_argument(
        "-c",
        "--count",
        type=whole_number(1, MAX_COUNT),
        default=1,
        metavar="N",
        help=f"number of {what}",
    )


def add_timeout(parser: argparse.ArgumentParser, default_s: float, what: str) -> None:
    """Add the option for a time-out."""
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=default_s,
        metavar="SECONDS",
        help=f"seconds to wait for {what} (default {default_s:g})",
    )


def add_body(parser: argparse.ArgumentParser) -> None:
    """Add the argument for a body, and its option."""
    parser.add_argument(
        "body",
        nargs="?",
        metavar="JSON",
        help="body of the request; @FILE reads it from a file, - from standard input",
    )
    parser.add_argument(
        "--raw", action="store_true", help="send the body unchanged, even if it is not JSON"
    )


def read_body(text: str | None, raw: bool) -> Body:
    """Return the body that an argument specifies; without an argument it is empty.

    Raises:
        UsageError: the body cannot be read, is too large, or should be JSON and is not.
    """
    if text is None:
        return Body(b"", None)
    payload = _payload(text)
    if len(payload) > MAX_BODY_BYTES:
        raise UsageError(f"the body is larger than {MAX_BODY_BYTES} bytes; use `rmb upload`")
    if raw:
        return Body(payload, None)
    try:
        check_json(payload)
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else error
        raise UsageError(
            f"the body is not valid JSON ({why}); put a text in quotes, such as '\"hello\"', or "
            "send any bytes with --raw"
        ) from None
    return Body(payload, JSON_SCHEMA)


def check_json(payload: bytes) -> None:
    """Check whether a payload is standard JSON.

    Raises:
        ValueError: it is not JSON, or contains `NaN` or `Infinity`, which JSON does not have.
        RecursionError: it is nested too deeply.
    """
    json.loads(payload, parse_constant=_no_number)


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def seconds(text: str) -> float:
    """Parse a time-out: a type for argparse."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= MAX_EXPIRATION_S:
        raise argparse.ArgumentTypeError(f"must be above 0 and at most {MAX_EXPIRATION_S} seconds")
    return found


def utf8(text: str) -> str:
    """Check that a text can be sent: a type for argparse."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError("must be UTF-8") from None
    return text


def _payload(text: str) -> bytes:
    if text == STANDARD_INPUT:
        return _standard_input()
    if not text.startswith(FILE_MARK):
        return text.encode("utf-8", "surrogateescape")
    path = at_home(text.removeprefix(FILE_MARK))
    try:
        with path.open("rb") as file:
            return file.read(MAX_BODY_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None


def _standard_input() -> bytes:
    # The event loop's handler only records Ctrl-C, and the loop does not run while this waits.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return sys.stdin.buffer.read(MAX_BODY_BYTES + 1)
    finally:
        signal.signal(signal.SIGINT, before)


def destination(text: str) -> Address:
    """Parse a twin, or one of its sessions: a type for argparse."""
    with contextlib.suppress(AddressError, BoundError):
        found = parse(text)
        if found.twin and found.connection != "":  # an empty session name is not accepted here
            return found
    raise argparse.ArgumentTypeError(
        f"must be the id of a twin, from 1 to {MAX_TWIN}, or id:session"
    )
