"""JSON-RPC calls to one node, over one websocket.

`call` sends a request and waits for its answer. `call_many` sends several requests before it reads
the first answer, so that a hundred calls cost little more than one round trip. `subscribe` requests
notifications, which are stored when they come between answers and read with `notification`.

Every wait is bounded: `limit` sets how long everything that follows may take together. Every
message has a size limit. After a `NodeError` other than an `RpcError` the connection cannot be used
any more, as a late answer may still arrive: close it and open another one. A connection may be used
by one thread at a time, and never reconnects by itself.

substrate-interface uses the same socket (`chain.runtime`): `TextSocket` has the interface of a
websocket that it expects.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final
from urllib.parse import urlsplit

from websockets.exceptions import InvalidProxy, InvalidURI, WebSocketException
from websockets.sync.client import connect

from chain import bounds
from chain.errors import NodeError, NodeSilentError, RpcError, StateDiscardedError, shortened
from chain.urls import ENCODE_PASSWORD, at_behind_slash, host_and_port, shown

logger = logging.getLogger(__name__)

_CLOSE_S: Final = 1.0
_FIRST_ID: Final = 1_000_000_000
"""First request id, above the ids that substrate-interface counts up from 1 on the same socket."""

_STATE_DISCARDED: Final = re.compile("state already discarded", re.IGNORECASE)


def check_urls(urls: Sequence[str]) -> tuple[str, ...]:
    """Return the addresses of nodes after checking them.

    Raises:
        ValueError: the list is empty or too long, or one is not a websocket address.
    """
    if not 0 < len(urls) <= bounds.MAX_URLS:
        raise ValueError(f"chain nodes: 1 to {bounds.MAX_URLS} addresses are needed")
    for url in urls:
        if problem := _problem(url):
            raise ValueError(f"chain node {shortened(shown(url))!r}: {problem}")
    return tuple(dict.fromkeys(urls))


def _problem(url: str) -> str:
    """Return why an address cannot be that of a node; empty if it can."""
    if len(url) > bounds.MAX_URL_CHARS:
        return f"longer than {bounds.MAX_URL_CHARS} characters"
    try:
        host, _ = host_and_port(url)
    except ValueError as error:
        return str(error)
    if at_behind_slash(url):
        return ENCODE_PASSWORD
    if urlsplit(url).scheme not in ("ws", "wss"):
        return "must begin with ws:// or wss://"
    return "" if host else "has no host"


class Connection:
    """A websocket to a node.

    Attributes:
        url: address of the node without credentials.
        usable: whether calls may still be made.
    """

    def __init__(self, url: str, timeout_s: float = bounds.CALL_S) -> None:
        """Connect to the node.

        Args:
            url: ws:// or wss://.
            timeout_s: time-out for opening the websocket and the calls after it, until the next
                `limit`.

        Raises:
            NodeError: the node cannot be reached, or is not a websocket server.
        """
        self.url = shown(url)
        self.usable = False
        self.limit(timeout_s)
        self._last_id = _FIRST_ID
        self._kept: dict[str, deque[Any]] = {}
        self._exit = ExitStack()
        try:
            self._websocket = self._exit.enter_context(
                connect(
                    url,
                    open_timeout=timeout_s,
                    close_timeout=_CLOSE_S,
                    max_size=bounds.MAX_MESSAGE_BYTES,
                    compression=None,
                )
            )
        except TimeoutError:
            raise NodeSilentError(f"{self.url}: no connection within {timeout_s:.1f} s") from None
        except (OSError, WebSocketException, ValueError, EOFError) as error:
            raise NodeError(f"{self.url}: {_reason(error)}") from error
        self.usable = True

    def close(self) -> None:
        """Close the connection; wait up to a second for the close handshake of a node that still
        answers.
        """
        try:
            if not self.usable:
                self._websocket.close_socket()
            self.usable = False
            self._exit.close()
        except (OSError, WebSocketException) as error:
            logger.debug("%s: closing: %s", self.url, error)

    def limit(self, timeout_s: float) -> None:
        """Set how long all calls from now on may take together."""
        self._deadline = time.monotonic() + timeout_s

    def call(self, method: str, params: Sequence[Any] = ()) -> Any:
        """Return the result of one call.

        Raises:
            RpcError: the node answered with an error.
            NodeError: there was no answer; the connection is broken.
        """
        return self.call_many([(method, params)])[0]

    def call_many(self, calls: Sequence[tuple[str, Sequence[Any]]]) -> list[Any]:
        """Return the results of several calls, in their order.

        Raises:
            RpcError: the node answered one of them with an error.
            NodeError: an answer is missing; the connection is broken.
        """
        results: list[Any] = []
        for first in range(0, len(calls), bounds.MAX_IN_FLIGHT):
            results += self._call_chunk(calls[first : first + bounds.MAX_IN_FLIGHT])
        return results

    def subscribe(self, method: str, params: Sequence[Any] = ()) -> str:
        """Subscribe to notifications; return the subscription for `notification`.

        Raises:
            RpcError: the node refused.
            NodeError: there was no answer; the connection is broken.
        """
        if len(self._kept) >= bounds.MAX_SUBSCRIPTIONS:
            raise ValueError(f"more than {bounds.MAX_SUBSCRIPTIONS} subscriptions on a connection")
        answer = self.call(method, params)
        if not isinstance(answer, str | int):
            raise self._broken(NodeError(f"{self.url}: {method}: no subscription id"))
        subscription = str(answer)
        self._kept.setdefault(subscription, deque(maxlen=bounds.MAX_KEPT_NOTIFICATIONS))
        return subscription

    def notification(self, subscription: str, timeout_s: float) -> Any:
        """Return the next notification, or None if none comes in time.

        Raises:
            NodeError: the connection broke.
        """
        kept = self._kept[subscription]
        deadline = time.monotonic() + timeout_s
        while not kept:
            text = self._receive(deadline)
            if text is None:
                return None
            answer = self._parse(text)
            if not self._keep(answer):
                raise self._broken(NodeError(f"{self.url}: an answer nobody asked for"))
        return kept.popleft()

    def send_text(self, text: str) -> None:
        """Send a message."""
        if not self.usable:
            raise NodeError(f"{self.url}: the connection is closed")
        try:
            self._websocket.send(text)
        except (OSError, WebSocketException) as error:
            raise self._broken(NodeError(f"{self.url}: {_reason(error)}")) from error

    def receive_answer(self) -> tuple[str, dict[str, Any]]:
        """Return the next message that is not a notification, as text and as JSON.

        Raises:
            NodeError: the connection broke, or the deadline passed.
        """
        while True:
            text = self._receive(self._deadline)
            if text is None:
                raise self._broken(NodeSilentError(f"{self.url}: no answer in time"))
            answer = self._parse(text)
            if not self._keep(answer):
                return text, answer

    def _call_chunk(self, calls: Sequence[tuple[str, Sequence[Any]]]) -> list[Any]:
        numbers: dict[int, int] = {}
        for place, (method, params) in enumerate(calls):
            self._last_id += 1
            numbers[self._last_id] = place
            request = {
                "jsonrpc": "2.0",
                "id": self._last_id,
                "method": method,
                "params": list(params),
            }
            self.send_text(json.dumps(request))
        answers: list[dict[str, Any] | None] = [None] * len(calls)
        while numbers:
            _, answer = self.receive_answer()
            number = answer.get("id")
            place_of = numbers.pop(number, None) if isinstance(number, int) else None
            if place_of is None:
                raise self._broken(NodeError(f"{self.url}: an answer nobody asked for"))
            answers[place_of] = answer
        # Raise errors only after all answers are read, so that the connection stays usable.
        return [
            self._result(method, answer or {})
            for (method, _), answer in zip(calls, answers, strict=True)
        ]

    def _result(self, method: str, answer: dict[str, Any]) -> Any:
        error = answer.get("error")
        if error is None:
            return answer.get("result")
        if not isinstance(error, dict):
            raise RpcError(method, 0, str(error))
        code = error.get("code")
        texts = [str(error[name]) for name in ("message", "data") if error.get(name) is not None]
        detail = ": ".join(texts) or "no reason given"
        kind = StateDiscardedError if _STATE_DISCARDED.search(detail) else RpcError
        raise kind(method, code if isinstance(code, int) else 0, detail)

    def _receive(self, deadline: float) -> str | None:
        if not self.usable:
            raise NodeError(f"{self.url}: the connection is closed")
        try:
            return self._websocket.recv(max(0.0, deadline - time.monotonic()), decode=True)
        except TimeoutError:
            return None
        except (OSError, WebSocketException, UnicodeDecodeError) as error:
            raise self._broken(NodeError(f"{self.url}: {_reason(error)}")) from error

    def _parse(self, text: str) -> dict[str, Any]:
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            raise self._broken(NodeError(f"{self.url}: the answer is not JSON")) from None
        if not isinstance(answer, dict):
            raise self._broken(NodeError(f"{self.url}: the answer is not a JSON object"))
        return answer

    def _keep(self, answer: dict[str, Any]) -> bool:
        """Store a notification; return False for an answer."""
        if "method" not in answer:
            return False
        params = answer.get("params")
        if isinstance(params, dict):
            kept = self._kept.get(str(params.get("subscription")))
            if kept is not None:
                kept.append(params.get("result"))
        return True

    def _broken(self, error: NodeError) -> NodeError:
        self.usable = False
        return error


class TextSocket:
    """The websocket for substrate-interface: that of the connection, without notifications."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def send(self, text: str) -> None:
        """Send a request."""
        self._connection.send_text(text)

    def recv(self) -> str:
        """Return the next answer."""
        return self._connection.receive_answer()[0]

    def close(self) -> None:
        """Do nothing: the owner of the connection closes it."""


def _reason(error: BaseException) -> str:
    if isinstance(error, InvalidURI | InvalidProxy):
        return shortened(error.msg)  # without the address: it may hold a password
    return shortened(str(error)) or type(error).__name__
