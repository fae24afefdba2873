"""Fuzz SBD: frames, handshakes, encrypted payloads, `/authenticate`, and answers of a hook server.

Only the documented errors may be raised. A server relays only packets of a signed-in client,
however its input is cut into reads, and an encrypted layer delivers only what was sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import random
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import django
from django.apps import apps

from proto.sbd import frames
from proto.sbd.bounds import MAX_MESSAGE_BYTES, NONCE_BYTES
from proto.sbd.e2e import EndToEnd
from proto.sbd.errors import DropReason, FrameError, KeyFormatError
from proto.sbd.events import Authenticated, Dropped, Ended
from proto.sbd.machine import ClientSide, ServerSide, State
from proto.sbd.rate import ByteRate
from proto.websocket.events import InputRefused
from proto.websocket.frames import FrameReader, masked_frame
from relay.sbd.hook import read_answer
from relay.sbd.tokens import JSON, MAX_BODY_BYTES, MAX_HOOK_BYTES, MAX_TOKEN_CHARS, Answer, Tokens
from tests.fuzz.damage import damaged
from tests.proto.sbd.pairs import Identity

if not apps.ready:  # the consumer needs the relay's models
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "rmbsite.settings")
    django.setup()
from relay.sbd.consumer import authenticate

A, B = Identity(1), Identity(2)
NONCE = bytes(NONCE_BYTES)
SIGNED = frames.auth_response(A.sign(NONCE))
PACKET = frames.forward(B.key, b"a packet")
FROM_CLIENTS = [SIGNED, PACKET, frames.KEEP_ALIVE, frames.READY, B.key, frames.ZEROS + b"none"]
FROM_SERVERS = [
    frames.limit_byte_nanos(8_000),
    frames.limit_idle(10_000),
    frames.auth_request(NONCE),
    frames.READY,
    PACKET,
]
JSON_SCRAPS = [
    *("{", "}", "[", "]", '"', ":", ",", "\\", "authToken", "null", "1e999", "NaN", "9" * 5_000),
    *("é", "\ud7ff", "\\ud800", "\x00", "\n", "[" * 2_000, '{"authToken":', '"x"', " " * 20_000),
]
HOOK_ANSWERS = [
    b'HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n{"authToken":"x"}',
    b'HTTP/1.0 200 OK\r\n\r\n{"authToken":"x"}',
    b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n11\r\n{"authToken":"x"}\r\n0\r\n\r\n',
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 302 Found\r\nLocation: http://[::1/\r\nContent-Length: -1\r\n\r\n",
]
HTTP_SCRAPS = [
    *(b"\r\n", b"\n", b":", b" ", b"HTTP/1.1 ", b"HTTP/9.9", b"999999", b"Content-Length: "),
    *(b"Transfer-Encoding: chunked\r\n", b"ffffffffffffffffff\r\n", b"-1", b"\xff\xfe", b"\x00"),
    *(b"x" * 70_000, b"a: b\r\n" * 120, b"HTTP/1.1 100 Continue\r\n\r\n" * 20),
]


# --- frames and handshakes ----------------------------------------------------------------------


def _frames(rng: random.Random) -> None:
    data = _some_message(rng, FROM_CLIENTS + FROM_SERVERS)
    for parse in (frames.parse_from_client, frames.parse_from_server):
        try:
            frame = parse(data)
        except FrameError as error:
            assert isinstance(error.reason, DropReason)
            assert 0 < len(str(error)) < 200
            continue
        assert len(data) <= MAX_MESSAGE_BYTES
        assert isinstance(frame, frames.Forward) != data.startswith(frames.ZEROS)
    segment = data[:64].decode("latin-1") if rng.random() < 0.3 else _damaged_path(rng)
    with contextlib.suppress(KeyFormatError):
        assert frames.path_of_key(frames.key_of_path(segment)) == segment


def _damaged_path(rng: random.Random) -> str:
    good = frames.path_of_key(rng.randbytes(32)).encode()
    return damaged(rng, good, times=rng.randint(0, 2), longest_cut_bytes=2).decode("latin-1")


def _server(rng: random.Random) -> None:
    """Feed a client's bytes in any reads: the result is equal, with packets only after sign-in."""
    messages = [_some_message(rng, FROM_CLIENTS) for _ in range(rng.randint(0, 6))]
    wire = b"".join(masked_frame(message, rng.randbytes(4)) for message in messages)
    if rng.random() < 0.5:
        wire = damaged(rng, wire, times=rng.randint(1, 3), longest_cut_bytes=8)
    whole = _served(wire, [])
    assert (
        _served(wire, sorted(rng.randint(0, len(wire)) for _ in range(rng.randint(1, 6)))) == whole
    )
    packets, ends, signed = whole
    assert len(ends) <= 1
    if signed:
        assert SIGNED in messages or SIGNED[-64:] in _unmasked(wire)
    else:
        assert not packets


def _served(wire: bytes, cuts: list[int]) -> tuple[list[bytes], list[str], bool]:
    reader = FrameReader(MAX_MESSAGE_BYTES, takes_text=True)
    server = ServerSide(A.key, NONCE, ByteRate(8_000, 60_000).charge)
    server.start(8_000, 0)
    packets: list[bytes] = []
    ends: list[str] = []
    start, signed = 0, False
    for cut in [*cuts, len(wire)]:
        data, start = wire[start:cut], cut
        while True:
            packets += server.receive_messages(reader.receive_data(data), 0)
            data = b""
            if not reader.more:
                break
    while (event := server.next_event()) is not None:
        if isinstance(event, Dropped):
            ends.append(event.reason.value)
        else:
            assert isinstance(event, Authenticated)
            signed = True
    assert (server.state is State.ENDED) == bool(ends)
    if not ends:
        ends = [event.fault.name for event in reader.events if isinstance(event, InputRefused)]
    return packets, ends, signed


def _unmasked(wire: bytes) -> bytes:
    """Return the payloads that a reader finds, to look for a signature that survived the damage."""
    reader = FrameReader(MAX_MESSAGE_BYTES, takes_text=True)
    found = reader.receive_data(wire)
    while reader.more:
        found += reader.receive_data(b"")
    return b"".join(found)


def _client(rng: random.Random) -> None:
    """Feed a server's messages to a client: it accepts them, or ends and reports that once."""
    now = 0
    client = ClientSide(A.sign, now)
    ends = 0
    for _ in range(rng.randint(0, 12)):
        client.receive_data(_some_message(rng, FROM_SERVERS), now)
        now += rng.randrange(10**10)
        if client.state is State.READY and client.has_room:
            client.send(B.key, rng.randbytes(rng.randrange(100)))
        client.handle_timer(now)
        for message in client.data_to_send(now):
            assert 32 <= len(message) <= MAX_MESSAGE_BYTES
        due = client.next_timer()
        assert due is None or isinstance(due, int)
        while (event := client.next_event()) is not None:
            ends += isinstance(event, Ended)
    assert ends == (client.state is State.ENDED)


def _some_message(rng: random.Random, good: list[bytes]) -> bytes:
    kind = rng.random()
    if kind < 0.1:
        return rng.randbytes(rng.choice((rng.randrange(40), rng.randrange(200))))
    if kind < 0.2:
        return frames.ZEROS + rng.randbytes(rng.randrange(100))
    if kind < 0.25:
        return rng.choice(good).ljust(MAX_MESSAGE_BYTES + rng.randint(-1, 1), b"\0")
    if kind < 0.5:
        return damaged(rng, rng.choice(good), times=rng.randint(1, 3), longest_cut_bytes=8)
    return rng.choice(good)


# --- encrypted payloads -------------------------------------------------------------------------


def _encrypted(rng: random.Random) -> None:
    """Lose, damage, repeat and swap payloads: a side receives only messages sent to it."""
    sides = [
        EndToEnd(each.secret, rng.randbytes, listener=rng.random() < 0.8, max_peers=2)
        for each in (A, B)
    ]
    keys, sent, now = [A.key, B.key], [set[bytes](), set[bytes]()], 0
    on_way: list[tuple[int, bytes]] = []  # sender, payload
    for number in range(rng.randint(1, 20)):
        now += rng.choice((0, 10**6, 10**9, 11 * 10**9))
        own = rng.randrange(2)
        text = b"%d " % number + bytes(rng.randrange(50))
        sides[own].send(keys[1 - own], text, now)
        sent[own].add(text)
        for side in (0, 1):
            on_way += [(side, payload) for _, payload in sides[side].data_to_send()]
        for _ in range(rng.randint(0, 3)):
            if not on_way:
                break
            at = rng.randrange(len(on_way)) if rng.random() < 0.2 else 0
            sender, payload = on_way[at] if rng.random() < 0.1 else on_way.pop(at)
            if rng.random() < 0.3:
                payload = damaged(rng, payload, times=1, longest_cut_bytes=4)
            if rng.random() < 0.05:
                payload = rng.randbytes(rng.randrange(60))
            sides[1 - sender].receive_packet(keys[sender], payload, now)
            while (event := sides[1 - sender].next_event()) is not None:
                assert event.key == keys[sender]
                assert event.message in sent[sender], "nobody sent that"
        assert all(len(side.active_peers(now)) <= 2 for side in sides)


def _strangers(rng: random.Random) -> None:
    """Feed payloads of many keys, none an honest peer: few are kept, and nothing is delivered."""
    side = EndToEnd(A.secret, rng.randbytes, listener=True, max_peers=3)
    for number in range(rng.randint(1, 15)):
        key = rng.choice(
            (rng.randbytes(32), B.key, A.key, bytes(32), bytes([rng.randrange(4)]) * 32)
        )
        payload = bytes((rng.choice((0x10, 0x11, 0x12, rng.randrange(256))),))
        side.receive_packet(key, payload + rng.randbytes(rng.choice((0, 16, 17, 24, 60))), number)
    assert side.next_event() is None
    assert len(side.active_peers(20)) <= 3
    assert all(len(payload) <= 25 for _, payload in side.data_to_send())


# --- /authenticate, and a hook server -----------------------------------------------------------


class _Redis:
    """The few Redis commands that tokens need."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    async def __call__(self, *words: Any) -> Any:
        if words[0] == "SET":
            self.names.add(words[1])
            return b"OK"
        return int(words[1] in self.names)


class _Hook:
    """A hook server with a fixed answer."""

    def __init__(self, status: int, reply: bytes) -> None:
        self.answer = status, reply
        self.bodies: list[bytes] = []

    async def put(self, body: bytes, timeout_s: float, max_bytes: int) -> tuple[int, bytes]:
        self.bodies.append(body)
        return self.answer[0], self.answer[1][:max_bytes]


def _finished(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


def _bodies(rng: random.Random) -> None:
    """Send bodies in any pieces, with clients that disconnect and odd headers."""
    pieces = [rng.randbytes(rng.choice((0, 1, 30, 500, 1024, 1025, 5000))) for _ in range(4)]
    pieces = pieces[: rng.randint(1, 4)]
    events: list[dict[str, Any]] = [
        {"type": "http.request", "body": piece, "more_body": True} for piece in pieces
    ]
    events[-1]["more_body"] = False
    leaves = rng.random() < 0.2
    if leaves:
        events[rng.randrange(len(events)) :] = [{"type": "http.disconnect"}]
    if rng.random() < 0.1:
        del events[-1]["type"]
        events[-1]["type"] = "http.request"
        events[-1].pop("body", None)
        events[-1]["more_body"] = False
        leaves = False
    waiting, sent = iter(events), []

    async def receive() -> dict[str, Any]:
        return next(waiting)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    redis = _Redis()
    tokens = Tokens(redis, "", 10_000)
    method = rng.choice(("PUT", "PUT", "PUT", "GET", "put", ""))
    size = sum(len(event.get("body", b"")) for event in events)
    _finished(authenticate({"method": method}, receive, send, tokens))
    if not sent:
        assert leaves
        return
    status = sent[0]["status"]
    assert len(sent) == 2
    assert status == (405 if method != "PUT" else 413 if size > MAX_BODY_BYTES else 200)
    if status == 200:
        token = json.loads(sent[1]["body"])["authToken"]
        assert _finished(tokens.admit(f"Bearer {token}".encode())) == token
    header = rng.choice((b"", b"Bearer", b"Bearer ", b"Bearer Bearer ")) + rng.choice(
        (b"", rng.randbytes(rng.randrange(60)), b"x" * 5_000)
    )
    refused = _finished(tokens.admit(header))
    if refused is not None:  # a header that is not ASCII counts as absent
        assert isinstance(refused, Answer)
        assert refused.status == 401


def _hook_replies(rng: random.Random) -> None:
    """Reply with any status and body: the result is the token of the body, or a refusal."""
    kind = rng.random()
    if kind < 0.2:
        reply = rng.randbytes(rng.randrange(200))
    elif kind < 0.6:
        reply = "".join(rng.choices(JSON_SCRAPS, k=rng.randint(0, 8))).encode("utf-8", "replace")
    else:
        good = json.dumps({"authToken": "".join(rng.choices('aé\x00 \\"', k=rng.randrange(9)))})
        reply = damaged(rng, good.encode(), times=rng.randint(0, 2), longest_cut_bytes=3)
    status = rng.choice((200, 200, 200, 201, 299, 300, 401, 404, 500, 0, 999))
    redis = _Redis()
    tokens = Tokens(redis, "http://hook.example", 10_000)
    tokens._hook = hook = _Hook(status, reply)  # type: ignore[assignment]
    answer = _finished(tokens.authenticate(b"body"))
    assert hook.bodies == [b"body"]
    assert answer.status in (200, 401, 500, 502)
    if answer.status != 200:
        assert not redis.names and tokens.counts.total() == 1
        assert len(answer.body) < 300
        return
    assert answer.content_type == JSON and 200 <= status < 300
    token = json.loads(answer.body)["authToken"]
    assert token == json.loads(reply)["authToken"] and 0 < len(token) <= MAX_TOKEN_CHARS
    admitted = _finished(tokens.admit(b"Bearer " + token.encode()))
    assert admitted == token or isinstance(admitted, Answer)  # starts with a space or "Bearer"


def _hook_wire(rng: random.Random) -> None:
    """Read any bytes as HTTP: the result is an answer, or an error that the caller expects."""
    kind = rng.random()
    if kind < 0.1:
        wire = rng.randbytes(rng.randrange(300))
    elif kind < 0.7:
        wire = damaged(rng, rng.choice(HOOK_ANSWERS), times=rng.randint(0, 4), longest_cut_bytes=6)
    else:
        start = rng.choice(HOOK_ANSWERS)
        at = rng.randrange(len(start) + 1)
        wire = start[:at] + b"".join(rng.choices(HTTP_SCRAPS, k=rng.randint(1, 4))) + start[at:]
    ours, theirs = socket.socketpair()
    connection = http.client.HTTPConnection("hook.example")
    try:
        theirs.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            theirs.send(wire)
        theirs.shutdown(socket.SHUT_WR)
        connection.sock = ours
        connection.request("PUT", "/", b"body")
        with contextlib.suppress(OSError, http.client.HTTPException, asyncio.TimeoutError):
            status, reply = read_answer(connection, MAX_HOOK_BYTES + 1)
            assert isinstance(status, int)
            assert len(reply) <= MAX_HOOK_BYTES + 1
    finally:
        connection.close()
        ours.close()
        theirs.close()


def targets() -> list[tuple[str, Callable[[random.Random], None]]]:
    """Return the name and the function of each target."""
    return [
        ("sbd.frames", _frames),
        ("sbd.server", _server),
        ("sbd.client", _client),
        ("sbd.encrypted", _encrypted),
        ("sbd.strangers", _strangers),
        ("sbd.bodies", _bodies),
        ("sbd.hook_replies", _hook_replies),
        ("sbd.hook_wire", _hook_wire),
    ]
