"""The series of the history: their names, how they are shown, and how they are rolled up.

This list is fixed, so a year of history has a bounded size: no series is ever created from names
that clients or partner relays choose. Reasons are those of `proto.rmb.reasons`.

A second has one value of each series, or none: no latency without a message. Seconds are combined
into minutes and minutes into hours by the series' roll-up. So the p50 of an hour is the mean of
those of its busy seconds, and the p99 the worst of them: a quantile of quantiles would look exact
and be neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from proto.rmb.reasons import MESSAGES, MessageReason


class Kind(StrEnum):
    """How a value is formatted."""

    RATE = "rate"
    BYTES = "bytes"
    NUMBER = "number"
    DURATION = "duration"
    RATIO = "ratio"


class RollUp(StrEnum):
    """How several values are combined into one."""

    MEAN = "mean"
    MAX = "max"
    LAST = "last"


class Series(NamedTuple):
    """One series.

    Attributes:
        number: number under which it is stored; never reused, not even after the series is removed.
        key: name by which pages and programs request it.
        unit: unit of the values; durations are in seconds, ratios from 0 to 1.
        help: description of the values, in one sentence.
    """

    number: int
    key: str
    title: str
    unit: str
    kind: Kind
    roll_up: RollUp
    help: str


_RATE, _BYTES, _NUMBER, _DURATION, _RATIO = Kind
_MEAN, _MAX, _LAST = RollUp

_FIRST_DROP: Final = 64
DROP_REASONS: Final = (
    MessageReason.UNPARSABLE,
    MessageReason.EMPTY,
    MessageReason.TEXT_FRAME,
    MessageReason.TOO_LARGE,
    MessageReason.WRONG_SOURCE,
    MessageReason.MISSING_DESTINATION,
    MessageReason.UNKNOWN_TWIN,
    MessageReason.NO_RELAY,
    MessageReason.OFFLINE_FAILFAST,
    MessageReason.LIMIT_COUNT,
    MessageReason.LIMIT_SIZE,
    MessageReason.BANNED,
    MessageReason.QUEUE_FULL,
    MessageReason.SOURCE_SHARE,
    MessageReason.STORAGE_FULL,
    MessageReason.EXPIRED,
    MessageReason.QUEUE_EXPIRED,
    MessageReason.BAD_SIGNATURE,
    MessageReason.NOT_HERE,
    MessageReason.REMOTE_4XX,
    MessageReason.REMOTE_5XX,
    MessageReason.REMOTE_TIMEOUT,
    MessageReason.OUTBOX_FULL,
    MessageReason.PURGED,
    MessageReason.LOOK_UP_FAILED,
    MessageReason.NO_USABLE_RELAY,
    MessageReason.SOURCE_FULL,
    MessageReason.TWIN_FULL,
)
"""Reasons that have a series each, numbered by their position here: add new ones at the end."""


def drops(reason: str) -> str:
    """Return the key of the series of messages that ended undelivered for a reason."""
    return f"drops_{reason}"


SERIES: Final[tuple[Series, ...]] = (
    *(
        Series(*line)
        for line in (
            (1, "messages_in", "Messages in", "msg/s", _RATE, _MEAN,
             "Messages received from sessions."),
            (2, "messages_out", "Messages out", "msg/s", _RATE, _MEAN,
             "Messages written to sessions."),
            (3, "bytes_in", "Bytes in", "B/s", _BYTES, _MEAN,
             "Bytes of messages received from sessions."),
            (4, "bytes_out", "Bytes out", "B/s", _BYTES, _MEAN,
             "Bytes of messages written to sessions."),
            (5, "sessions", "Sessions", "", _NUMBER, _MEAN,
             "Sessions held by all workers, of RMB and SBD."),
            (6, "queued", "Queued", "msg/s", _RATE, _MEAN,
             "Messages committed to wait in a queue."),
            (7, "waiting", "Waiting", "", _NUMBER, _MAX,
             "Messages in all queues, counted every 30 s."),
            (8, "commit_p50", "Commit latency, p50", "s", _DURATION, _MEAN,
             "Time from a group commit to its answer, median."),
            (9, "commit_p99", "Commit latency, p99", "s", _DURATION, _MAX,
             "Time from a group commit to its answer, 99th percentile."),
            (10, "delivery_p50", "Delivery latency, p50", "s", _DURATION, _MEAN,
             "Time from a message to the socket of a receiver that reads fast enough, median."),
            (11, "delivery_p99", "Delivery latency, p99", "s", _DURATION, _MAX,
             ("Time from a message to the socket of a receiver that reads fast enough, "
                 "99th percentile.")),
            (12, "federation_out", "To partner relays", "msg/s", _RATE, _MEAN,
             "Messages of sessions handed to federation."),
            (13, "federation_in", "From partner relays", "msg/s", _RATE, _MEAN,
             "Messages accepted from partner relays."),
            (14, "federation_success", "Federation success", "", _RATIO, _MEAN,
             "Share of delivery attempts to partner relays that succeeded."),
            (15, "federation_p50", "Federation latency, p50", "s", _DURATION, _MEAN,
             "Time from the outbox to the partner relay, median."),
            (16, "federation_p99", "Federation latency, p99", "s", _DURATION, _MAX,
             "Time from the outbox to the partner relay, 99th percentile."),
            (17, "outbox", "Outbox", "", _NUMBER, _MAX,
             "Messages that wait for partner relays."),
            (18, "dead_letters", "Dead letters", "", _NUMBER, _LAST,
             "Messages for partner relays that failed permanently and are still kept."),
            (19, "limit_hits", "Limit hits", "1/s", _RATE, _MEAN,
             "Windows in which a twin exceeded its limit."),
            (20, "chain_lag", "Chain lag", "blocks", _NUMBER, _MAX,
             "Blocks that are announced and not processed yet."),
            (21, "redis_memory", "Redis memory", "B", _BYTES, _LAST, "Memory that Redis uses."),
            (22, "loop_lag", "Loop lag", "s", _DURATION, _MAX,
             "Longest delay of an event loop of all workers."),
            (23, "workers", "Workers", "", _NUMBER, _LAST, "Relay workers with a heartbeat."),
            (24, "drops", "Drops", "msg/s", _RATE, _MEAN,
             "Messages that ended undelivered, for any reason."),
        )
    ),
    *(
        Series(_FIRST_DROP + place, drops(reason), f"Drops: {reason.replace('_', ' ')}", "msg/s",
               _RATE, _MEAN, f"Messages that ended undelivered: {MESSAGES[reason]}.")
        for place, reason in enumerate(DROP_REASONS)
    ),
)  # fmt: skip

BY_KEY: Final = {each.key: each for each in SERIES}
BY_NUMBER: Final = {each.number: each for each in SERIES}


def roll_up(series: Series, values: Sequence[float]) -> float:
    """Combine consecutive values, at least one, into one value."""
    if series.roll_up is RollUp.MAX:
        return max(values)
    if series.roll_up is RollUp.LAST:
        return values[-1]
    return sum(values) / len(values)
