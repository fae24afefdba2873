"""The websocket of a client: picows reads, and all messages of one turn go out in one write."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from picows import WSCloseCode, WSError, WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

from chain.urls import host_and_port, shown
from peer.handshake import failure_of
from peer.mux.errors import ConnectionEndedError
from peer.mux.session import Handler, MuxSession
from proto.mux.bounds import MAX_HEADER_BYTES, MuxBounds
from proto.websocket.frames import masked_frame

OPEN_S: Final = 10.0
CLOSE_S: Final = 2.0
HIGH_WATER_BYTES: Final = 256 * 1024
MAX_FRAGMENTS: Final = 4096
GATHERED_BYTES: Final = 4096
"""Maximum size of messages that are masked here, and sent in one write, in bytes."""

_picows_logger: Final = logging.getLogger("peer.mux.picows")
_picows_logger.setLevel(logging.WARNING)  # it logs a line for each connection


class _Wire(WSListener):
    """The websocket, which reports events to the session."""

    def __init__(self, handler: Handler | None, bounds: MuxBounds) -> None:
        self.is_full = False
        self.session: MuxSession
        self._handler = handler
        self._bounds = bounds
        self._websocket: WSTransport | None = None
        self._messages: list[bytes | str] = []  # messages of the read being parsed
        self._fragments: list[bytes] = []
        self._fragments_bytes = 0
        self._is_text = False
        self._why = "the other side has gone"
        self._is_abandoned = False

    @property
    def has_begun(self) -> bool:
        """Whether the handshake has succeeded."""
        return self._websocket is not None

    def abandon(self) -> None:
        """End the connection now, or once it is established: the caller no longer waits for it."""
        self._is_abandoned = True
        if self._websocket is not None:
            self._websocket.underlying_transport.abort()

    # Called by the session.

    def send(self, messages: list[bytes]) -> None:
        assert self._websocket is not None
        small: list[bytes] = []
        for message in messages:
            if len(message) <= GATHERED_BYTES:
                small.append(message)
                continue
            self._send_small(small)
            small = []
            self._websocket.send(WSMsgType.BINARY, message)
        self._send_small(small)

    def _send_small(self, messages: list[bytes]) -> None:
        """Send messages in one write: picows makes one system call for each message."""
        assert self._websocket is not None
        if len(messages) > 1:
            masks = os.urandom(4 * len(messages))
            parts = [
                masked_frame(message, masks[at : at + 4])
                for message, at in zip(messages, range(0, len(masks), 4), strict=True)
            ]
            self._websocket.underlying_transport.write(b"".join(parts))
        elif messages:
            self._websocket.send(WSMsgType.BINARY, messages[0])

    def ping(self) -> None:
        assert self._websocket is not None
        self._websocket.send_ping()

    def close(self, code: int, text: str) -> None:
        assert self._websocket is not None
        self._websocket.send_close(WSCloseCode(code), text)
        _abort_later(self._websocket)

    # Called by picows.

    def on_ws_connected(self, transport: WSTransport) -> None:
        if self._is_abandoned:
            transport.underlying_transport.abort()
            return
        self._websocket = transport
        transport.underlying_transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        self.session = MuxSession(True, self, self._handler, self._bounds)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        kind = frame.msg_type
        if kind is WSMsgType.BINARY and frame.fin:
            self._messages.append(frame.get_payload_as_bytes())
        elif kind in (WSMsgType.BINARY, WSMsgType.TEXT, WSMsgType.CONTINUATION):
            self._take_fragment(kind, frame)
        elif kind is WSMsgType.PING:
            self.session.ping_received()
            transport.send_pong(frame.get_payload_as_bytes())
        elif kind is WSMsgType.PONG:
            self.session.pong_received()
        elif kind is WSMsgType.CLOSE:
            code: Any = frame.get_close_code()
            number = int(getattr(code, "value", code) or 0)
            text = frame.get_close_reason() or ""
            self._why = f"closed by the other side: {number or 'no code'} {text}".rstrip()
            self._deliver()
            transport.send_close(WSCloseCode.OK)
            transport.disconnect()
            _abort_later(transport)
        if frame.last_in_buffer:
            self._deliver()

    def _deliver(self) -> None:
        """Pass the messages of one read to the session together."""
        if self._messages:
            messages, self._messages = self._messages, []
            self.session.messages_received(messages)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self.is_full = True
        if self._websocket is not None:
            self.session.wire_ended(self._why)

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False
        self.session.writable()

    def _take_fragment(self, kind: WSMsgType, frame: WSFrame) -> None:
        if kind is not WSMsgType.CONTINUATION:
            self._fragments, self._is_text = [], kind is WSMsgType.TEXT
            self._fragments_bytes = 0
        self._fragments.append(frame.get_payload_as_bytes())
        self._fragments_bytes += frame.payload_size
        if len(self._fragments) > MAX_FRAGMENTS or self._fragments_bytes > _max_message(
            self._bounds
        ):
            self._why = "the other side sent a message that is too long"
            self.abandon()
        elif frame.fin:
            message = b"".join(self._fragments)
            self._fragments = []
            self._messages.append(message.decode(errors="replace") if self._is_text else message)


@contextlib.asynccontextmanager
async def connect(
    url: str,
    handler: Handler | None = None,
    *,
    tls: ssl.SSLContext | None = None,
    headers: Mapping[str, str] | None = None,
    bounds: MuxBounds | None = None,
    open_timeout_s: float = OPEN_S,
) -> AsyncIterator[MuxSession]:
    """Connect for the duration of the block.

    Args:
        url: `ws://host:port/path` or `wss://host/path`.
        handler: handles streams that the other side opens; without it they are refused.
        tls: TLS context for `wss`; verifies certificates and the host name by default. It may also
            have client certificates and other roots.
        headers: additional headers of the handshake.
        bounds: limits of the connection.
        open_timeout_s: time-out for the handshake, in seconds.

    Raises:
        ValueError: the URL is invalid.
        ConnectionEndedError: the connection could not be established.
    """
    where = _check(url)
    bounds = bounds or MuxBounds()
    wire = _Wire(handler, bounds)
    is_tls = urlsplit(url).scheme == "wss"
    context = (tls or ssl.create_default_context()) if is_tls else None
    try:
        async with asyncio.timeout(open_timeout_s):
            await ws_connect(
                lambda: wire,
                url,
                ssl_context=context,
                extra_headers=dict(headers or {}),
                websocket_handshake_timeout=open_timeout_s,
                max_frame_size=_max_message(bounds),
                enable_auto_ping=False,
                enable_auto_pong=False,
                max_redirects=0,
                use_aiofastnet=False,  # see `peer.link`
                logger_name=_picows_logger,
            )
        if not wire.has_begun:  # picows also returns if the connection is lost early
            hint = "; the server may require a client certificate" if is_tls else ""
            raise ConnectionEndedError(f"{where}: closed before the connection was open{hint}")
    except TimeoutError:
        wire.abandon()
        raise ConnectionEndedError(f"{where}: no answer within {open_timeout_s:g} s") from None
    except (OSError, WSError) as error:
        wire.abandon()
        raise ConnectionEndedError(f"{where}: {failure_of(error)}") from error
    except BaseException:
        wire.abandon()
        raise
    try:
        yield wire.session
    finally:
        await wire.session.close()


def _abort_later(websocket: WSTransport) -> None:
    """Abort the connection after a while if the other side does not read the remaining data."""
    asyncio.get_running_loop().call_later(CLOSE_S, websocket.underlying_transport.abort)


def _check(url: str) -> str:
    """Check a URL, and return it as errors show it, without secret parts.

    Raises:
        ValueError: the URL is not valid for a websocket.
    """
    where = shown(url)
    try:
        host, _ = host_and_port(url)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    parts = urlsplit(url)
    if parts.scheme not in ("ws", "wss") or not host or parts.fragment:
        raise ValueError(f"{where}: must be ws://host/path or wss://host/path")
    if parts.username is not None:
        raise ValueError(f"{where}: must have no user name and no password; use `headers`")
    return where


def _max_message(bounds: MuxBounds) -> int:
    return bounds.stream_bytes + MAX_HEADER_BYTES
