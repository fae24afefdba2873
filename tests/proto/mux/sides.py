"""Two sides of a connection joined in memory, and conversion of frames to and from text."""

from __future__ import annotations

from collections.abc import Iterable

from proto.mux.bounds import MuxBounds
from proto.mux.connection import MuxConnection
from proto.mux.events import Event

MS = 1_000_000


def hexed(frames: Iterable[bytes]) -> list[str]:
    return [frame.hex() for frame in frames]


class Side:
    """One side of a connection; returns the frames it sends as hexadecimal text, and its events."""

    def __init__(self, is_client: bool, bounds: MuxBounds | None = None) -> None:
        self.now = 0
        self.mux = MuxConnection(is_client, 0, bounds)

    def feed(self, *frames: str) -> list[str]:
        """Receive frames in one batch, and return the frames sent in answer."""
        for frame in frames:
            self.mux.receive_data(bytes.fromhex(frame), self.now)
        return self.sent()

    def sent(self) -> list[str]:
        return hexed(self.mux.data_to_send(self.now))

    def told(self) -> list[Event]:
        found = []
        while (event := self.mux.next_event()) is not None:
            found.append(event)
        return found

    def pass_time(self, milliseconds: float) -> list[str]:
        """Advance the clock, run each timer when it is due, and return the frames sent."""
        end = self.now + int(milliseconds * MS)
        while (due := self.mux.next_timer()) is not None and due <= end:
            self.now = max(self.now, due)
            self.mux.handle_timer(self.now)
        self.now = end
        return self.sent()


def client(bounds: MuxBounds | None = None) -> Side:
    return Side(True, bounds)


def server(bounds: MuxBounds | None = None) -> Side:
    return Side(False, bounds)


def pump(one: Side, other: Side) -> None:
    """Carry messages between both sides until neither sends any more."""
    while True:
        forth = one.mux.data_to_send(one.now)
        for frame in forth:
            other.mux.receive_data(frame, other.now)
        back = other.mux.data_to_send(other.now)
        for frame in back:
            one.mux.receive_data(frame, one.now)
        if not forth and not back:
            return
