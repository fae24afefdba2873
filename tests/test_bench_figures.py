"""Tests of the arithmetic of the bench: a benchmark that miscounts is worse than none."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from time import perf_counter_ns

import pytest

from proto.rmb.types_pb2 import Envelope
from tests.bench.bench import Bench
from tests.bench.envelopes import HEAD, Template, ping
from tests.bench.figures import Figure
from tests.bench.flows import Flow, Lane, Ledger
from tests.bench.measure import Latency

PAYLOAD_SIZE_BYTES = 256


@dataclass
class Sent:
    """Substitute for the socket that records what is sent."""

    bodies: list[bytes] = field(default_factory=list)

    def send(self, kind: object, body: bytearray) -> None:
        self.bodies.append(bytes(body))


def flow_of(ledger: Ledger, sent: Sent) -> Flow:
    template = Template(ledger.measurement, 7, 1001, 1002, PAYLOAD_SIZE_BYTES, now=1_700_000_000)
    flow = Flow(ledger, Lane(), template, sent)  # type: ignore[arg-type]
    ledger.flows.append(flow)
    return flow


def test_each_message_is_an_envelope_of_its_own() -> None:
    sent = Sent()
    flow = flow_of(Ledger(), sent)
    for _ in range(3):
        flow.send(perf_counter_ns())
    envelopes = [Envelope.FromString(body) for body in sent.bodies]
    assert len({envelope.uid for envelope in envelopes}) == 3
    assert all(len(envelope.plain) == PAYLOAD_SIZE_BYTES for envelope in envelopes)
    assert [HEAD.unpack_from(envelope.plain) for envelope in envelopes] == [
        (0, 7, number) for number in range(3)
    ]
    assert {(e.source.twin, e.destination.twin) for e in envelopes} == {(1001, 1002)}


def test_a_payload_too_small_to_be_told_from_an_error_envelope_is_refused() -> None:
    with pytest.raises(ValueError, match="payload_size_bytes"):
        Template(0, 0, 1, 2, 100, now=0)


@pytest.mark.parametrize(
    ("arrivals", "expected"),
    [
        pytest.param([0, 1, 2, 3], (4, 0, 0, 0), id="in order"),
        pytest.param([0, 1, 3], (3, 1, 0, 0), id="one lost in the middle"),
        pytest.param([0, 1, 2], (3, 1, 0, 0), id="one lost at the end"),
        pytest.param([0, 1, 1, 2, 3, 0], (4, 0, 2, 0), id="two doubled"),
        pytest.param([0, 2, 1, 3], (4, 0, 0, 1), id="one late"),
        pytest.param([3, 1, 1], (2, 2, 1, 1), id="everything at once"),
    ],
)
def test_the_account_of_four_messages(
    arrivals: list[int], expected: tuple[int, int, int, int]
) -> None:
    ledger = Ledger()
    flow = flow_of(ledger, Sent())
    for _ in range(4):
        flow.send(perf_counter_ns())
    for number in arrivals:
        flow.arrived(number)
    account = ledger.account()
    names = ("received", "lost", "duplicates", "out_of_order")
    assert tuple(account[name] for name in names) == expected
    assert account["sent"] == 4


def test_a_number_that_was_never_sent_is_an_error() -> None:
    flow = flow_of(Ledger(), Sent())
    flow.send(perf_counter_ns())
    with pytest.raises(ValueError, match="message 5"):
        flow.arrived(5)


def test_an_arrival_makes_room_for_another_message_only_while_running() -> None:
    ledger, sent = Ledger(), Sent()
    flow = flow_of(ledger, sent)
    ledger.running = True
    flow.send(perf_counter_ns())
    flow.arrived(0)
    assert len(sent.bodies) == 2
    ledger.running = False
    flow.arrived(1)
    assert len(sent.bodies) == 2


def test_a_ping_is_addressed_to_its_own_sender() -> None:
    envelope = Envelope.FromString(ping(1001, "b-1", now=1_700_000_000))
    assert envelope.HasField("ping")
    assert envelope.source == envelope.destination


def test_percentiles_of_a_histogram() -> None:
    counts = Counter({value: 1 for value in range(1, 1001)})
    latency = Latency.of(counts)
    assert (latency.p50_us, latency.p99_us, latency.p999_us) == (500, 990, 999)
    assert Latency.of(Counter()) == Latency(0, 0, 0)


@pytest.mark.parametrize(
    ("figure", "verdict"),
    [
        (Figure("rate", 1.7, must=1.3, goal=1.6), "goal"),
        (Figure("rate", 1.4, must=1.3, goal=1.6), "met"),
        (Figure("rate", 1.2, must=1.3, goal=1.6), "MISSED"),
        (Figure("p99", 0.9, must=1.0, lower_is_better=True), "met"),
        (Figure("p99", 1.1, must=1.0, lower_is_better=True), "MISSED"),
        (Figure("rate", 1.2), ""),
    ],
)
def test_verdicts(figure: Figure, verdict: str) -> None:
    assert figure.verdict == verdict


def test_a_row_bounds_its_events_unless_they_were_chosen() -> None:
    assert Bench().events_at_most(1_000_000) == 1_000_000
    assert Bench(events=500_000).events_at_most(1_000_000) == 500_000
    assert Bench(events=5_000_000, events_given=True).events_at_most(1_000_000) == 5_000_000
