"""Real reverse proxies in front of a server on loopback: nginx, and Caddy, which is written in Go.

`make proxies` installs both if the machine has none.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

INSTALLED: Final = Path(sys.prefix) / "proxies"
START_TIMEOUT_S: Final = 60.0

NGINX: Final = """\
daemon off;
master_process off;
error_log stderr;
pid {folder}/nginx.pid;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{servers}
}}
"""
CADDY: Final = """\
{{
	admin off
	auto_https off
}}
{servers}
"""


def program(name: str) -> str:
    """Return the path of a proxy's program.

    Raises:
        FileNotFoundError: It is not installed.
    """
    places = [None, *(str(INSTALLED / each) for each in ("usr/sbin", "usr/bin"))]
    for place in places:
        if found := shutil.which(name, path=place):
            return found
    raise FileNotFoundError(f"{name} is not installed: run `make proxies`")


@contextlib.asynccontextmanager
async def nginx(folder: Path, port: int, servers: str) -> AsyncIterator[None]:
    """Run nginx with these `server` blocks (and other directives of `http`)."""
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(folder=folder, servers=servers))
    command = [program("nginx"), "-p", str(folder), "-c", str(config), "-e", "stderr"]
    async with _running(command, folder, port):
        yield


@contextlib.asynccontextmanager
async def caddy(folder: Path, port: int, servers: str) -> AsyncIterator[None]:
    """Run Caddy with these sites."""
    config = folder / "Caddyfile"
    config.write_text(CADDY.format(servers=servers))
    command = [program("caddy"), "run", "--adapter", "caddyfile", "--config", str(config)]
    async with _running(command, folder, port):
        yield


@contextlib.asynccontextmanager
async def _running(command: list[str], folder: Path, port: int) -> AsyncIterator[None]:
    with open(folder / "proxy.log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={"HOME": str(folder)})
    try:
        await _listening(process, folder, port)
        yield
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait)


async def _listening(process: subprocess.Popen[bytes], folder: Path, port: int) -> None:
    async with asyncio.timeout(START_TIMEOUT_S):
        while True:
            assert process.poll() is None, (folder / "proxy.log").read_text()
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()
                return
