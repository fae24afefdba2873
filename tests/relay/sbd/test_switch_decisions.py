"""How a switch applies decisions of operators, with clients in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proto.limits.addresses import BannedNetworks, read_network
from proto.sbd import frames
from relay.sbd import decisions
from relay.sbd.connection import Connection
from relay.sbd.options import EndReason, SbdOptions
from relay.sbd.switch import Switch
from tests.proto.sbd.pairs import NONCE, Identity

OPTIONS = SbdOptions(byte_nanos=1_000)
NOWHERE = BannedNetworks()
IDENTITY = Identity(1)
NAME = frames.path_of_key(IDENTITY.key)


class Socket:
    """A socket that records what is sent."""

    def __init__(self, remote: str) -> None:
        self.remote = remote
        self.sent: list[bytes] = []
        self.aborted = False

    def send_messages(self, payloads: list[bytes]) -> int:
        self.sent += payloads
        return 0

    def buffered_bytes(self) -> int:
        return 0

    def abort(self) -> None:
        self.aborted = True

    @property
    def limits(self) -> list[int]:
        """Return every limit that was sent to the client."""
        parsed = map(frames.parse_from_server, self.sent)
        return [each.byte_nanos for each in parsed if isinstance(each, frames.LimitByteNanos)]


def opened(switch: Switch, host: str, identity: Identity = IDENTITY) -> tuple[Connection, Any]:
    socket: Any = Socket(f"{host}:4711")
    return switch.open(identity.key, NONCE, socket, host), socket


def connect(switch: Switch, host: str, identity: Identity = IDENTITY) -> tuple[Connection, Any]:
    connection, socket = opened(switch, host, identity)
    connection.start()
    return connection, socket


def sign_in(connection: Connection, identity: Identity = IDENTITY) -> None:
    connection.messages_received([frames.auth_response(identity.sign(NONCE))])


def decide(switch: Switch, networks: BannedNetworks = NOWHERE, **fields: str) -> None:
    switch.decide(decisions.read(fields, 128), networks)


async def test_a_key_is_counted_for_itself_once_it_is_proven() -> None:
    switch = Switch(OPTIONS, asyncio.get_running_loop())
    address = switch.places.of("192.0.2.7")
    decide(switch, **{f"limit_key:{NAME}": "800"})
    one, socket = connect(switch, "192.0.2.7")
    stranger, _ = connect(switch, "192.0.2.7")
    assert one.place is stranger.place is address, "anyone may name a key"
    sign_in(one)
    own = switch.places.get(NAME)
    assert own is not None and one.place is own and stranger.place is address
    assert socket.sent[-2:] == [frames.READY, frames.limit_byte_nanos(10_000)]
    one.messages_received([bytes([1]) * 1_000])
    assert own.rate.charged_bytes == 1_000 and address.rate.charged_bytes == 96
    decide(switch)
    assert one.place is address and address.connections == {one, stranger}
    assert socket.limits == [1_000, 10_000, 2_000]
    decide(switch, **{f"limit_key:{NAME}": "0"})
    assert one.place is own and socket.limits[-1] == 1
    one.messages_received([bytes([1]) * 20_000] * 100)
    assert not one.ended, "no limit"
    one.closed(1006, None)
    assert not own.connections and address.connections == {stranger}


@pytest.mark.parametrize("proven", [True, False], ids=["proven", "in the handshake"])
async def test_who_is_banned_is_dropped(proven: bool) -> None:
    switch = Switch(OPTIONS, asyncio.get_running_loop())
    near, near_socket = connect(switch, "192.0.2.7")
    far, far_socket = connect(switch, "2001:db8::7", Identity(2))
    if proven:
        sign_in(near)
        sign_in(far, Identity(2))
    banned = BannedNetworks([read_network("2001:db8::/32")])
    decide(switch, banned)
    assert far.ended and far_socket.aborted and not near.ended
    decide(switch, banned, **{f"ban_key:{NAME}": "flood"})
    assert near.ended and near_socket.aborted
    assert switch.counts.ended == {EndReason.ADDRESS_BANNED: 1, EndReason.BANNED: 1}
    assert not switch.connections and not switch.keys


async def test_what_is_decided_while_a_websocket_is_accepted() -> None:
    switch = Switch(SbdOptions(byte_nanos=0), asyncio.get_running_loop())
    banned, _ = opened(switch, "192.0.2.7")
    limited, socket = opened(switch, "192.0.2.7", Identity(2))
    decide(switch, **{f"ban_key:{NAME}": "flood", "limit_address:192.0.2.7": "8"})
    for each in (banned, limited):
        each.start()
    place = switch.places.of("192.0.2.7")
    assert place.connections == {limited} and socket.limits == [1_000_000]
    limited.messages_received([bytes(28) + b"keep"])
    assert place.rate.charged_bytes == 32
