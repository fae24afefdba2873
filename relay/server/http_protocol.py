"""The first bytes of every connection: uvicorn's HTTP protocol with bounds in time and size.

This module checks a websocket handshake and hands the connection to `frame_protocol.FrameProtocol`
without building the request a second time; a listener with another `ws` class has it built. A small
POST and a plain handshake are offered to an application that supports them (`small_post`,
`plain_handshake`). uvicorn handles all other requests; its part of a connection begins with the
first of them. Query strings are never logged: they contain the client's token.

A request with `Upgrade` is the last one of its connection, whatever its result. The parser assumes
that it ends at its head, so bytes after it could be its body or the head of the next request:
behind a proxy that shares connections among users, that is another user's request.

    limits = ServerLimits(...)
    uvicorn.Config(app, http=http_protocol(limits), ws=FrameProtocol, ...)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.utils import is_ssl

from relay.server import plain_handshake
from relay.server.client_address import plain_client, shown_client
from relay.server.frame_protocol import FrameProtocol
from relay.server.handshake import HandshakeError, Headers, http_answer, read_handshake
from relay.server.limits import MAX_PIPELINED, ServerLimits
from relay.server.plain_handshake import PlainHandshake, TakeHandshake
from relay.server.small_post import FORWARDED, AnswerHeads, SmallPost, TakePost
from relay.server.socket import EXTENSION

logger = logging.getLogger(__name__)

BODY_HEADERS: Final = frozenset({b"content-length", b"transfer-encoding"})


class _RefusedError(Exception):
    """Raised through the parser to stop it; the answer is in the protocol's `_refusal`."""


class RelayHttpProtocol(HttpToolsProtocol):
    """HTTP until the upgrade. `http_protocol` binds the class attributes."""

    limits: ServerLimits
    take_post: TakePost | None = None
    post_paths: frozenset[bytes] = frozenset()
    take_handshake: TakeHandshake | None = None
    other_places: frozenset[int | str] = frozenset()
    answer_heads: AnswerHeads

    # Values before the first request; as class attributes, because most connections have at most
    # one request.
    cycle: Any = None
    flow: Any = None
    parser: Any = None
    timeout_keep_alive_task: Any = None
    _begun = False  # whether uvicorn's part of the connection has begun
    _raw_bytes = 0  # bytes read of a head that is not complete
    _reading_bytes = 0  # size of the read being parsed
    _unread_bytes = 0  # bytes of answers when the client was last given time
    _header_bytes = 0  # of the headers that the parser has reported
    _head_complete = False
    _websocket = False
    _last_head = False  # of this connection: what follows is not read
    _at_work: RequestResponseCycle | None = None
    _refusal: tuple[int, str, str] | None = None
    _post: list[bytes] | None = None  # parts of a body that may be complete in this read
    _forwarded = False  # by a proxy
    _unwanted = False  # a body is still arriving for a request already answered

    def __init__(self, **arguments: Any) -> None:
        self._arguments = arguments
        self.loop = asyncio.get_running_loop()
        self.server_state = arguments["server_state"]
        self.connections = self.server_state.connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.connections.add(self)
        self.transport = transport
        self.limits.handshakes.add(self, self._handshake_timed_out, self.loop)

    def _begin(self) -> None:
        """Begin uvicorn's part of the connection."""
        self._begun = True
        transport = self.transport
        super().__init__(**self._arguments)
        # As in uvicorn's own `connection_made`, but that makes uvloop create a socket per address.
        self.access_log = False
        self.transport = transport
        self.flow = FlowControl(transport)
        here, there = map(transport.get_extra_info, ("sockname", "peername"))
        self.server = (here, None) if isinstance(here, str) else _host_and_port(here)
        self.client = _host_and_port(there)
        self.scheme = "https" if is_ssl(transport) else "http"

    def connection_lost(self, exc: Exception | None) -> None:
        self.limits.handshakes.remove(self)
        self.limits.idle.remove(self)
        self.limits.unread.remove(self)
        self._disconnected()
        if self._begun:
            super().connection_lost(exc)
        else:
            self.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        if not self._begun:
            if self.take_handshake is not None and self._offer_handshake(data):
                return
            self._begin()
        if self._refusal is not None or self._last_head or self.parser is None:
            return  # answered, or about to be; further data is ignored
        self.limits.idle.remove(self)
        if self.timeout_keep_alive_task is not None:
            self._unset_keepalive_if_required()
        self._reading_bytes = len(data)
        if self._head_complete and self._all_answered():
            self._begin_head()  # empty lines may precede it, which the parser does not report
            self._raw_bytes = 0
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._websocket:
                self._upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._answer(*(self._refusal or (400, "bad request", "bad_http")))
        else:
            if self._post is not None:
                self._no_small_post(self._post)
            if not self._head_complete:
                # The parser reports a header only once it is complete; this bounds what it buffers.
                self._raw_bytes += len(data)
                if self._raw_bytes > self.limits.max_head_bytes:
                    self._answer(431, "request header too large", "head_too_large")

    def _offer_handshake(self, data: bytes) -> bool:
        """Hand the connection over if it begins with a plain handshake; return whether it did."""
        limits, transport = self.limits, self.transport
        if len(data) > min(limits.max_request_line_bytes, limits.max_head_bytes):
            return False
        request = plain_handshake.read(data)
        if request is None:
            return False
        client = _host_and_port(transport.get_extra_info("peername"))
        if client is None or (
            self.other_places and transport.get_extra_info("sockname")[1] in self.other_places
        ):
            return False
        self._begun = self._last_head = True
        limits.handshakes.remove(self)
        host, port = plain_client(client)
        remote = shown_client(host, port)
        socket = FrameProtocol(self.server_state, transport, self.loop, limits, remote, first=True)
        transport.set_protocol(socket)
        self._leave()
        assert self.take_handshake is not None
        self.take_handshake(PlainHandshake(socket, host, request))
        return True

    # --- parser callbacks ------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= MAX_PIPELINED:
            self._refuse(503, "too many pipelined requests", "pipelined")
        self.url = b""
        self.headers = []
        self.expect_100_continue = self._forwarded = False
        if self._head_complete:  # after another request in the same read
            self._begin_head()
            self._raw_bytes = -self._reading_bytes
        self._header_bytes = 0

    def on_url(self, url: bytes) -> None:
        self.url += url
        if len(self.url) > self.limits.max_request_line_bytes:
            self._refuse(414, "request line too long", "request_line_too_large")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > self.limits.max_head_bytes:
            self._refuse(431, "request header too large", "head_too_large")
        name = name.lower()
        if name == b"expect":
            self.expect_100_continue = value.lower() == b"100-continue" or self.expect_100_continue
        elif name.startswith(FORWARDED):
            self._forwarded = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._head_complete = True
        self.limits.handshakes.remove(self)
        if self.parser.should_upgrade():
            self._begin_last()
        elif self._may_be_small_post():
            self._post = []
        else:
            self._begin_request()

    def on_body(self, body: bytes) -> None:
        if self._post is not None:
            self._post.append(body)
        elif not self._websocket:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._unwanted:
            self._unwanted = False
            self.limits.handshakes.remove(self)
        parts = self._post
        if parts is not None:
            self._offer_post(parts)
        elif not self._websocket:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._watch_unread()
        # A body that continues has a time-out too: otherwise a few bytes now and then keep it open.
        if self.cycle is not None and self.cycle.more_body:
            self._unwanted = True
            self.limits.handshakes.add(self, self.transport.abort, self.loop)

    def _all_answered(self) -> bool:
        cycle = self.cycle
        return cycle is not None and cycle.response_complete and not cycle.more_body

    def _begin_head(self) -> None:
        """Begin a further request of this connection."""
        self._head_complete = False
        self.limits.handshakes.add(self, self._handshake_timed_out, self.loop)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._at_work = cycle
        super()._start_asgi_task(cycle, app)

    def _begin_last(self) -> None:
        """Begin a request that asks for an upgrade, to a websocket or anything else."""
        self._last_head = True
        if any(name in BODY_HEADERS and value != b"0" for name, value in self.headers):
            self._refuse(400, "a request with Upgrade must not have a body", "bad_handshake")
        self._websocket = self._get_upgrade() == b"websocket"
        if self._websocket:
            self._begin_scope()
            self.scope["method"] = self.parser.get_method().decode("ascii")
            self.scope["http_version"] = self.parser.get_http_version()
            return
        self._begin_request()
        self.cycle.keep_alive = False

    def _begin_request(self) -> None:
        """Hand a request whose head is complete to uvicorn."""
        self._begin_scope()
        super().on_headers_complete()

    def _begin_scope(self) -> None:
        """Build the ASGI scope of a request; small requests do not need it."""
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers += headers  # the list is in the scope

    # --- small requests --------------------------------------------------------------------------

    def _may_be_small_post(self) -> bool:
        return (
            self.url in self.post_paths
            and self.parser.get_method() == b"POST"
            and self.parser.get_http_version() == "1.1"
            and self.parser.should_keep_alive()
            and not self.expect_100_continue
            and (self.cycle is None or self.cycle.response_complete)
            and not self.flow.write_paused
            and not self._forwarded
        )

    def _offer_post(self, parts: list[bytes]) -> None:
        self._post = None
        former = self.cycle
        address, _ = plain_client(self.client)
        post = SmallPost(self, self.url, self.headers, address, b"".join(parts))
        self.cycle = post
        assert self.take_post is not None
        if not self.take_post(post):
            self.cycle = former
            self._no_small_post(parts)
            super().on_message_complete()

    def post_answered(self) -> None:
        """Continue after the answer to a small request was written."""
        if self.pipeline or self.transport.is_closing():
            self.on_response_complete()
            return
        self.server_state.total_requests += 1
        # A separate timer, as uvicorn uses, would cost more than everything else here.
        self.limits.idle.add(self, self.timeout_keep_alive_handler, self.loop)

    def _no_small_post(self, parts: list[bytes]) -> None:
        """Let uvicorn handle a request from its head on, with these parts of its body."""
        self._post = None
        self._begin_request()
        for part in parts:
            super().on_body(part)

    # --- verdicts --------------------------------------------------------------------------------

    def _refuse(self, status: int, text: str, reason: str) -> None:
        self._refusal = (status, text, reason)
        raise _RefusedError(text)

    def _answer(self, status: int, text: str, reason: str, headers: Headers | None = None) -> None:
        """Refuse what was read, and ignore further input until the client has the answer.

        If former requests still wait for theirs, the last of those answers ends the connection
        instead, or else the time-out for a head does.
        """
        self._refusal = (status, text, reason)
        self.limits.refused[reason] += 1
        logger.debug("refused a request: %s", reason)
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if not cycle.more_body:
                cycle.keep_alive = False
                self.limits.handshakes.add(self, self.transport.abort, self.loop)
                return
            cycle.disconnected = True  # its body is what is refused
            cycle.message_event.set()
        self.transport.write(http_answer(status, text.encode(), headers))
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self.limits.handshakes.add(self, self.transport.abort, self.loop)
        else:
            self.transport.close()

    def _handshake_timed_out(self) -> None:
        self._abort("handshake_timeout")

    def _abort(self, reason: str) -> None:
        self.limits.refused[reason] += 1
        self._disconnected()
        self.transport.abort()

    def _disconnected(self) -> None:
        # uvicorn notifies only the last request: an earlier one would write to a closed transport.
        if self._at_work is not None:
            self._at_work.disconnected = True

    # --- answers without a reader ----------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_unread()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.limits.unread.remove(self)

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._watch_unread()

    def _watch_unread(self) -> None:
        """Give the client time to read some of what waits for it."""
        self._unread_bytes = self.transport.get_write_buffer_size()
        if self._unread_bytes:
            self.limits.unread.add(self, self._still_unread, self.loop)

    def _still_unread(self) -> None:
        if self.transport.get_write_buffer_size() < self._unread_bytes:
            self._watch_unread()
        else:
            self._abort("back_pressure")

    # --- the upgrade -----------------------------------------------------------------------------

    def _upgrade(self, early: bytes) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._answer(400, "a request before it is not answered", "bad_handshake")
            return
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]
        raw_path, question, query = self.url.partition(b"?")
        try:
            path = raw_path.decode("ascii")
            handshake = read_handshake(scope["method"], scope["http_version"], self.headers)
        except UnicodeDecodeError:
            self._answer(400, "path is not ASCII", "bad_http")
            return
        except HandshakeError as error:
            self._answer(error.status, str(error), "bad_handshake", error.headers)
            return
        if self.ws_protocol_class is not FrameProtocol:
            self.handle_websocket_upgrade()
            self._leave()
            return
        remote = shown_client(*plain_client(self.client))
        protocol = FrameProtocol(self.server_state, self.transport, self.loop, self.limits, remote)
        scope["type"] = "websocket"
        scope["asgi"] = {"version": self.asgi_version, "spec_version": "2.4"}
        scope["scheme"] = "wss" if self.scheme == "https" else "ws"
        scope["path"] = self.root_path + (unquote(path) if "%" in path else path)
        scope["raw_path"] = self.root_path.encode("ascii") + raw_path
        scope["query_string"] = query
        scope["subprotocols"] = handshake.subprotocols
        scope["extensions"] = {
            "websocket.http.response": {},
            EXTENSION: {"socket": protocol, "query": query if question else None},
        }
        self.transport.set_protocol(protocol)
        self._leave()
        protocol.run(self.app, scope, handshake.key, early)

    def _leave(self) -> None:
        """Release everything of HTTP at the upgrade; parser and protocol reference each other."""
        self.connections.discard(self)
        self.limits.unread.remove(self)
        self._arguments = {}
        self.parser = self.transport = self.flow = None  # type: ignore[assignment]
        self.scope = self.headers = self.cycle = self._at_work = None  # type: ignore[assignment]


def _host_and_port(name: Any) -> tuple[str, int] | None:
    """Return host and port of a socket's name; None for a Unix socket, or if unknown."""
    return (name[0], name[1]) if isinstance(name, tuple) else None


def http_protocol(
    limits: ServerLimits,
    take_post: TakePost | None = None,
    post_paths: Iterable[bytes] = (),
    take_handshake: TakeHandshake | None = None,
    other_places: Iterable[int | str] = (),
) -> type[RelayHttpProtocol]:
    """Return the protocol class for uvicorn's `http` option.

    Args:
        limits: Limits shared by all its connections.
        take_post: Function that small POSTs are offered to.
        post_paths: Paths whose POSTs are offered.
        take_handshake: Function that gets plain handshakes; the `ws` class must then be
            `FrameProtocol`.
        other_places: Ports where all handshakes go through ASGI.
    """
    bound = {
        "limits": limits,
        "take_post": None if take_post is None else staticmethod(take_post),
        "post_paths": frozenset(post_paths),
        "take_handshake": None if take_handshake is None else staticmethod(take_handshake),
        "other_places": frozenset(other_places),
        "answer_heads": AnswerHeads(),
    }
    return type("BoundHttpProtocol", (RelayHttpProtocol,), bound)
