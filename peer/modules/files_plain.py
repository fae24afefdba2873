"""The sending end of an upload to a receiver that answers as the reference gateway does.

Such a receiver knows neither ids nor numbers of chunks: it appends chunks with the uid of the
offer, in order, and answers only with errors. Each request is followed by a `rmb.version`: a
gateway processes its messages one after another, so the answer to that shows that the request was
carried out.
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
        context: sends the requests.
        twin: id of the receiver.
        source: the file.
        chunks: number of its chunks.
        uid: uid of the offer.
        timeout_s: seconds to wait for the receiver after each request.
        on_chunk: called with the number of chunks that the receiver has.

    Raises:
        PeerError: the receiver refuses a request, or does not answer.
        UploadError: the file cannot be read.
    """
    for index in range(chunks):
        await _carried_out(context, twin, WRITE, await source.chunk(index), uid, timeout_s)
        on_chunk(index + 1)
    source.check_unchanged()
    await _carried_out(context, twin, CLOSE, b"", uid, timeout_s)


async def _carried_out(
    context: Context, twin: int, command: str, payload: bytes, uid: str, timeout_s: float
) -> None:
    """Send a request, and wait until it is answered or the receiver has processed it."""
    request = asyncio.create_task(
        context.call(twin, command, payload, timeout_s=timeout_s, uid=uid)
    )
    probe = asyncio.create_task(context.call(twin, PROBE, timeout_s=timeout_s))
    try:
        await asyncio.wait((request, probe), return_when=asyncio.FIRST_COMPLETED)
        if request.done():
            request.result()
        else:
            with contextlib.suppress(RemoteError):  # it lacks the command, but it answers
                probe.result()
    finally:
        request.cancel()
        probe.cancel()
        await asyncio.gather(request, probe, return_exceptions=True)
