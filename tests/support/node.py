"""Node.js, for the JavaScript peers of `tests/interop/js`."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

PEERS: Final = Path(__file__).parents[1] / "interop" / "js"
START_S: Final = 20.0


def node() -> str:
    """The program: the machine's, or the one that `make peers` installed."""
    return shutil.which("node") or str(Path(sys.executable).with_name("node"))


@asynccontextmanager
async def js_server(script: str, certificate: tuple[Path, Path]) -> AsyncIterator[str]:
    """Run a server of `tests/interop/js`; yields its URL.

    Args:
        script: its file name.
        certificate: and its key.
    """
    path, key = certificate
    process = await asyncio.create_subprocess_exec(
        node(),
        str(PEERS / script),
        str(key),
        str(path),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        async with asyncio.timeout(START_S):
            port = int(await process.stdout.readline())
        yield f"wss://127.0.0.1:{port}/"
        process.stdin.close()
        async with asyncio.timeout(START_S):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
