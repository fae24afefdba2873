"""Both sides of a connection, joined in memory, with a clock that tests advance."""

from __future__ import annotations

import hashlib

from nacl import bindings

from proto.sbd import frames
from proto.sbd.events import ClientEvent, ServerEvent
from proto.sbd.machine import ClientSide, ServerSide
from proto.sbd.rate import ByteRate

NONCE = bytes(range(32))


class Identity:
    """A key pair derived from a number."""

    def __init__(self, number: int) -> None:
        seed = hashlib.sha256(f"sbd test key {number}".encode()).digest()
        self.key, self.secret = bindings.crypto_sign_seed_keypair(seed)

    def sign(self, nonce: bytes) -> bytes:
        return bindings.crypto_sign(nonce, self.secret)[:64]


class Pair:
    """A client, and the server's side of its connection.

    Attributes:
        now: current time, in nanoseconds.
    """

    def __init__(self, number: int = 1, rate: ByteRate | None = None, idle_ms: int = 10_000):
        self.now = 1_000_000_000
        self.identity = Identity(number)
        self.rate = rate or ByteRate()
        self.client = ClientSide(self.identity.sign, self.now)
        self.server = ServerSide(self.identity.key, NONCE, self.rate.charge, idle_ms)
        self.sent: list[bytes] = []  # messages of the client since this list was last cleared

    def exchange(self) -> None:
        """Carry messages until neither side has any."""
        while True:
            down = self.server.data_to_send()
            up = self.client.data_to_send(self.now)
            if not down and not up:
                return
            for message in down:
                self.client.receive_data(message, self.now)
            for message in up:
                self.sent.append(message)
                self.server.receive_data(message, self.now)

    def connect(self) -> None:
        self.server.start(8_000, self.now)
        self.exchange()

    def wait_until(self, when: int) -> None:
        """Advance the clock to this time, running the timers of both sides as they become due."""
        while True:
            timers = [self.client.next_timer(), self.server.next_timer()]
            due = min((each for each in timers if each is not None), default=when)
            if due > when:
                break
            self.now = max(self.now, due)
            self.client.handle_timer(self.now)
            self.exchange()
            self.server.handle_timer(self.now)
            self.exchange()
        self.now = when

    def client_events(self) -> list[ClientEvent]:
        found = []
        while (event := self.client.next_event()) is not None:
            found.append(event)
        return found

    def server_events(self) -> list[ServerEvent]:
        return events_of(self.server)


def events_of(server: ServerSide) -> list[ServerEvent]:
    found = []
    while (event := server.next_event()) is not None:
        found.append(event)
    return found


def ready(number: int = 1, rate: ByteRate | None = None) -> ServerSide:
    """Return a server's side whose client has signed in; the sign-in is not charged to the rate."""
    identity = Identity(number)
    charge = (rate or ByteRate()).charge
    server = ServerSide(identity.key, NONCE, lambda size, now: True)
    server.start(8_000, 0)
    server.receive_data(frames.auth_response(identity.sign(NONCE)), 0)
    server.charge = charge
    events_of(server)
    server.data_to_send()
    return server
