"""A websocket server with answers chosen by a test: nonsense, too much, or nothing."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

Answer = Callable[[ServerConnection, dict[str, Any]], None]
"""Function called with each request; it may send any messages."""


@contextmanager
def scripted_node(answer: Answer, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Run the server until the block ends; yield its URL."""

    def converse(websocket: ServerConnection) -> None:
        try:
            for text in websocket:
                answer(websocket, json.loads(text))
        except ConnectionClosed:
            return

    with serve(converse, "127.0.0.1", 0, ssl=tls, compression=None, close_timeout=1) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"{'wss' if tls else 'ws'}://127.0.0.1:{server.socket.getsockname()[1]}"
        finally:
            server.shutdown()
            thread.join()


def result(websocket: ServerConnection, request: dict[str, Any], value: Any) -> None:
    """Send a result in the way a node does."""
    websocket.send(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": value}))


def by_method(**values: Any) -> Answer:
    """Answer each method with a fixed result, or that of a function of its parameters."""

    def answer(websocket: ServerConnection, request: dict[str, Any]) -> None:
        value = values[request["method"]]
        result(websocket, request, value(*request["params"]) if callable(value) else value)

    return answer
