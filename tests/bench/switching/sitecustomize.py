"""Switch a worker's recorder off and on; Python imports this if its folder is on PYTHONPATH.

The cost of a message for a worker drifts by a half within seconds on a shared machine, so a relay
with the recorder and one without cannot be distinguished by a few per cent. Within one worker, they
can, from one slice of a second to the next. A slice is much longer than the recorder's delay. Each
slice is written to BENCH_SWITCHED as a line: whether the recorder was on, CPU microseconds of the
loop's thread for a message, number of messages. The product does not refer to this module.
"""

from __future__ import annotations

import json
import os
import time
from functools import partial
from typing import Any

SLICE_S = 0.3
LEAST_MESSAGES = 1_000


def watch() -> None:
    """Wait for a worker that records events, and switch its recorder from then on."""
    from relay.sessions.worker import Worker

    record = Worker.record

    def recorded(worker: Any, recorder: Any) -> None:
        record(worker, recorder)
        if worker.recording and not hasattr(worker, "switched"):
            worker.switched = True
            worker.loop.call_later(SLICE_S, _turn(worker, partial(record, worker), recorder))

    Worker.record = recorded  # type: ignore[method-assign]


def _turn(worker: Any, record: Any, recorder: Any) -> Any:
    from relay.sessions.recorder import Recorder

    on, cpu_s, messages = True, time.thread_time(), worker.metrics.tx
    out = open(os.environ["BENCH_SWITCHED"], "a", buffering=1)  # noqa: SIM115

    def turn() -> None:
        nonlocal on, cpu_s, messages
        count = worker.metrics.tx - messages
        if count >= LEAST_MESSAGES:
            spent_us = (time.thread_time() - cpu_s) / count * 1e6
            out.write(json.dumps([on, spent_us, count]) + "\n")
        on = not on
        record(recorder if on else Recorder())
        cpu_s, messages = time.thread_time(), worker.metrics.tx
        worker.loop.call_later(SLICE_S, turn)

    return turn


if "BENCH_SWITCHED" in os.environ:
    watch()
