"""Flows: numbered messages from one twin to another, and the account of which of them arrived."""

from __future__ import annotations

from array import array
from collections import Counter
from time import perf_counter_ns
from typing import Protocol

from picows import WSMsgType, WSTransport

BINARY = WSMsgType.BINARY
RING = 64
"""Send times kept per flow, at least the largest window; latencies beyond it are not recorded."""
LONGEST_GAP = 1_000_000
"""Missing messages remembered per flow, so that a wild sequence number cannot fill the memory."""


class Patched(Protocol):
    """Message of a flow in a buffer that is patched in place."""

    def patch(self, sequence: int) -> bytearray:
        """Turn the buffer into the message with this number, and return it."""


class Lane:
    """Latencies of a group of flows that is reported separately."""

    __slots__ = ("latencies_us",)

    def __init__(self) -> None:
        self.latencies_us = array("I")

    def take(self) -> array[int]:
        """Return the latencies recorded since the last call."""
        taken, self.latencies_us = self.latencies_us, array("I")
        return taken


class Ledger:
    """State shared by all flows of a generator: the on/off switch, the lanes, the faults."""

    def __init__(self) -> None:
        self.flows: list[Flow] = []
        self.measurement = 0  # incremented by each `end`
        self.strays = 0  # messages of an earlier measurement
        self.payload_size_bytes = 0
        self.running = False  # whether each arrival sends another message
        self.lanes: dict[str, Lane] = {}
        self.notices: Counter[str] = Counter()  # error envelopes by text
        self.closes: Counter[str] = Counter()  # unexpected ends of connections

    def reset(self, payload_size_bytes: int) -> None:
        """Forget flows, lanes and faults."""
        self.payload_size_bytes = payload_size_bytes
        for part in (self.flows, self.lanes, self.notices, self.closes):
            part.clear()

    def end(self) -> None:
        """End the measurement: its messages that still arrive count as strays of the next one."""
        self.measurement += 1
        self.strays = 0

    @property
    def received(self) -> int:
        return sum(flow.received for flow in self.flows)

    @property
    def outstanding(self) -> int:
        """Number of messages that were sent and have not arrived."""
        return sum(flow.next - flow.expected + len(flow.missing) for flow in self.flows)

    def account(self) -> dict[str, int]:
        """Return the totals over all flows since they began."""
        flows = self.flows
        return {
            "sent": sum(flow.next for flow in flows),
            "received": self.received,
            "lost": self.outstanding,
            "strays": self.strays,
            "duplicates": sum(flow.duplicates for flow in flows),
            "out_of_order": sum(flow.out_of_order for flow in flows),
        }


class Flow:
    """One sender, one receiver, and a window of messages in flight.

    The receiver passes each arrival to `arrived`, which sends the next message: the credit travels
    inside the generator, so the relay sees only the messages.
    """

    __slots__ = (
        "duplicates",
        "expected",
        "lane",
        "ledger",
        "missing",
        "next",
        "out_of_order",
        "received",
        "sent_ns",
        "template",
        "transport",
    )

    def __init__(
        self, ledger: Ledger, lane: Lane, template: Patched, transport: WSTransport
    ) -> None:
        self.ledger = ledger
        self.lane = lane
        self.template = template
        self.transport = transport
        self.next = 0  # number of the next message to send
        self.expected = 0  # number of the next message to arrive if none is lost or overtaken
        self.received = 0
        self.missing: set[int] = set()  # numbers below `expected` that did not arrive
        self.duplicates = 0
        self.out_of_order = 0
        self.sent_ns = [0] * RING

    def send(self, now_ns: int) -> None:
        """Send the next message."""
        number = self.next
        self.next = number + 1
        self.sent_ns[number % RING] = now_ns
        self.transport.send(BINARY, self.template.patch(number))

    def arrived(self, number: int) -> None:
        """Account for one arrival, and send the next message while the ledger is running."""
        if number == self.expected:
            self.expected = number + 1
        elif not self._irregular(number):
            return
        self.received += 1
        now_ns = perf_counter_ns()
        self.lane.latencies_us.append((now_ns - self.sent_ns[number % RING]) // 1000)
        if self.ledger.running:
            self.send(now_ns)

    def _irregular(self, number: int) -> bool:
        """Account for an unexpected number; return whether it arrives for the first time."""
        if number < self.expected:
            if number in self.missing:
                self.missing.discard(number)
                self.out_of_order += 1
                return True
            self.duplicates += 1
            return False
        if number >= self.next or number - self.expected > LONGEST_GAP:
            raise ValueError(f"message {number} of a flow that has sent {self.next}")
        self.missing.update(range(self.expected, number))
        self.expected = number + 1
        return True
