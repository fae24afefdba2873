"""The process of the NATS server that an embedded relay starts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from lattice.embedded import STOP_TIMEOUT_S, command
from lattice.errors import EmbeddedError

READY_TIMEOUT_S: Final = 20.0
POLL_S: Final = 0.05


async def run(settings: dict[str, Any], stop: asyncio.Event, ready: Callable[[], None]) -> None:
    """Run a server until the event is set.

    Args:
        settings: `folder` of its files, and `listen`, a loopback address as host:port.
        stop: event that ends the server.
        ready: function called once it listens.

    Raises:
        EmbeddedError: nats-server is not installed, or it ended by itself; its log is in the
            folder.
    """
    folder = Path(settings["folder"])
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    host, _, port = settings["listen"].rpartition(":")
    if host not in ("127.0.0.1", "localhost") or not port.isdecimal():
        raise EmbeddedError("lattice.embedded_listen: must be 127.0.0.1:<port>")
    process = await asyncio.create_subprocess_exec(
        *command(folder, int(port)), stdin=asyncio.subprocess.DEVNULL
    )
    ended = asyncio.create_task(process.wait())
    stopping = asyncio.create_task(stop.wait())
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            while not (folder / f"nats-server_{process.pid}.ports").exists() and not ended.done():
                await asyncio.sleep(POLL_S)
        if not ended.done():
            ready()
            await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not stop.is_set():
            raise EmbeddedError(
                f"the NATS server at {settings['listen']} ended; see {folder / 'nats.log'}"
            )
    except TimeoutError:
        raise EmbeddedError(f"the NATS server does not listen; see {folder}") from None
    finally:
        stopping.cancel()
        if not ended.done():
            process.terminate()
            await asyncio.wait({ended}, timeout=STOP_TIMEOUT_S)
        if not ended.done():
            process.kill()
            await ended
