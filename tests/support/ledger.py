"""Account of what a load sent, had confirmed and received, which then proves the promises.

Promises checked (docs/protocol/delivery.md): order per sender connection and destination session,
nothing confirmed by a pong is lost, nothing arrives twice unless the test allows it, and nothing
arrives that was never sent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field

from proto.rmb import types_pb2 as pb

MARK = b"ledger"


@dataclass
class SenderConnection:
    """Messages that one connection of a sender sent, in order, to each destination."""

    number: int
    sent: int = 0
    confirmed: int = 0  # number of first messages that are certainly stored
    refused: set[int] = field(default_factory=set)  # the relay sent an error for them
    refusals: dict[str, int] = field(default_factory=dict)  # by the relay's text
    destinations: list[Hashable] = field(default_factory=list)

    def next_payload(self, destination: Hashable, size_bytes: int = 0) -> bytes:
        """Return the payload of the next message, at least `size_bytes` long."""
        payload = b"%b %d %d " % (MARK, self.number, self.sent)
        self.sent += 1
        self.destinations.append(destination)
        return payload.ljust(size_bytes, b".")

    def confirm(self, count: int) -> None:
        """Record a pong for a ping that was sent after `count` messages."""
        self.confirmed = max(self.confirmed, count)

    def refuse(self, payload: bytes) -> None:
        """Record that the relay answered this message with an error: it need not arrive."""
        number, sequence = parse(payload)
        assert number == self.number
        self.refused.add(sequence)


@dataclass
class ReceiverConnection:
    """Messages that one connection of a destination session received, in order.

    Connections of one generation were opened at the same time: which of them held the session first
    is known only from what they received.
    """

    destination: Hashable
    generation: int = 0
    got: list[tuple[int, int]] = field(default_factory=list)

    def take(self, message: bytes) -> None:
        """Record one received envelope (its bytes)."""
        envelope = pb.Envelope.FromString(message)
        if envelope.HasField("error"):
            return
        self.got.append(parse(envelope.plain))


def parse(payload: bytes) -> tuple[int, int]:
    """Return (number of the sender connection, sequence number) of a ledger payload."""
    mark, number, sequence, _ = payload.split(b" ", 3)
    assert mark == MARK, f"not a message of this test: {payload[:40]!r}"
    return int(number), int(sequence)


class Ledger:
    """Account of one test."""

    def __init__(self) -> None:
        self.senders: list[SenderConnection] = []
        self.receivers: list[ReceiverConnection] = []

    def sender(self) -> SenderConnection:
        """Add and return a new sender connection."""
        page = SenderConnection(len(self.senders))
        self.senders.append(page)
        return page

    def receiver(self, destination: Hashable, generation: int | None = None) -> ReceiverConnection:
        """Add and return a new receiver connection; add them in order of their sign-in."""
        page = ReceiverConnection(
            destination, len(self.receivers) if generation is None else generation
        )
        self.receivers.append(page)
        return page

    def missing(self) -> list[tuple[int, int]]:
        """Return messages that are certainly stored and not refused, but never received.

        Certainly stored are those that a pong confirmed, and, since batches are committed in order,
        all before a message that the same destination received.
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
        """Return every receipt of a message after its first."""
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
        """Check that first receipts rise, by sender connection and destination."""
        received: dict[tuple[Hashable, int], list[tuple[int, list[int]]]] = defaultdict(list)
        for page in self.receivers:
            by_sender: dict[int, list[int]] = defaultdict(list)
            for number, sequence in page.got:
                by_sender[number].append(sequence)
            for number, sequences in by_sender.items():
                received[page.destination, number].append((page.generation, sequences))
        for (destination, number), pages in received.items():
            highest, seen = -1, set()
            # Within a generation the connection with the earlier message was first.
            for sequence in (each for _, got in sorted(pages) for each in got):
                if sequence in seen:
                    continue
                assert sequence > highest, (
                    f"{destination}: {number}/{sequence} came after {number}/{highest}"
                )
                seen.add(sequence)
                highest = sequence
