"""Tests of the receiver's account of chunks, and of the sender's pace."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from proto.files.bounds import (
    FIRST_TIMEOUT_S,
    MAX_TIMEOUT_S,
    MIN_TIMEOUT_S,
    SENDER_WINDOW_CHUNKS,
    WINDOW_CHUNKS,
)
from proto.files.errors import FileCode, RefusedError
from proto.files.messages import Offer
from proto.files.pace import Pace
from proto.files.receiving import Receiving, Verdict
from tests.proto.files.link import offer_of


class Account(RuleBasedStateMachine):
    """Chunks arrive, are written or dropped, and the receiver restarts, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.offer: Offer = offer_of(40)
        self.account = Receiving(self.offer)
        self.writing: list[int] = []
        self.written: set[int] = set()

    @rule(step=st.integers(-2, WINDOW_CHUNKS + 2))
    def comes(self, step: int) -> None:
        index = self.account.prefix + step
        try:
            verdict = self.account.expect(index, self.offer.chunk_size(index))
        except RefusedError as error:
            outside = not 0 <= step < WINDOW_CHUNKS
            assert outside or index in self.writing or index >= self.offer.chunks
            assert error.code in (FileCode.AHEAD, FileCode.BUSY, FileCode.BAD_REQUEST)
        else:
            assert (verdict is Verdict.HAD_ALREADY) == (index in self.written)
            if verdict is Verdict.WRITE:
                self.writing.append(index)

    @precondition(lambda self: self.writing)
    @rule(data=st.data(), works=st.booleans())
    def is_written(self, data: st.DataObject, works: bool) -> None:
        index = data.draw(st.sampled_from(self.writing))
        self.writing.remove(index)
        if works:
            self.written.add(index)
            before = self.account.prefix
            assert self.account.wrote(index) == (self.account.prefix > before)
        else:
            self.account.dropped(index)

    @rule()
    def restarts(self) -> None:
        self.account = Receiving(self.offer, self.account.prefix)
        self.writing.clear()
        self.written = set(range(self.account.prefix))

    @invariant()
    def holds(self) -> None:
        assert set(range(self.account.prefix)) | set(self.account.beyond) == self.written
        assert self.account.prefix not in self.written
        assert len(self.account.beyond) + self.account.writing <= WINDOW_CHUNKS
        assert self.account.complete == (len(self.written) == self.offer.chunks)


TestAccount = Account.TestCase


def test_chunks_without_a_number_follow_each_other() -> None:
    account = Receiving(offer_of(3))
    for index in range(3):
        assert account.next == index
        account.expect(account.next, account.offer.chunk_size(index))
    account.dropped(1)
    assert account.next == 1


def test_the_wait_follows_the_answers() -> None:
    pace = Pace(SENDER_WINDOW_CHUNKS)
    assert pace.timeout_s == FIRST_TIMEOUT_S
    for _ in range(50):
        pace.answered(0.01)
    assert pace.timeout_s == MIN_TIMEOUT_S and pace.window == SENDER_WINDOW_CHUNKS
    for _ in range(50):
        pace.answered(20.0)
    assert pace.timeout_s == pytest.approx(20.0, rel=0.2)
    pace.answered(None)
    assert pace.timeout_s == pytest.approx(20.0, rel=0.2)


def test_the_window_halves_once_for_what_was_lost_together() -> None:
    pace = Pace(8)
    for _ in range(10):
        pace.answered(0.1)
    for sent_at in (1.0, 1.1, 1.2):
        pace.lost(sent_at, now=6.0)
    assert pace.window == 4 and pace.timeout_s == 2 * MIN_TIMEOUT_S
    for now in range(10, 100, 10):
        pace.lost(now, now + 5)
    assert pace.window == 1 and pace.timeout_s == MAX_TIMEOUT_S
    pace.heard()
    assert pace.timeout_s == MIN_TIMEOUT_S
