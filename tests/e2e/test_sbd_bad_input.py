"""Bad SBD input at a relay of two workers: the connection ends, is counted, and harms no other."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import struct
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from proto.sbd import frames
from proto.sbd.bounds import MAX_MESSAGE_BYTES
from tests.e2e.conftest import _shared
from tests.proto.sbd.pairs import Identity
from tests.support.raw_http import UPGRADE_HEADERS, exchange, read_answer, tcp, upgrade
from tests.support.relay_process import RelayProcess, free_port
from tests.support.sbd_client import RawClient
from tests.support.waiting import eventually

NUMBERS = itertools.count(20_000)
OWN_PORT = free_port()
IPV6_PORT = free_port()
NONE = frames.ZEROS + b"none" + bytes(17)
IGNORED = [
    NONE,
    frames.ZEROS + b"abcd",
    frames.KEEP_ALIVE,
    frames.KEEP_ALIVE + b"tail",
    frames.limit_byte_nanos(1),
    frames.limit_idle(1),
    frames.auth_request(bytes(32)),
    frames.READY,
]
PROXY = "127.0.7.9"
SLOWEST_S = 2.0
MASK = bytes(4)

Act = Callable[[RelayProcess], Awaitable[None]]


@pytest.fixture(scope="module")
def sbd(tmp_path_factory: pytest.TempPathFactory, data_template: Path) -> Iterator[RelayProcess]:
    """Start two workers; an address may send 1 MB at once, and 1 MB a second."""
    settings = {
        "sbd.enabled": "true",
        "sbd.limit_kbit_per_s": "8000",
        "sbd.limit_burst_bytes": "1000000",
        "relay.trusted_proxies": PROXY,
        "sbd.listen": f"127.0.0.1:{OWN_PORT} [::1]:{IPV6_PORT}",
    }
    yield from _shared(tmp_path_factory, data_template, processes=2, settings=settings)


def fresh(key: bytes | None = None) -> Identity:
    identity = Identity(next(NUMBERS))
    if key is not None:
        identity.key = key
    return identity


def client(relay: RelayProcess, key: bytes | None = None, address: str = "127.0.0.1") -> RawClient:
    url = f"ws://127.0.0.1:{relay.port}"
    return RawClient(url, fresh(key), local_addr=(address, 0))


@contextlib.asynccontextmanager
async def bystanders(relay: RelayProcess) -> AsyncIterator[None]:
    """Run pairs of clients whose packets must all arrive in time throughout the block."""

    async def play(one: RawClient, two: RawClient) -> None:
        for number in itertools.count():
            async with asyncio.timeout(SLOWEST_S):
                for source, target in ((one, two), (two, one)):
                    await source.forward(target.key, b"%d" % number)
                    assert await target.receive() == frames.Forward(source.key, b"%d" % number)
            await asyncio.sleep(0.01)

    async with contextlib.AsyncExitStack() as stack:
        here = [await stack.enter_async_context(client(relay, address="127.0.7.1")) for _ in "1234"]
        playing = [
            asyncio.ensure_future(play(one, two))
            for one, two in zip(here[::2], here[1::2], strict=True)
        ]
        try:
            yield
            await asyncio.sleep(0.1)
            for task in playing:
                if task.done():
                    task.result()
        finally:
            for task in playing:
                task.cancel()
            await asyncio.gather(*playing, return_exceptions=True)


# --- what ends a connection -------------------------------------------------------------------


def ready(*messages: bytes | str | list[bytes]) -> Act:
    """Return an act that sends these messages as a client that has signed in."""

    async def act(relay: RelayProcess) -> None:
        async with client(relay) as one:
            for message in messages:
                await one.send(message)
            assert await one.ended() is None

    return act


def wire(data: bytes) -> Act:
    """Return an act that writes these bytes as a client that has signed in."""

    async def act(relay: RelayProcess) -> None:
        async with client(relay) as one:
            one.write(data)
            assert await one.ended() is None

    return act


def handshake(*messages: bytes, key: bytes | None = None) -> Act:
    """Return an act that sends these messages instead of a valid answer.

    Only the end of the connection follows, and nothing is relayed.
    """

    async def act(relay: RelayProcess) -> None:
        async with client(relay) as target, client(relay, key).opened() as one:
            await one.challenge()
            with contextlib.suppress(ConnectionClosed):
                for message in messages:
                    await one.send(message)
                await one.send(frames.forward(target.key, b"spoofed"))
            assert await one.ended() is None
            await target.forward(target.key, b"own")
            assert await target.receive() == frames.Forward(target.key, b"own")

    return act


async def wrong_nonce(relay: RelayProcess) -> None:
    async with client(relay).opened() as one:
        await one.challenge()
        await one.send(frames.auth_response(one.identity.sign(bytes(32))))
        assert await one.ended() is None


async def foreign_signature(relay: RelayProcess) -> None:
    async with client(relay).opened() as one:
        await one.send(frames.auth_response(fresh().sign(await one.challenge())))
        assert await one.ended() is None


def illegal(key: bytes) -> Act:
    async def act(relay: RelayProcess) -> None:
        async with client(relay, key).opened() as one:
            assert await one.ended() is None
            assert one.limits == []

    return act


async def flood(relay: RelayProcess) -> None:
    async with client(relay, address="127.0.7.2") as one:
        with contextlib.suppress(ConnectionClosed):
            for _ in range(1_000):
                await one.send(frames.KEEP_ALIVE.ljust(MAX_MESSAGE_BYTES, b"\0"))
        assert await one.ended() is None


def head(size: int, first: int = 0x82) -> bytes:
    return struct.pack(">BBQ", first, 0xFF, size) + MASK


LARGE = fresh().key.ljust(MAX_MESSAGE_BYTES + 1, b"\0")
ONES = bytes(64)
SMALL_ORDER = [
    b"\x01" + bytes(31),
    b"\xec" + b"\xff" * 30 + b"\x7f",
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85"),
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa"),
]
FORGED = frames.auth_response(b"\x01" + bytes(63))
"""Signature that fits any nonce under a key of small order, if the verifier accepts such keys."""
ROWS: dict[str, tuple[str, Act]] = {
    "empty": ("too_short", ready(b"")),
    "31 bytes": ("too_short", ready(bytes(31))),
    "short text": ("too_short", ready("short")),
    "short in fragments": ("too_short", ready([b"a", b"b", b""])),
    "20,001 bytes": ("too_large", ready(LARGE)),
    "20,001 bytes in fragments": ("too_large", ready([LARGE[:10_000], LARGE[10_000:]])),
    "20,001 bytes of text": ("too_large", ready("x" * (MAX_MESSAGE_BYTES + 1))),
    "header of 15 MiB": ("too_large", wire(head(15 << 20))),
    "header of 15 MiB in a fragment": ("too_large", wire(head(15 << 20, 0x02))),
    "second response": ("second_response", ready(frames.auth_response(ONES))),
    "response of 95 bytes": ("bad_response", ready(frames.auth_response(ONES[:63]))),
    "response of 97 bytes": ("bad_response", ready(frames.auth_response(ONES + b"x"))),
    "not masked": ("protocol_error", wire(b"\x82\x01x")),
    "reserved bit": ("protocol_error", wire(b"\xc2\x81" + MASK + b"x")),
    "unknown opcode": ("protocol_error", wire(b"\x83\x80" + MASK)),
    "stray continuation": ("protocol_error", wire(b"\x80\x80" + MASK)),
    "text that is not UTF-8": ("protocol_error", wire(b"\x81\xa0" + MASK + b"\xff" * 32)),
    "long ping": ("protocol_error", wire(b"\x89\xfe\x00\x7e" + MASK)),
    "fragmented ping": ("protocol_error", wire(b"\x09\x80" + MASK)),
    "close code that cannot be": ("protocol_error", wire(b"\x88\x82" + MASK + b"\x03\xee")),
    "signature of zeros": ("bad_signature", handshake(frames.auth_response(ONES))),
    "signature of another nonce": ("bad_signature", wrong_nonce),
    "signature of another key": ("bad_signature", foreign_signature),
    "early response of 32 bytes": ("bad_response", handshake(frames.AUTH_RESPONSE)),
    "early packet": ("early_forward", handshake(frames.forward(fresh().key, b"early"))),
    "early packet after others": ("early_forward", handshake(NONE, frames.KEEP_ALIVE)),
    "early short message": ("too_short", handshake(bytes(31))),
    "early large message": ("too_large", handshake(LARGE)),
    "key off the curve": ("bad_signature", handshake(FORGED, key=b"\x02" + bytes(31))),
    "28 zero bytes": ("illegal_key", illegal(bytes(28) + b"abcd")),
    "zero key": ("illegal_key", illegal(bytes(32))),
    "rate limit": ("rate_limit", flood),
    **{
        f"key of small order {number}": ("bad_signature", handshake(FORGED, key=key))
        for number, key in enumerate(SMALL_ORDER)
    },
}


@pytest.mark.parametrize("name", ROWS)
async def test_its_end(sbd: RelayProcess, name: str) -> None:
    await ROWS[name][1](sbd)


async def test_each_is_counted_by_reason_and_harms_nobody(sbd: RelayProcess) -> None:
    def counts() -> Counter[str]:
        found: Counter[str] = Counter()
        for series, value in sbd.metrics().items():
            name = series.partition("{")[0]
            if name.startswith("sbd_ended_") and "client_close" not in name:
                found[name.removeprefix("sbd_ended_").removesuffix("_total")] += int(value)
        return found

    await eventually(lambda: counts().total() >= len(ROWS), what="earlier tests to be counted")
    before = counts()
    async with bystanders(sbd):
        await asyncio.gather(*(act(sbd) for _, act in ROWS.values()))
    expected = Counter(reason for reason, _ in ROWS.values())
    await eventually(lambda: counts() - before == expected, what=f"{expected}")


# --- what ends none ---------------------------------------------------------------------------


async def test_the_order_of_a_handshake(sbd: RelayProcess) -> None:
    async with client(sbd).opened() as one:
        first = [await one.receive_frame() for _ in range(2)]
        assert {type(frame) for frame in first} == {frames.LimitByteNanos, frames.AuthRequest}
        (request,) = [frame for frame in first if isinstance(frame, frames.AuthRequest)]
        await one.send(frames.auth_response(one.identity.sign(request.nonce)))
        kinds = []
        while frames.Ready not in kinds:
            frame = await one.receive_frame()
            if not isinstance(frame, frames.LimitByteNanos):
                kinds.append(type(frame))
        assert kinds == [frames.LimitIdle, frames.Ready]


async def test_other_commands_are_ignored_before_and_after(sbd: RelayProcess) -> None:
    async with client(sbd).opened() as one:
        for message in IGNORED:
            await one.send(message)
        await one.sign_in()
        for message in IGNORED:
            await one.send(message)
        await one.forward(one.key, b"still here")
        assert await one.receive() == frames.Forward(one.key, b"still here")


async def test_fragments_text_and_pings(sbd: RelayProcess) -> None:
    async with client(sbd) as one:
        message = frames.forward(one.key, b"in pieces")
        await one.send([message[:1], b"", message[1:33], message[33:]])
        assert await one.receive() == frames.Forward(one.key, b"in pieces")
        await one.ping()
        ascii_key = b"a key of 32 ASCII characters....".decode()
        before = sbd.counted("sbd_lost_absent_total")
        await one.send(ascii_key + "a text is its bytes")
        await one.forward(one.key, b"")
        assert await one.receive() == frames.Forward(one.key, b"")
        await eventually(lambda: sbd.counted("sbd_lost_absent_total") == before + 1)


async def test_a_close_frame_is_echoed(sbd: RelayProcess) -> None:
    async with client(sbd) as one:
        assert await one.close(4321) == 4321


async def test_a_half_closed_connection_ends_with_nothing(sbd: RelayProcess) -> None:
    async with tcp(sbd.port) as (reader, writer):
        path = frames.path_of_key(fresh().key)
        writer.write(f"GET /{path} HTTP/1.1\r\n{UPGRADE_HEADERS}\r\n".encode())
        assert (await read_answer(reader)).status == 101
        await reader.readexactly(2 + 36 + 2 + 64)  # lbrt and areq
        writer.write_eof()
        assert await reader.read() == b""


async def test_the_address_behind_a_trusted_proxy_counts(sbd: RelayProcess) -> None:
    def behind(proxy: str, address: str) -> RawClient:
        header = {"X-Forwarded-For": address}
        url = f"ws://127.0.0.1:{sbd.port}"
        return RawClient(url, fresh(), local_addr=(proxy, 0), additional_headers=header)

    async with (
        behind(PROXY, "192.0.2.1") as one,
        behind(PROXY, "192.0.2.2") as two,
        behind(PROXY, "192.0.2.2") as three,
        behind("127.0.7.8", "192.0.2.2") as other,
    ):
        assert (one.limits, two.limits) == ([1_000], [1_000])
        while three.limits[-1] != 2_000:  # if at another worker, notified later
            await three.receive_frame()
        assert other.limits == [1_000]


async def test_ipv6(sbd: RelayProcess) -> None:
    url = f"ws://[::1]:{IPV6_PORT}"
    async with RawClient(url, fresh()) as one, client(sbd) as two:
        await one.forward(two.key, b"there")
        assert await two.receive() == frames.Forward(one.key, b"there")


# --- paths and headers ------------------------------------------------------------------------


@pytest.mark.parametrize("port", ["public", "own"])
async def test_paths_and_headers_of_a_megabyte(sbd: RelayProcess, port: str) -> None:
    number = sbd.port if port == "public" else OWN_PORT
    path = frames.path_of_key(fresh().key)

    def refused() -> float:
        return sbd.counted("relay_handshakes_refused_total", reason="protocol_error")

    before = refused()
    for target, header, status in (
        (f"/{'A' * 1_000_000}", "", 414),
        (f"/{path}?{'x' * 1_000_000}", "", 414),
        (f"/{path}", f"Authorization: Bearer {'x' * 1_000_000}\r\n", 431),
    ):
        assert (await upgrade(number, target, header)).status == status
    await eventually(lambda: refused() == before + 3)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (("GET /", "POST /"), 400),
        (("HTTP/1.1", "HTTP/1.0"), 400),
        (("Version: 13", "Version: 12"), 426),
        (("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", ""), 400),
        (("Upgrade: websocket\r\n", ""), 400),
        (("Connection: Upgrade\r\n", ""), 400),
    ],
    ids=["POST", "HTTP/1.0", "version", "no key", "no Upgrade", "no Connection"],
)
async def test_what_is_no_websocket_handshake(
    sbd: RelayProcess, change: tuple[str, str], status: int
) -> None:
    text = f"GET /{frames.path_of_key(fresh().key)} HTTP/1.1\r\n{UPGRADE_HEADERS}\r\n"
    assert change[0] in text
    answer = await exchange(OWN_PORT, text.replace(*change).encode())
    assert answer.status == status


async def test_tokens_where_none_is_needed(sbd: RelayProcess) -> None:
    """A header with an unknown token is refused even where no token is needed."""
    before = sbd.counted("sbd_auth_failures_bad_token_total")
    wrong = ("Bearer wrong", "bearer wrong", "Bearer  wrong", "Bearer ", "Basic eDp5")
    path = f"/{frames.path_of_key(fresh().key)}"
    for header in (*wrong, "Bearer " + "x" * 10_000):
        answer = await upgrade(sbd.port, path, f"Authorization: {header}\r\n")
        assert (answer.status, answer.body) == (401, b"Unauthorized"), header[:20]
    absent = await upgrade(sbd.port, path, "Authorization: Bearer \u00e9\r\n")
    assert absent.status == 101  # not ASCII: as if there were none
    await eventually(
        lambda: sbd.counted("sbd_auth_failures_bad_token_total") == before + len(wrong) + 1
    )
