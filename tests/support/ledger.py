"""Keeps the books of a load: what was sent, confirmed and received; then proves the promises.

Promises checked (docs/protocol/delivery.md): order per sender connection and destination session,
nothing confirmed by a pong is lost, nothing comes twice unless the test allows it, and nothing
comes that was never sent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field

from proto.rmb import types_pb2 as pb

MARK = b"ledger"


@dataclass
class SenderConnection:
    """What one connection of a sender sent, in order, to each destination."""

    number: int
    sent: int = 0
    confirmed: int = 0  # the first so many are stored for certain
    refused: set[int] = field(default_factory=set)  # the relay told the sender
    refusals: dict[str, int] = field(default_factory=dict)  # by the relay's text
    destinations: list[Hashable] = field(default_factory=list)

    def next_payload(self, destination: Hashable, size_bytes: int = 0) -> bytes:
        """The payload of the next message, at least `size_bytes` long."""
        payload = b"%b %d %d " % (MARK, self.number, self.sent)
        self.sent += 1
        self.destinations.append(destination)
        return payload.ljust(size_bytes, b".")

    def confirm(self, count: int) -> None:
        """A pong came for a ping sent after `count` messages."""
        self.confirmed = max(self.confirmed, count)

    def refuse(self, payload: bytes) -> None:
        """The relay answered this message with an error: it need not arrive."""
        number, sequence = parse(payload)
        assert number == self.number
        self.refused.add(sequence)


@dataclass
class ReceiverConnection:
    """What one connection of a destination session got, in order.

    Connections of one generation were opened at the same time: which of them held the session
    first is known from what they got only.
    """

    destination: Hashable
    generation: int = 0
    got: list[tuple[int, int]] = field(default_factory=list)

    def take(self, message: bytes) -> None:
        """Enter one received envelope (its bytes)."""
        envelope = pb.Envelope.FromString(message)
        if envelope.HasField("error"):
            return
        self.got.append(parse(envelope.plain))


def parse(payload: bytes) -> tuple[int, int]:
    """(number of the sender connection, sequence number) of a ledger payload."""
    mark, number, sequence, _ = payload.split(b" ", 3)
    assert mark == MARK, f"not a message of this test: {payload[:40]!r}"
    return int(number), int(sequence)


class Ledger:
    """The books of one test."""

    def __init__(self) -> None:
        self.senders: list[SenderConnection] = []
        self.receivers: list[ReceiverConnection] = []

    def sender(self) -> SenderConnection:
        """Open the page of a new sender connection."""
        page = SenderConnection(len(self.senders))
        self.senders.append(page)
        return page

    def receiver(self, destination: Hashable, generation: int | None = None) -> ReceiverConnection:
        """Open the page of a new receiver connection; open them in order of their sign-in."""
        page = ReceiverConnection(
            destination, len(self.receivers) if generation is None else generation
        )
        self.receivers.append(page)
        return page

    def missing(self) -> list[tuple[int, int]]:
        """Stored for certain and not refused, but never received.

        Stored for certain is what a pong confirmed, and, since batches are committed in order,
        everything before a message that was received by the same destination.
        """
        received = {entry for page in self.receivers for entry in page.got}
        lost = []
        for sender in self.senders:
            highest = {
                destination: sequence
                for sequence, destination in enumerate(sender.destinations)
                if (sender.number, sequence) in received
            }
            for sequence, destination in enumerate(sender.destinations):
                certain = sequence < sender.confirmed or sequence < highest.get(destination, 0)
                entry = (sender.number, sequence)
                if certain and sequence not in sender.refused and entry not in received:
                    lost.append(entry)
        return lost

    def duplicates(self) -> list[tuple[int, int]]:
        """Every receipt of a message after its first."""
        seen: set[tuple[int, int]] = set()
        again = []
        for page in self.receivers:
            for entry in page.got:
                if entry in seen:
                    again.append(entry)
                seen.add(entry)
        return again

    def check(self, *, allow_duplicates: bool = False) -> None:
        """Assert the promises; call it when every receiver has drained its queue."""
        self._check_origin()
        self._check_order()
        missing = self.missing()
        assert not missing, f"{len(missing)} stored messages lost, first {missing[:5]}"
        again = self.duplicates()
        assert allow_duplicates or not again, f"{len(again)} came twice, first {again[:5]}"

    def _check_origin(self) -> None:
        for page in self.receivers:
            for number, sequence in page.got:
                assert number < len(self.senders), f"no sender connection {number}"
                sender = self.senders[number]
                assert sequence < sender.sent, f"message {number}/{sequence} was never sent"
                meant_for = sender.destinations[sequence]
                assert meant_for == page.destination, (
                    f"message {number}/{sequence} for {meant_for} came to {page.destination}"
                )

    def _check_order(self) -> None:
        """First receipts rise, per sender connection and destination, over all connections."""
        received: dict[tuple[Hashable, int], list[tuple[int, list[int]]]] = defaultdict(list)
        for page in self.receivers:
            by_sender: dict[int, list[int]] = defaultdict(list)
            for number, sequence in page.got:
                by_sender[number].append(sequence)
            for number, sequences in by_sender.items():
                received[page.destination, number].append((page.generation, sequences))
        for (destination, number), pages in received.items():
            highest, seen = -1, set()
            # Within a generation the connection with the earlier message came first.
            for sequence in (each for _, got in sorted(pages) for each in got):
                if sequence in seen:
                    continue
                assert sequence > highest, (
                    f"{destination}: {number}/{sequence} came after {number}/{highest}"
                )
                seen.add(sequence)
                highest = sequence
