"""Requests of operators to the lattice: a bridge carries them out, and answers through Redis."""

from __future__ import annotations

import secrets
import time
from typing import Any

from redis.exceptions import RedisError

from proto.lattice import state
from proto.lattice.errors import FormatError
from proto.lattice.state import Answer, Request, Verb
from relay.access.errors import Away, Conflict, Invalid
from relay.lattice import listing
from relay.ops.redis_client import COMMAND_TIMEOUT_S, client

MARGIN_S = 2.0
"""Seconds to wait beyond the bridge's own deadline, at which it answers that the time is over."""


def ask(verb: Verb, arguments: dict[str, Any], timeout_s: float = state.REQUEST_TIMEOUT_S) -> Any:
    """Send a request to a bridge, and return its result.

    Raises:
        relay.access.errors.Away: Redis is unavailable, or no answer arrived in time.
        relay.access.errors.Conflict: no bridge runs, or too many requests wait.
        relay.access.errors.Invalid: the bridge or the lattice refuses the request.
    """
    request = Request(secrets.token_hex(8), verb, arguments, time.time() + timeout_s)
    try:
        if not any(each.values.get("kind") == "bridge" for each in listing.processes()):
            raise Conflict("no bridge to the lattice runs: start the relay with --lattice")
        if client().llen(state.REQUESTS) >= state.MAX_REQUESTS:
            raise Conflict(f"{state.MAX_REQUESTS:,} requests wait for a bridge; try again later")
        client().rpush(state.REQUESTS, state.encode(request))
        found = _answer(request, time.monotonic() + timeout_s + MARGIN_S)
    except RedisError as error:
        raise Away(f"Redis does not answer: {error}") from None
    if found is None:
        raise Away(f"no bridge answered within {timeout_s + MARGIN_S:g} s")
    try:
        answer = state.decode(Answer, found[1])
    except FormatError as error:
        raise Away(f"the answer of the bridge cannot be read: {error}") from None
    if answer.error:
        raise Invalid(answer.error)
    return answer.result


def _answer(request: Request, until_s: float) -> Any:
    """Wait for the answer with several commands, each shorter than `COMMAND_TIMEOUT_S`."""
    found: Any = None
    while found is None and (left_s := until_s - time.monotonic()) > 0:
        found = client().blpop([state.answer_key(request.id)], min(left_s, COMMAND_TIMEOUT_S / 2))
    return found
