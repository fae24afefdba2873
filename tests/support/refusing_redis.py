"""A Redis that answers with errors: it loads its file, cannot write to its disk, or is a replica.

It speaks only as much RESP as that requires: commands that greet are accepted, every other command
gets the error.
"""

from __future__ import annotations

import contextlib
import socketserver
import threading
from collections.abc import Iterator
from typing import Final

import hiredis

ERRORS: Final = {
    "LOADING": "LOADING Redis is loading the dataset in memory",
    "MISCONF": "MISCONF Redis is configured to save RDB snapshots, but it's unable to persist",
    "READONLY": "READONLY You can't write against a read only replica.",
}
GREETINGS: Final = (b"CLIENT", b"SELECT", b"AUTH")


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    error = b""


class _Connection(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        reader = hiredis.Reader()
        while data := self.request.recv(65536):
            reader.feed(data)
            while (command := reader.gets()) is not False:
                greets = command[0].upper() in GREETINGS
                self.request.sendall(b"+OK\r\n" if greets else self.server.error)


@contextlib.contextmanager
def refusing_redis(kind: str) -> Iterator[str]:
    """Run a server that answers everything with this error of `ERRORS`; yield its URL."""
    with _Server(("127.0.0.1", 0), _Connection) as server:
        server.error = f"-{ERRORS[kind]}\r\n".encode()
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"redis://127.0.0.1:{server.server_address[1]}/0"
        finally:
            server.shutdown()
            thread.join()
