"""The messages that the monitor sees, from the subscription to the judge.

Messages that arrive faster than they can be judged are dropped and counted: a flood of forgeries
takes bounded memory and one core, and does not affect other programs.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from typing import Final, NamedTuple

from lattice.monitor.judge import Finding, Judge
from lattice.recording import Events
from proto.lattice.errors import FormatError, Reason
from proto.lattice.messages import Invocation
from proto.lattice.recording import OK, EventKind, Shape
from proto.lattice.subjects import SubjectKind, parse_rpc_subject

MAX_WAITING: Final = 20_000
MAX_WAITING_BYTES: Final = 64 * 2**20
SLICE_S: Final = 0.005
"""Seconds for which messages are judged before the event loop runs other tasks."""
MAX_KEPT: Final = 500
"""Maximum number of findings between two reports; further ones are merged into one for each reason,
with a count."""


class _Seen(NamedTuple):
    subject: str
    data: bytes
    at: float


class Watch:
    """Queues messages, and judges them one after another.

    Attributes:
        seen, judged, unjudged: numbers of messages since the start; unjudged ones were dropped.
        unknown_payloads: number judged without their payload, which is in the object store.
        by_reason: number of findings since the start, by reason.

    Args:
        judge: judge of the messages.
        prefix: prefix of the subjects under which an account exports them; empty: no prefix.
        events: events to which each judged message is added; None: they are not recorded.
    """

    def __init__(self, judge: Judge, prefix: str = "", events: Events | None = None) -> None:
        self.seen = self.judged = self.unjudged = self.unknown_payloads = 0
        self.by_reason: Counter[str] = Counter()
        self._judge = judge
        self._events = events
        self._prefix = f"{prefix}." if prefix else ""
        self._waiting: deque[_Seen] = deque()
        self._bytes = 0
        self._some = asyncio.Event()
        self._findings: list[Finding] = []
        self._beyond: Counter[Reason] = Counter()

    def take(self, subject: str, data: bytes) -> None:
        """Queue a message to be judged, or drop it if the queue is full."""
        subject = subject.removeprefix(self._prefix)
        try:
            if parse_rpc_subject(subject).kind is not SubjectKind.CALL:
                return
        except FormatError:
            pass  # not skipped: calls on such a subject are judged as wrong
        self.seen += 1
        if len(self._waiting) >= MAX_WAITING or self._bytes + len(data) > MAX_WAITING_BYTES:
            self.unjudged += 1
            return
        self._waiting.append(_Seen(subject, data, time.time()))
        self._bytes += len(data)
        self._some.set()

    async def keep(self) -> None:
        """Judge messages until cancelled."""
        while True:
            await self._some.wait()
            until_s = time.perf_counter() + SLICE_S
            while self._waiting and time.perf_counter() < until_s:
                self._judge_one(self._waiting.popleft())
            if not self._waiting:
                self._some.clear()
            await asyncio.sleep(0)

    def take_findings(self) -> list[Finding]:
        """Return the findings since the last call: at most `MAX_KEPT`, plus one for each reason."""
        found, self._findings = self._findings, []
        beyond, self._beyond = self._beyond, Counter()
        now = time.time()
        for reason, count in beyond.items():
            text = f"{count:,} more that are not listed one by one"
            found.append(Finding(reason, text, now, "", 0, count=count))
        return found

    def _judge_one(self, seen: _Seen) -> None:
        self._bytes -= len(seen.data)
        self.judged += 1
        invocation, finding = self._judge.judge(seen.subject, seen.data, seen.at)
        if invocation is not None and invocation.moved:
            self.unknown_payloads += 1
        if self._events is not None:
            shape = _shape(invocation, OK if finding is None else finding.reason)
            message_id = "" if invocation is None else invocation.id
            self._events.add(shape, seen.at, message_id, len(seen.data))
        if finding is not None:
            self.by_reason[finding.reason] += 1
            if len(self._findings) < MAX_KEPT:
                self._findings.append(finding)
            else:
                self._beyond[finding.reason] += 1


def _shape(invocation: Invocation | None, reason: str) -> Shape:
    if invocation is None:
        return Shape(EventKind.SEEN, reason=reason)
    origin, target = invocation.origin, invocation.target
    provider = origin if target.is_actor else target
    return Shape(
        EventKind.SEEN,
        origin.public_key,
        target.public_key,
        provider.link_name,
        provider.contract_id,
        invocation.operation,
        invocation.host_id,
        reason,
    )
