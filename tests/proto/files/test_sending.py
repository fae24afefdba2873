"""Tests of the sender and a receiver in memory, over links that lose, double, delay and reorder."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proto.files.bounds import (
    CHUNK_BYTES,
    MAX_PAUSE_S,
    MAX_TIMEOUT_S,
    OFFER_TIMEOUT_S,
    SENDER_WINDOW_CHUNKS,
    STALL_S,
)
from proto.files.errors import FileCode, RefusedError
from proto.files.messages import State, Status, encode_status
from proto.files.sending import Ask, Failure, Next, Phase, Sender
from proto.rmb.errors import CODE_OTHER
from tests.proto.files.link import Receiver, Simulation, Weather, offer_of

# Share of messages lost in each direction, and the longest delay in seconds. With more than a tenth
# lost in each direction, about one run in some thousands makes no progress for ten minutes by
# chance, and the sender gives up.
LINKS = [(loss, longest_s) for loss in (0.0, 0.01, 0.1) for longest_s in (0.01, 0.5, 8.0)]


def simulation(chunks: int, weather: Weather, seed: int = 0) -> Simulation:
    offer = offer_of(chunks)
    return Simulation(Sender(offer, 0.0), Receiver(offer), weather, seed)


def open_status(have: int, *beyond: int) -> bytes:
    return encode_status(Status("a" * 32, State.OPEN, have, beyond))


@given(
    chunks=st.integers(0, 60),
    link=st.sampled_from(LINKS),
    doubling=st.sampled_from([0.0, 0.2]),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=150, deadline=None)
def test_every_chunk_arrives_whatever_the_link_does(
    chunks: int, link: tuple[float, float], doubling: float, seed: int
) -> None:
    loss, longest_s = link
    run = simulation(chunks, Weather(loss, doubling, 0.01, longest_s), seed)
    run.run()
    assert run.sender.phase is Phase.DONE, run.sender.error
    assert run.receiver.written == dict.fromkeys(range(chunks), 1)
    assert run.most_flying <= SENDER_WINDOW_CHUNKS + 1
    assert run.sender.acknowledged_bytes == run.sender.offer.size_bytes


@given(
    chunks=st.integers(1, 60),
    crashes=st.lists(st.floats(0, 30), max_size=8),
    loss=st.sampled_from([0.02, 0.1]),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=100, deadline=None)
def test_a_receiver_may_crash_at_any_time(
    chunks: int, crashes: list[float], loss: float, seed: int
) -> None:
    run = simulation(chunks, Weather(loss, 0.1, 0.01, 0.5), seed)
    for time in crashes:
        run.at(time, run.receiver.crash)
    run.run()
    assert run.sender.phase is Phase.DONE, run.sender.error
    assert set(run.receiver.written) == set(range(chunks))


def test_chunks_behind_a_gap_that_a_crash_forgot_are_sent_again() -> None:
    """The sender repeats acknowledged chunks when a refusal shows that the receiver lost them."""
    run = simulation(40, Weather(shortest_s=0.05, longest_s=0.05))
    lost: list[float] = []
    ask = run.receiver.ask

    def without_the_first(request: Next) -> bytes | RefusedError:
        if request.ask is Ask.WRITE and request.index == 5 and not lost:
            lost.append(run.now)
            run.at(run.now + 4.0, run.receiver.crash)  # when the whole window has arrived
            return RefusedError(FileCode.BUSY, "lost")
        if request.ask is Ask.WRITE and request.index == 5 and run.now < lost[0] + 4.0:
            return RefusedError(FileCode.BUSY, "lost once more")
        return ask(request)

    run.receiver.ask = without_the_first  # type: ignore[method-assign]
    run.run()
    assert run.sender.phase is Phase.DONE, run.sender.error
    assert run.now < 20
    assert 2 in run.receiver.written.values()  # some are written before the crash and after it


def test_on_a_good_link_nothing_is_sent_twice_and_the_window_is_filled() -> None:
    run = simulation(100, Weather(shortest_s=0.05, longest_s=0.05))
    run.run()
    assert run.requests == 100 + 2
    assert run.most_flying == SENDER_WINDOW_CHUNKS
    # Each answer lets two or more chunks go out, so this is much faster than one chunk at a time.
    assert run.now < 100 * 0.1 / 4


def test_while_the_receiver_is_away_only_small_offers_are_sent() -> None:
    run = simulation(400, Weather(shortest_s=0.05, longest_s=0.05, away=lambda now: 1 < now < 301))
    before: list[int] = []
    asked: list[Ask] = []
    next_request = run.sender.next_request

    def watched(now: float) -> object:
        request = next_request(now)
        if request is not None and 1 < now < 301:
            (before if request.ask is Ask.WRITE else asked).append(1)
        return request

    run.sender.next_request = watched  # type: ignore[method-assign, assignment]
    run.run()
    assert run.sender.phase is Phase.DONE
    assert len(before) <= SENDER_WINDOW_CHUNKS, "data was sent into the void"
    assert len(asked) >= 3
    # The sender soon notices that the receiver is back.
    assert run.now < 301 + MAX_PAUSE_S + MAX_TIMEOUT_S + 10


def test_it_gives_up_after_a_long_silence_and_says_why() -> None:
    run = simulation(3, Weather(away=lambda now: True))
    run.run()
    assert run.sender.phase is Phase.FAILED
    assert run.sender.error == Failure("no answer")
    assert STALL_S <= run.now < STALL_S + MAX_PAUSE_S + MAX_TIMEOUT_S


def test_a_receiver_that_answers_but_takes_nothing_does_not_hold_it_for_ever() -> None:
    offer = offer_of(3)

    class Busy(Receiver):
        def _write(self, index: int) -> bytes | RefusedError:
            return RefusedError(FileCode.BUSY, "not now")

    class Forgets(Receiver):
        def _write(self, index: int) -> bytes | RefusedError:
            return RefusedError(FileCode.UNKNOWN, "what upload?")

    class NeverDone(Receiver):
        def ask(self, request: object) -> bytes:
            return open_status(3)

    for receiver in (Busy(offer), Forgets(offer), NeverDone(offer)):
        run = Simulation(Sender(offer, 0.0), receiver, Weather(), 0)
        run.run()
        assert run.sender.phase is Phase.FAILED
        assert run.now < 2 * STALL_S
        assert run.requests < 5_000


@pytest.mark.parametrize(
    "code", [FileCode.NOT_ALLOWED, FileCode.EXISTS, FileCode.TOO_LARGE, FileCode.NO_SPACE, 104]
)
def test_a_refusal_ends_it_at_once(code: int) -> None:
    sender = Sender(offer_of(3), 0.0)
    request = sender.next_request(0.0)
    assert request is not None and request.ask is Ask.NEGOTIATE
    sender.failed(request, Failure("no", code), 1.0)
    assert sender.phase is Phase.FAILED
    assert sender.error == Failure("no", code)
    assert sender.next_request(2.0) is None and sender.next_timer() is None


def test_a_wrong_checksum_is_tried_once_more_from_the_start() -> None:
    sender = Sender(offer_of(1), 0.0)
    for attempt in (1, 2):
        now = 100.0 * attempt
        for ask in (Ask.NEGOTIATE, Ask.WRITE):
            request = sender.next_request(now)
            assert request is not None and request.ask is ask
            sender.answered(request, open_status(0) if ask is Ask.NEGOTIATE else b"", now)
        close = sender.next_request(now)
        assert close is not None and close.ask is Ask.CLOSE
        sender.failed(close, Failure("checksum", FileCode.CHECKSUM), now)
        assert sender.phase is (Phase.NEGOTIATING if attempt == 1 else Phase.FAILED)


def test_an_upload_goes_on_where_the_receiver_is() -> None:
    sender = Sender(offer_of(10), 0.0)
    request = sender.next_request(0.0)
    assert request is not None
    sender.answered(request, open_status(4, 6), 0.1)
    assert sender.resumed_chunks == 5
    assert sender.acknowledged_bytes == 5 * CHUNK_BYTES
    indexes = []
    while (request := sender.next_request(0.2)) is not None:
        indexes.append(request.index)
    assert indexes == [4, 5]
    assert sender.repeated_chunks == 0


def test_a_receiver_that_is_done_gets_nothing_more() -> None:
    sender = Sender(offer_of(10), 0.0)
    request = sender.next_request(0.0)
    assert request is not None and request.timeout_s == OFFER_TIMEOUT_S
    sender.answered(request, encode_status(Status("a" * 32, State.DONE, 10, name="there")), 0.1)
    assert (sender.phase, sender.name) == (Phase.DONE, "there")


def test_an_empty_answer_is_that_of_a_receiver_without_numbers() -> None:
    sender = Sender(offer_of(10), 0.0)
    request = sender.next_request(0.0)
    assert request is not None
    sender.answered(request, b"", 0.1)
    assert (sender.phase, sender.next_request(0.2), sender.next_timer()) == (
        Phase.PLAIN,
        None,
        None,
    )


def test_a_status_is_never_followed_by_an_empty_answer() -> None:
    sender = Sender(offer_of(10), 0.0)
    request = sender.next_request(0.0)
    assert request is not None
    sender.answered(request, open_status(3), 0.1)
    sender.answered(request, b"", 0.2)
    assert sender.phase is Phase.FAILED


@pytest.mark.parametrize("payload", [b"{}", b"[]", open_status(11), b'"id"'])
def test_an_answer_of_another_protocol_ends_it(payload: bytes) -> None:
    sender = Sender(offer_of(10), 0.0)
    request = sender.next_request(0.0)
    assert request is not None
    sender.answered(request, payload, 0.1)
    assert sender.phase is Phase.FAILED and sender.error is not None
    assert sender.error.message


def test_a_relay_that_says_no_for_good_ends_it() -> None:
    sender = Sender(offer_of(10), 0.0)
    request = sender.next_request(0.0)
    assert request is not None
    sender.failed(request, Failure("unknown twin destination", final=True), 0.1)
    assert sender.phase is Phase.FAILED


def test_it_can_be_stopped() -> None:
    sender = Sender(offer_of(10), 0.0)
    sender.stop("cancelled")
    sender.stop("again")
    assert sender.error == Failure("cancelled")


def test_an_offer_waits_no_longer_than_the_sender() -> None:
    sender = Sender(offer_of(1), 0.0, stall_s=3.0)
    asked = sender.next_request(0.0)
    assert asked is not None and asked == Next(Ask.NEGOTIATE, 3.0)
    sender.failed(asked, Failure("nothing came"), 3.0)
    assert sender.phase is Phase.FAILED


def test_a_receiver_without_uploads_is_told() -> None:
    sender = Sender(offer_of(1), 0.0)
    asked = sender.next_request(0.0)
    assert asked is not None
    sender.failed(asked, Failure("unknown command: file.negotiate", CODE_OTHER), 1.0)
    assert sender.error is not None
    assert sender.error.message == "no uploads are taken there: unknown command: file.negotiate"
