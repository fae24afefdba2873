"""Reading request bodies: their bounds, the shared budget, and early ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.federation.answers import InboundReason
from proto.rmb.reasons import MessageReason
from proto.websocket.bounds import PartialBudget
from relay.federation.inbound_body import BodyError, read_body

END = {"type": "http.disconnect"}


class Events:
    """A server that delivers a body in these parts."""

    def __init__(self, parts: list[bytes], *, ends: bool = True) -> None:
        self.left = len(parts)
        self._events = self._make(parts, ends)

    def _make(self, parts: list[bytes], ends: bool) -> Iterator[dict[str, Any]]:
        for part in parts:
            self.left -= 1
            more = self.left > 0 or not ends
            yield {"type": "http.request", "body": part, "more_body": more}
        while True:
            yield END

    async def __call__(self) -> dict[str, Any]:
        return next(self._events)


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=8))
async def test_a_body_is_its_parts(parts: list[bytes]) -> None:
    whole, budget = b"".join(parts), PartialBudget(1000)
    assert await read_body(Events(parts), b"", len(whole), budget) == whole
    assert budget.used_bytes == 0
    if whole:
        with pytest.raises(BodyError) as error:
            await read_body(Events(parts), b"", len(whole) - 1, budget)
        assert error.value.answer is not None and error.value.answer.status == 413
        assert budget.used_bytes == 0


async def test_a_large_announcement_is_enough() -> None:
    events = Events([b"x"])
    with pytest.raises(BodyError) as error:
        await read_body(events, b"11", 10, PartialBudget(1000))
    assert error.value.reason is MessageReason.TOO_LARGE
    assert events.left == 1, "nothing was read"


async def test_a_budget_for_all() -> None:
    budget = PartialBudget(10)
    with pytest.raises(BodyError) as error:
        await read_body(Events([b"x" * 6] * 3), b"", 100, budget)
    assert error.value.reason is InboundReason.BODIES_FULL
    assert (budget.used_bytes, budget.refused) == (0, 1)


async def test_an_early_end_is_answered_to_nobody() -> None:
    for parts in ([], [b"x"]):
        with pytest.raises(BodyError) as error:
            await read_body(Events(parts, ends=False), b"", 100, PartialBudget(1000))
        assert (error.value.answer, error.value.reason) == (None, InboundReason.BODY_ENDED)
