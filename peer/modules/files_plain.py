"""The sending end of an upload to a receiver that answers as the reference gateway does.

Such a receiver knows neither ids nor numbers of chunks: it appends what comes with the uid of the
offer, in order, and answers nothing but errors. Behind each request goes a `rmb.version`: a gateway
looks at its messages one after another, so the answer to it says that the request was carried out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from peer.errors import RemoteError
from peer.modules.api import Context
from proto.files.messages import CLOSE, WRITE

if TYPE_CHECKING:
    from peer.modules.files_sender import SourceFile

PROBE: Final = "rmb.version"


async def send_plain(
    context: Context,
    twin: int,
    source: SourceFile,
    chunks: int,
    uid: str,
    timeout_s: float,
    on_chunk: Callable[[int], None],
) -> None:
    """Send the chunks of a file one after another, and close it.

    Args:
        context: asks the receiver.
        twin: the receiver.
        source: the file.
        chunks: how many it has.
        uid: of the offer.
        timeout_s: how long to wait for the receiver after each request.
        on_chunk: told how many chunks the receiver has.

    Raises:
        PeerError: the receiver refuses one, or does not answer.
        UploadError: the file can't be read.
    """
    for index in range(chunks):
        await _carried_out(context, twin, WRITE, await source.chunk(index), uid, timeout_s)
        on_chunk(index + 1)
    source.check_unchanged()
    await _carried_out(context, twin, CLOSE, b"", uid, timeout_s)


async def _carried_out(
    context: Context, twin: int, command: str, payload: bytes, uid: str, timeout_s: float
) -> None:
    """Send a request, and return when it is answered or the receiver has gone on."""
    request = asyncio.create_task(
        context.call(twin, command, payload, timeout_s=timeout_s, uid=uid)
    )
    probe = asyncio.create_task(context.call(twin, PROBE, timeout_s=timeout_s))
    try:
        await asyncio.wait((request, probe), return_when=asyncio.FIRST_COMPLETED)
        if request.done():
            request.result()
        else:
            with contextlib.suppress(RemoteError):  # without the command, but there
                probe.result()
    finally:
        request.cancel()
        probe.cancel()
        await asyncio.gather(request, probe, return_exceptions=True)
