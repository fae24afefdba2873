"""Tests of the ledger: it must notice each broken promise, else the fault tests prove nothing."""

from __future__ import annotations

import pytest

from proto.rmb import types_pb2 as pb
from tests.support.ledger import Ledger, ReceiverConnection, SenderConnection

HERE = (7, None)


def _send(sender: SenderConnection, count: int) -> list[bytes]:
    return [
        pb.Envelope(plain=sender.next_payload(HERE, 40)).SerializeToString() for _ in range(count)
    ]


def _take(receiver: ReceiverConnection, messages: list[bytes]) -> None:
    for message in messages:
        receiver.take(message)


def test_accepts_what_is_promised() -> None:
    ledger = Ledger()
    one, two = ledger.sender(), ledger.sender()
    first, second = _send(one, 3), _send(two, 2)
    one.confirm(3)
    two.confirm(1)
    _take(ledger.receiver(HERE), [first[0], second[0], first[1]])
    _take(ledger.receiver(HERE), [first[2]])
    ledger.check()


def test_notices_loss() -> None:
    ledger = Ledger()
    sender = ledger.sender()
    messages = _send(sender, 3)
    sender.confirm(2)
    _take(ledger.receiver(HERE), messages[:1])
    with pytest.raises(AssertionError, match="1 stored messages lost"):
        ledger.check()
    sender.refuse(pb.Envelope.FromString(messages[1]).plain)
    ledger.check()


def test_notices_a_hole_before_an_unconfirmed_message() -> None:
    ledger = Ledger()
    messages = _send(ledger.sender(), 3)
    _take(ledger.receiver(HERE), [messages[0], messages[2]])
    with pytest.raises(AssertionError, match="1 stored messages lost"):
        ledger.check()


def test_notices_duplicates_over_connections() -> None:
    ledger = Ledger()
    messages = _send(ledger.sender(), 3)
    _take(ledger.receiver(HERE), messages)
    _take(ledger.receiver(HERE), messages[2:])
    ledger.check(allow_duplicates=True)
    with pytest.raises(AssertionError, match="1 came twice"):
        ledger.check()


def test_notices_wrong_order() -> None:
    ledger = Ledger()
    messages = _send(ledger.sender(), 3)
    _take(ledger.receiver(HERE), [messages[1]])
    _take(ledger.receiver(HERE), [messages[0]])
    with pytest.raises(AssertionError, match="came after"):
        ledger.check()


def test_notices_strangers_and_wrong_addressees() -> None:
    ledger = Ledger()
    messages = _send(ledger.sender(), 1)
    _take(ledger.receiver((8, None)), messages)
    with pytest.raises(AssertionError, match="came to"):
        ledger.check()
    other = Ledger()
    other.sender()
    _take(other.receiver(HERE), messages)
    with pytest.raises(AssertionError, match="never sent"):
        other.check()


def test_connections_of_one_generation_are_ordered_by_what_they_got() -> None:
    ledger = Ledger()
    messages = _send(ledger.sender(), 4)
    _take(ledger.receiver(HERE, generation=1), messages[2:])
    _take(ledger.receiver(HERE, generation=1), messages[:2])
    ledger.check()
    _take(ledger.receiver(HERE, generation=0), _send(ledger.sender(), 1))
    ledger.check()
    ledger.receivers[0].generation = 0
    with pytest.raises(AssertionError, match="came after"):
        ledger.check()
