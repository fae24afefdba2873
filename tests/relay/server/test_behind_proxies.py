"""Two users behind one proxy that shares its connections to the server get no mixed answers.

One of them sends what a server could read as two requests. The proxies are real; each runs with a
plain configuration that passes every `Upgrade` on, and with the files in `contrib/`.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.relay.server.running import running
from tests.relay.server.test_desync import LISTENERS, Site
from tests.support.proxies import caddy, nginx
from tests.support.redis_servers import free_port

CONTRIB = Path(__file__).parents[3] / "contrib"
ROUNDS = 100
"""Number of rounds; in each, both users send a request."""
TIMEOUT_S = 60.0

PLAIN_NGINX = """
map $http_upgrade $passed_on { default upgrade; '' ''; }
upstream server { server 127.0.0.1:{upstream}; keepalive 4; }
server {
    listen 127.0.0.1:{port};
    location / {
        proxy_pass http://server;
        proxy_http_version 1.1;
        proxy_set_header Upgrade $http_upgrade;
        proxy_set_header Connection $passed_on;
        proxy_request_buffering off;
    }
}
"""
PLAIN_CADDY = """
http://127.0.0.1:{port} {
	reverse_proxy 127.0.0.1:{upstream} {
		flush_interval -1
	}
}
"""


def plain(template: str) -> Callable[[Path, int, int], str]:
    def servers(folder: Path, port: int, upstream: int) -> str:
        return template.replace("{port}", str(port)).replace("{upstream}", str(upstream))

    return servers


def shipped_nginx(folder: Path, port: int, upstream: int) -> str:
    """Return the configuration in `contrib/nginx`, without TLS and on loopback."""
    text = (CONTRIB / "nginx" / "rmb.conf").read_text()
    operator = (CONTRIB / "nginx" / "operator.conf").read_text()
    operator = operator.replace("listen 443 ssl;", f"listen 127.0.0.1:{free_port()};")
    text += operator.replace("127.0.0.1:8081", f"127.0.0.1:{upstream}")
    text = re.sub(r"(?m)^ *(ssl_\w+|listen \[::\]).*\n", "", text)
    text = text.replace("listen 80;", f"listen 127.0.0.1:{free_port()};")
    text = text.replace("listen 443 ssl;", f"listen 127.0.0.1:{port};")
    text = text.replace("/var/log/nginx", str(folder))
    return text.replace("127.0.0.1:8080", f"127.0.0.1:{upstream}")


def shipped_caddy(folder: Path, port: int, upstream: int) -> str:
    """Return the configuration in `contrib/caddy`, without TLS and on loopback."""
    text = (CONTRIB / "caddy" / "Caddyfile").read_text()
    text = text.replace("\nrelay.example.com {", f"\nhttp://127.0.0.1:{port} {{")
    text = text.replace("\noperator.example.com {", f"\nhttp://127.0.0.1:{free_port()} {{")
    text = text.replace("/var/log/caddy", str(folder))
    text = text.replace("\t\tstream_close_delay 30s\n", "")  # of Caddy 2.7; Debian 12 has 2.6
    return re.sub(r"127\.0\.0\.1:808[01]", f"127.0.0.1:{upstream}", text)


PROXIES: dict[str, tuple[Any, Callable[[Path, int, int], str]]] = {
    "nginx": (nginx, plain(PLAIN_NGINX)),
    "nginx as shipped": (nginx, shipped_nginx),
    "caddy": (caddy, plain(PLAIN_CADDY)),
    "caddy as shipped": (caddy, shipped_caddy),
}


class User:
    """A client with its own connection to the proxy, which it reopens whenever it is closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __aenter__(self) -> User:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def send(self, *parts: bytes) -> tuple[int, bytes]:
        """Send one request in several writes; return status and body of its answer."""
        for fresh in (False, True):
            if self._streams is None or fresh:
                self._streams = await asyncio.open_connection("127.0.0.1", self._port)
            reader, writer = self._streams
            try:
                for part in parts:
                    writer.write(part)
                    await writer.drain()
                    # The pause makes the proxy pass on each part in a separate write.
                    await asyncio.sleep(0.001)
                head = await reader.readuntil(b"\r\n\r\n")
                break
            except (ConnectionError, asyncio.IncompleteReadError):
                assert not fresh, "a new connection was closed without an answer"
                await self.close()
        body = b""
        if length := re.search(rb"(?i)content-length: (\d+)", head):
            body = await reader.readexactly(int(length[1]))
        elif b"chunked" in head:
            while size := int(await reader.readline(), 16):
                body += (await reader.readexactly(size + 2))[:-2]
            await reader.readline()
        if re.search(rb"(?i)connection: close", head):
            await self.close()
        return int(head.split(b" ", 2)[1]), body

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            with contextlib.suppress(ConnectionError):
                await self._streams[1].wait_closed()
            self._streams = None


async def exchange(site: Site, port: int, hostile: User, honest: User) -> None:
    """Let both users send in turn, and check that each gets and is served only its own requests."""
    host = b"Host: 127.0.0.1:%d\r\n" % port
    for count in range(ROUNDS):
        # Read as a request, this body's last header would include the next request's first line.
        body = b"GET /stolen HTTP/1.1\r\n" + host + b"X: "
        upgrade = [b"foo", b"h2c", b"WebSocket/2"][count % 3]
        head = b"POST /hostile/%d HTTP/1.1\r\n" % count + host
        head += b"Connection: Upgrade\r\nUpgrade: %b\r\n" % upgrade
        head += b"Content-Length: %d\r\n\r\n" % len(body)
        status, text = await hostile.send(head, body)
        assert (status, text) == (200, b"/hostile/%d" % count) or status in (400, 502), text
        status, text = await honest.send(
            b"GET /honest/%d HTTP/1.1\r\n" % count + host + b"Authorization: secret\r\n\r\n"
        )
        assert (status, text) == (200, b"/honest/%d" % count)
    served = [path for _, path, _ in site.requests]
    assert "/stolen" not in served
    assert [path for path in served if path.startswith("/honest/")] == [
        f"/honest/{count}" for count in range(ROUNDS)
    ]


@pytest.mark.parametrize("listener", sorted(LISTENERS))
@pytest.mark.parametrize("name", PROXIES)
def test_users_of_a_proxy_are_not_mixed(name: str, listener: str, tmp_path: Path) -> None:
    start, servers = PROXIES[name]

    async def main() -> None:
        site, port = Site(), free_port()
        async with asyncio.timeout(TIMEOUT_S), running(site, ws=LISTENERS[listener]) as server:
            upstream = server.address[1]
            async with (
                start(tmp_path, port, servers(tmp_path, port, upstream)),
                User(port) as hostile,
                User(port) as honest,
            ):
                await exchange(site, port, hostile, honest)

    uvloop.run(main())
