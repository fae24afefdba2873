"""Delivery audit: what became of each message that a relay accepted.

A message is all rows with one uid: rows of kinds `accepted`, `delivered` and `dropped`, and rows of
kind `federated_out` with the reason `none` whose partner relay does not record here, that is, has
no row of any kind on that day. A message belongs to the day and the relay of its first accepted row
(at equal times, the first relay by name).

    period            day of the first accepted row; for a message without one, day of its first row
    relay             relay of the first accepted row, "" if the row names none; null: all messages
                      without an accepted row (for example refused ones)
    uids              messages
    accepted          accepted rows
    delivered_once    messages with one delivered row
    duplicated        messages with more than one delivered row
    extra_deliveries  delivered rows after the first one of each message
    late              messages whose smallest latency in their delivered rows is over 60 s
    dropped           messages with a dropped row
    expired           messages with a dropped row of the reason `expired` or `queue_expired`
    conflicting       messages with both delivered and dropped rows
    handed_over       messages without delivered and dropped rows that a partner relay which does
                      not record here accepted
    in_flight         messages without any of these ends, accepted less than a lifetime before the
                      newest event
    in_gap            older messages without any of these ends, which lived while a recorder lost
                      rows: their missing row may be among the lost ones
    unaccounted       older messages without any of these ends and without a gap: must be 0
    gaps              gaps of the relay that began on the day: time spans in which a recorder lost
                      rows, or may have lost rows (files in `gaps/`)
    gap_events        rows known to be lost in these gaps
    gap_estimate      rows probably lost in them: the known ones, and estimates of the others
    gap_at_most       highest number of rows that can be lost in them: the known ones, and bounds of
                      the others
    gaps_unknown      gaps among these without a count and without an estimate

So uids = delivered_once + duplicated + dropped - conflicting + handed_over + in_flight + in_gap +
unaccounted. Messages whose rows are all lost in a gap are in none of these counts: `gap_estimate`
and `gap_at_most` give the number of these rows, and a message has at least two.

The lifetime of a message is twice `queue.retention_s`, as set where the job runs, and at least two
hours: a relay that was stopped drops waiting messages when it runs again, and Redis keeps queues
for that long. A gap explains messages that were accepted between a lifetime before its start and
its end; a gap whose `lost` is 0 explains none. If a relay is stopped for longer, Redis deletes its
waiting messages without a row, and they are unaccounted. To compute a day, the job also reads the
day before it and the day after it; the newest event is that of these three days, of any kind. All
rows with one uid within these days are one message, however far apart they are (all rows without a
uid are one message).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from relay.analytics.spark import measures, schema
from relay.analytics.spark.window import Window

TABLE: Final = "audit"

COUNTS: Final = (
    *("uids", "accepted", "delivered_once", "duplicated", "extra_deliveries", "late", "dropped"),
    *("expired", "conflicting", "handed_over", "in_flight", "in_gap", "unaccounted"),
    *("gaps", "gap_events", "gap_estimate", "gap_at_most", "gaps_unknown"),
)

SCHEMA: Final = StructType(
    [
        StructField("period", StringType()),
        StructField("relay", StringType()),
        *(StructField(name, LongType()) for name in COUNTS),
    ]
)

LATE_US: Final = 60 * measures.SECOND_US
LIFE_US: Final = 2 * measures.HOUR_US
"""Minimum lifetime of a message: twice the default of `queue.retention_s`."""
EXPIRED: Final = ("expired", "queue_expired")

_CODE_BITS: Final = 14
_CODES: Final = 1 << _CODE_BITS
"""Bound of the number of relays; the remaining bits of 64 hold the microseconds of 17 years."""


def transform(
    events: DataFrame, window: Window, gaps: DataFrame, life_us: int = LIFE_US
) -> DataFrame:
    """Return one row for each day of the window and relay, and one for each day without a relay."""
    life_us = max(LIFE_US, life_us)
    start_us, end_us = window.start_us - measures.DAY_US, window.end_us + measures.DAY_US
    everything = measures.during(events, start_us, end_us)
    # Relays that wrote rows on each day, and the time of their last one: a small frame that is used
    # three times below. The conditions always hold. They keep the optimiser from removing an unused
    # maximum or pushing a condition down: then the plans would differ, and each read all events.
    seen = (
        everything.groupBy(
            measures.day_number().alias("day"), measures.name("relay").alias("relay")
        )
        .agg(F.max(measures.time_us()).alias("newest"))
        .where(F.col("newest").isNotNull() & F.col("day").isNotNull())
    )
    codes = _codes(seen)
    groups = _outcomes(_messages(everything, seen, codes, window.start_us), window)
    newest = _newest(seen)
    spans = gaps.where(F.coalesce("lost", F.lit(1)) > 0)
    reach = spans.agg(F.collect_list(F.struct("from_us", "to_us")).alias("spans"))
    lived = F.exists(
        "spans",
        lambda gap: (
            (gap["from_us"] < F.col("open_us") + life_us) & (gap["to_us"] >= F.col("open_us"))
        ),
    )
    young = F.col("newest") - F.col("open_us") < life_us
    audited = (
        groups.join(F.broadcast(newest), "day", "left")
        .crossJoin(F.broadcast(reach))
        .join(F.broadcast(codes), "code", "left")
        .select(
            "day",
            "relay",
            *COUNTS[: COUNTS.index("in_flight")],
            *(
                F.when(F.col("open_us").isNotNull() & condition, F.col("uids")).alias(name)
                for name, condition in (
                    ("in_flight", young),
                    ("in_gap", ~young & lived),
                    ("unaccounted", ~young & ~lived),
                )
            ),
        )
    )
    lost = spans.select(
        F.expr(f"from_us div {measures.DAY_US}").alias("day"),
        "relay",
        F.lit(1).alias("gaps"),
        F.col("lost").alias("gap_events"),
        F.coalesce("lost", "estimated").alias("gap_estimate"),
        F.coalesce("lost", "at_most").alias("gap_at_most"),
        F.coalesce("lost", "estimated").isNull().cast("long").alias("gaps_unknown"),
    ).where((F.col("day") >= _day(window.start_us)) & (F.col("day") < _day(window.end_us)))
    return (
        audited.unionByName(lost, allowMissingColumns=True)
        .groupBy("day", "relay")
        .agg(*(measures.sum_of(name).alias(name) for name in COUNTS))
        .select(measures.day_name("day").alias("period"), *SCHEMA.names[1:])
    )


def _codes(seen: DataFrame) -> DataFrame:
    """Return (relay, code): a number for each relay, in the order of their names."""
    number = F.row_number().over(Over.orderBy("relay"))
    too_many = F.raise_error(F.lit(f"more than {_CODES - 1} relays in the events")).cast("int")
    return (
        seen.select("relay")
        .distinct()
        .select("relay", F.when(number < _CODES, number).otherwise(too_many).alias("code"))
    )


def _newest(seen: DataFrame) -> DataFrame:
    """Return (day, newest): the time of the newest event of each day and the days beside it."""
    near = F.array(*(F.col("day") + n for n in (-1, 0, 1)))
    return (
        seen.select(F.explode(near).alias("day"), "newest")
        .groupBy("day")
        .agg(F.max("newest").alias("newest"))
    )


def _messages(everything: DataFrame, seen: DataFrame, codes: DataFrame, start_us: int) -> DataFrame:
    """Return one row for each uid, in one shuffle of whole numbers only.

    Spark aggregates by hash only numbers: the name of a relay, or a pair of values, would make it
    sort all rows. So one number holds the time and the relay of the first accepted row.
    """
    kind, us = F.col("kind"), measures.time_us()
    accepted, delivered = kind == schema.ACCEPTED, kind == schema.DELIVERED
    dropped, handed = kind == schema.DROPPED, kind == schema.FEDERATED_OUT
    partners = seen.select(F.col("day").alias("day_seen"), F.col("relay").alias("partner"))
    rows = (
        everything.where(
            kind.isin(schema.ACCEPTED, schema.DELIVERED, schema.DROPPED)
            | (handed & (F.col("reason") == schema.NONE))
        )
        .withColumn("day", measures.day_number())
        .join(
            F.broadcast(partners),
            handed & (F.col("day") == F.col("day_seen")) & (F.col("remote") == F.col("partner")),
            "left_anti",
        )
        .withColumn("origin", F.when(accepted, measures.name("relay")))
        .join(F.broadcast(codes.withColumnRenamed("relay", "origin")), "origin", "left")
    )
    first = F.shiftleft(us - start_us, _CODE_BITS) + F.col("code")
    return rows.groupBy("uid").agg(
        F.min(F.when(accepted, first)).alias("first"),
        F.min(us).alias("any_us"),
        measures.count_of(accepted).alias("na"),
        measures.count_of(delivered).alias("nd"),
        measures.count_of(dropped).alias("nx"),
        measures.count_of(handed).alias("nh"),
        measures.count_of(dropped & F.col("reason").isin(*EXPIRED)).alias("ne"),
        F.min(F.when(delivered, F.col("latency_us"))).alias("latency"),
    )


def _outcomes(messages: DataFrame, window: Window) -> DataFrame:
    """Return (day, code, open_us) and sums: messages with an outcome together, others by time."""
    na, nd, nx, nh = (F.col(name) for name in ("na", "nd", "nx", "nh"))
    none = (nd == 0) & (nx == 0)
    accepted_us = F.shiftright("first", _CODE_BITS) + window.start_us
    us = F.coalesce(accepted_us, F.col("any_us"))
    return (
        messages.withColumn("us", us)
        .where(F.col("us").between(window.start_us, window.end_us - 1))
        .groupBy(
            F.expr(f"us div {measures.DAY_US}").alias("day"),
            F.col("first").bitwiseAND(_CODES - 1).alias("code"),
            F.when(none & (nh == 0), F.col("us")).alias("open_us"),
        )
        .agg(
            F.count("*").alias("uids"),
            F.sum(na).alias("accepted"),
            measures.count_of(nd == 1).alias("delivered_once"),
            measures.count_of(nd > 1).alias("duplicated"),
            F.sum(F.greatest(nd - 1, F.lit(0))).alias("extra_deliveries"),
            measures.count_of(F.col("latency") > LATE_US).alias("late"),
            measures.count_of(nx > 0).alias("dropped"),
            measures.count_of(F.col("ne") > 0).alias("expired"),
            measures.count_of((nd > 0) & (nx > 0)).alias("conflicting"),
            measures.count_of(none & (nh > 0)).alias("handed_over"),
        )
    )


def _day(us: int) -> int:
    return us // measures.DAY_US
