"""Tracing in relay workers and federation's drainers, which read the orders within a second.

Nothing here imports Django, because every message passes this code.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError

from proto.rmb.address import from_message
from proto.rmb.reasons import MessageReason
from proto.rmb.types_pb2 import Envelope
from redispipe.pipe import RedisPipe
from relay.queues import keys
from relay.sessions.recorder import Recorder, Recorders
from relay.trace.events import Stage
from relay.trace.recorder import TraceRecorder
from relay.trace.tracer import Message, Tracer

if TYPE_CHECKING:
    from relay.federation.lane import Entry
    from relay.sessions.worker import Worker

FIELD_PREFIX: Final = "trace:"
"""Prefix of the fields of `relay:control` that are orders."""


class WorkerTrace:
    """Tracing of messages in one relay worker."""

    def __init__(self, worker: Worker, here: str) -> None:
        """Initialise tracing.

        Args:
            worker: worker that is notified of orders by its control state.
            here: name of this relay.
        """
        self._worker = worker
        self._untraced = worker.recorder  # the recorder without traces
        self._traced: Recorder
        self.tracer = Tracer(
            worker.commit.submit,
            lambda: worker.commit.pipe.usable,
            worker.wall_s,
            f"worker {worker.options.slot}/{worker.boot_id}",
            here,
            self._changed,
        )
        self._recorder = TraceRecorder(worker, self.tracer)
        self._traced = (
            Recorders(self._untraced, self._recorder) if worker.recording else self._recorder
        )
        worker.on_traces = self.tracer.put

    def _changed(self) -> None:
        on = self.tracer.on
        self._worker.record(self._traced if on else self._untraced)
        if not on:
            self._recorder.clear()

    def figures(self) -> dict[str, float]:
        """Return the figures for the metrics."""
        tracer = self.tracer
        return {
            "relay_trace_on": float(tracer.on),
            "relay_trace_events_total": tracer.events,
            "relay_trace_skipped_total": tracer.skipped,
            "relay_trace_lost_total": tracer.lost,
        }


class DrainerTrace:
    """Tracing of messages in the drainers of one process."""

    def __init__(self, pipe: RedisPipe, clock: Callable[[], float], here: str) -> None:
        self._pipe = pipe
        self._clock = clock
        self._version: Any = None
        by = f"federation {socket.gethostname()}/{os.getpid()}"
        self._tracer = Tracer(pipe.submit, lambda: pipe.usable, clock, by, here)

    @property
    def on(self) -> bool:
        """Whether any order is in force; if not, the methods below need not be called."""
        return self._tracer.on

    async def refresh(self) -> None:
        """Read the orders if they may have changed.

        Raises:
            LinkLost: Redis does not answer.
        """
        version = await self._pipe.call("HGET", keys.CONTROL, "version")
        if version == self._version:
            return
        reply = await self._pipe.call("HGETALL", keys.CONTROL)
        prefix = FIELD_PREFIX.encode()
        self._tracer.put(
            {
                name.removeprefix(prefix).decode(): value.decode()
                for name, value in zip(reply[::2], reply[1::2], strict=True)
                if name.startswith(prefix)
            }
        )
        self._version = version

    def flush(self) -> None:
        """Write the recorded events."""
        self._tracer.flush()

    def tried(
        self, entries: Sequence[Entry], relay: str, answers: Sequence[str], started: float
    ) -> None:
        """Record that messages were sent to a partner relay, with the answer for each."""
        ms = (self._clock() - started) * 1000
        for entry, answer in zip(entries, answers, strict=True):
            message = self._message(entry.payload)
            if message is not None:
                self._tracer.note(
                    message,
                    Stage.TRIED,
                    at=started,
                    entry=entry.id.decode(),
                    relay=relay,
                    answer=answer,
                    ms=ms,
                )

    def ended(
        self, entry: Entry, payload: bytes, reason: MessageReason | None, notified: bool
    ) -> None:
        """Record that a message left the outbox undelivered; without a reason, to a queue here."""
        message = self._message(payload)
        if message is None:
            return
        note, entry_id = self._tracer.note, entry.id.decode()
        if reason is None:
            note(message, Stage.MOVED, entry=entry_id)
            return
        if reason is MessageReason.EXPIRED:
            note(message, Stage.EXPIRED, entry=entry_id, reason=reason)
        note(message, Stage.GIVEN_UP, entry=entry_id, reason=reason)
        if notified:
            note(message, Stage.NOTIFIED, reason=reason)

    def _message(self, payload: bytes | None) -> Message | None:
        if payload is None:
            return None
        try:
            envelope = Envelope.FromString(payload)
        except DecodeError:
            return None
        source, destination = from_message(envelope.source), from_message(envelope.destination)
        if not self._tracer.concerns(source[0], destination[0], envelope):
            return None
        return self._tracer.message(source, destination, envelope, len(payload))
