"""A sender and a receiver in memory, joined by a link that loses, doubles, delays and reorders.

The receiver is minimal: it keeps chunks in a dictionary and uses the real account of chunks.
Time is a number that jumps to the next event.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass

from proto.files.bounds import WINDOW_CHUNKS
from proto.files.errors import FileCode, RefusedError
from proto.files.messages import Offer, State, Status, encode_status
from proto.files.receiving import Receiving, Verdict
from proto.files.sending import Ask, Failure, Next, Sender


@dataclass
class Weather:
    """Faults and delays that the link applies to each message, in both directions."""

    loss: float = 0.0
    doubling: float = 0.0
    shortest_s: float = 0.01
    longest_s: float = 0.05
    away: Callable[[float], bool] = lambda now: False
    """Whether the link is down at this time, so that nothing arrives."""


class Receiver:
    """Receiver that keeps chunks in memory; a crash forgets all chunks beyond its prefix."""

    def __init__(self, offer: Offer) -> None:
        self.offer = offer
        self.account = Receiving(offer)
        self.written: dict[int, int] = {}
        self.done = False
        self.most_beyond = 0

    def ask(self, request: Next) -> bytes | RefusedError:
        """Answer one request."""
        if request.ask is Ask.WRITE:
            return self._write(request.index)
        if request.ask is Ask.CLOSE and self.account.complete:
            self.done = True
        state = State.DONE if self.done else State.OPEN
        beyond = self.account.beyond
        return encode_status(Status("a" * 32, state, self.account.prefix, beyond, name="f"))

    def _write(self, index: int) -> bytes | RefusedError:
        try:
            verdict = self.account.expect(index, self.offer.chunk_size(index))
        except RefusedError as error:
            return error
        if verdict is Verdict.WRITE:
            self.written[index] = self.written.get(index, 0) + 1
            self.account.wrote(index)
        self.most_beyond = max(self.most_beyond, len(self.account.beyond))
        assert self.most_beyond < WINDOW_CHUNKS
        return b""

    def crash(self) -> None:
        """Forget what a killed process would not remember."""
        self.account = Receiving(self.offer, self.account.prefix)


class Simulation:
    """One upload over a link.

    Attributes:
        now: current simulated time, in seconds.
        most_flying: largest number of requests that were under way at once.
    """

    def __init__(self, sender: Sender, receiver: Receiver, weather: Weather, seed: int) -> None:
        self.sender = sender
        self.receiver = receiver
        self.weather = weather
        self.now = 0.0
        self.most_flying = 0
        self.requests = 0
        self._random = random.Random(seed)
        self._happenings: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._open: set[int] = set()

    def at(self, time: float, what: Callable[[], None]) -> None:
        """Schedule an action for a later time."""
        heapq.heappush(self._happenings, (time, next(self._count), what))

    def run(self, until: float = 10**6) -> None:
        """Run until the sender is done or has failed, or until the given time."""
        while not self.sender.over and self.now < until:
            self._ask()
            timer = self.sender.next_timer()
            if self._happenings and (timer is None or self._happenings[0][0] <= timer):
                self.now, _, what = heapq.heappop(self._happenings)
                what()
            else:
                assert timer is not None, "nothing will ever happen again"
                assert timer > self.now, "the timer stands still"
                self.now = timer

    def _ask(self) -> None:
        while (request := self.sender.next_request(self.now)) is not None:
            self.requests += 1
            number = next(self._count)
            self._open.add(number)
            self.most_flying = max(self.most_flying, len(self._open))
            self._carry(lambda number=number, request=request: self._arrive(number, request))
            self.at(
                self.now + request.timeout_s,
                lambda number=number, request=request: self._time_out(number, request),
            )

    def _carry(self, deliver: Callable[[], None]) -> None:
        for _ in range(1 + (self._random.random() < self.weather.doubling)):
            if self._random.random() >= self.weather.loss:
                took = self._random.uniform(self.weather.shortest_s, self.weather.longest_s)
                self.at(self.now + took, deliver)

    def _arrive(self, number: int, request: Next) -> None:
        if self.weather.away(self.now):
            return
        answer = self.receiver.ask(request)
        self._carry(lambda: self._answer(number, request, answer))

    def _answer(self, number: int, request: Next, answer: bytes | RefusedError) -> None:
        if number not in self._open or self.weather.away(self.now):
            return
        self._open.discard(number)
        if isinstance(answer, bytes):
            self.sender.answered(request, answer, self.now)
        else:
            self.sender.failed(request, Failure(str(answer), int(answer.code)), self.now)

    def _time_out(self, number: int, request: Next) -> None:
        if number in self._open:
            self._open.discard(number)
            self.sender.failed(request, Failure("no answer"), self.now)


def offer_of(chunks: int, rest_bytes: int = 1) -> Offer:
    """Return an offer of a file with this number of chunks."""
    from proto.files.bounds import CHUNK_BYTES

    size = 0 if chunks == 0 else (chunks - 1) * CHUNK_BYTES + rest_bytes
    return Offer(size, "f", hashlib.sha256(b"").hexdigest())


REFUSED_FOR_GOOD = RefusedError(FileCode.NO_SPACE, "full")
