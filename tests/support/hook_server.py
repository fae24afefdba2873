"""An authentication hook of SBD on loopback, whose answers tests choose."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class HookServer(ThreadingHTTPServer):
    """Server that answers every PUT in the same way.

    Attributes:
        status, reply: status and body of the answer.
        bodies: bodies received.
        silent: set to leave requests unanswered.
    """

    daemon_threads = True
    request_queue_size = 128
    status = 200
    reply = b'{"authToken": "from the hook"}'

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[bytes] = []
        self.silent = threading.Event()
        self.ended = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/authenticate?a=b"


class _Handler(BaseHTTPRequestHandler):
    server: HookServer

    def do_PUT(self) -> None:
        size = int(self.headers["Content-Length"])
        self.server.bodies.append(self.rfile.read(size))
        assert self.path == "/authenticate?a=b"
        assert self.headers["Content-Type"] == "application/octet-stream"
        if self.server.silent.is_set():
            self.server.ended.wait()
            return
        self.send_response(self.server.status)
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # a client that reads only part of it
            self.wfile.write(self.server.reply)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@contextlib.contextmanager
def hook_server() -> Iterator[HookServer]:
    """Run a hook server during the block."""
    with HookServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.ended.set()
            server.shutdown()
            thread.join()
