"""The schema of events: one row for each thing that happened on one relay.

Parquet files lie in folders `date=YYYY-MM-DD/hour=HH` (UTC, by `event_time`). Spark has no unsigned
column of 32 or 64 bits, so numbers are signed 64. Every reader gets the schema explicitly: a column
a file does not have yet is null, one it has too many is not read.

    event_time    when this relay saw it
    relay         the relay that writes the row
    kind          one of KINDS, or of LATTICE_KINDS
    src_twin      sender; for session rows the twin
    dst_twin      receiver; 0 for session rows
    src_session   "" where the session has no name
    size_bytes    of the envelope; 0 for session rows
    latency_us    delivered: since it was accepted; federated_out: the remote's round trip;
                  session_close: how long the session was; otherwise null
    reason        NONE, or why: names of `proto.rmb.reasons` and `proto.federation.answers`
    remote        the other relay, where federation has to do with it, otherwise null
    uid           of a message, xxh3-64 of (source twin, destination twin, kind of message, uid of
                  the envelope) as signed: senders choose uids, so two may use one; for session rows
                  a number of its own for each connection
    protocol      one of PROTOCOLS; null in files of the first version: RMB
    src_key       sbd: the sender's public key, base64url without padding; lattice: that of the
                  origin; otherwise null
    dst_key       sbd: the receiver's; null for session rows; lattice: that of the target
    link          lattice: name of the link between an actor and a provider; otherwise null, as are
                  the columns below
    contract      of the provider
    operation     of the target
    host_id       of the host that the invocation names
    answer_bytes  of the result; null for a call without a result

Clients of SBD are keys: such a row has no twin (null), no `src_session` ("") and, of a packet, 0 as
`uid`. A packet is `accepted` by the worker its sender is connected to, wherever its receiver is,
and has a second row, `dropped`, if it is lost; there is none that says it was delivered.

A row of the lattice is an invocation that the bridge made for the twin `src_twin` (`lattice_out`)
or passed on to the twin `dst_twin` (`lattice_in`), or that the monitor saw (`lattice_seen`); of the
latter `size_bytes` is the whole message, otherwise the payload. `reason` is NONE, how the call
failed, or what the monitor found wrong; `uid` is a hash of the id of the invocation, 0 where it has
none; a key, a name and `latency_us` are null where they are not known.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import types

from relay.analytics.spark import protocols

RMB: Final = protocols.RMB
SBD: Final = protocols.SBD
LATTICE: Final = protocols.LATTICE
PROTOCOLS: Final = (RMB, SBD, LATTICE)

VERSION: Final = 2
"""Stands in each file's metadata under VERSION_KEY; files of a later one are refused by name.

Raised when files would make releases that know the version before compute something wrong; they
read no columns and count no kinds that they do not know.
"""

VERSION_KEY: Final = "rmb.schema"

NONE: Final = "none"
"""`reason` of what went well."""

WORKER_LOST: Final = "worker_lost"
"""`reason` of closing rows that were recorded for a worker that was found dead."""

ACCEPTED: Final = "accepted"
DELIVERED: Final = "delivered"
QUEUED: Final = "queued"
DROPPED: Final = "dropped"
FEDERATED_OUT: Final = "federated_out"
FEDERATED_IN: Final = "federated_in"
SESSION_OPEN: Final = "session_open"
SESSION_CLOSE: Final = "session_close"
LIMIT_HIT: Final = "limit_hit"
ERROR: Final = "error"

KINDS: Final = (
    *(ACCEPTED, DELIVERED, QUEUED, DROPPED, FEDERATED_OUT, FEDERATED_IN),
    *(SESSION_OPEN, SESSION_CLOSE, LIMIT_HIT, ERROR),
)

LATTICE_OUT: Final = protocols.LATTICE_OUT
LATTICE_IN: Final = protocols.LATTICE_IN
LATTICE_SEEN: Final = protocols.LATTICE_SEEN
LATTICE_KINDS: Final = protocols.LATTICE_KINDS

EVENTS: Final = types.StructType(
    [
        types.StructField("event_time", types.TimestampType()),
        types.StructField("relay", types.StringType()),
        types.StructField("kind", types.StringType()),
        types.StructField("src_twin", types.LongType()),
        types.StructField("dst_twin", types.LongType()),
        types.StructField("src_session", types.StringType()),
        types.StructField("size_bytes", types.LongType()),
        types.StructField("latency_us", types.LongType()),
        types.StructField("reason", types.StringType()),
        types.StructField("remote", types.StringType()),
        types.StructField("uid", types.LongType()),
        types.StructField("protocol", types.StringType()),
        types.StructField("src_key", types.StringType()),
        types.StructField("dst_key", types.StringType()),
        types.StructField("link", types.StringType()),
        types.StructField("contract", types.StringType()),
        types.StructField("operation", types.StringType()),
        types.StructField("host_id", types.StringType()),
        types.StructField("answer_bytes", types.LongType()),
    ]
)
"""What is in a file."""

PARTITIONS: Final = types.StructType(
    [
        types.StructField("date", types.StringType()),
        types.StructField("hour", types.IntegerType()),
    ]
)
"""What the folders tell."""

READ: Final = types.StructType([*EVENTS.fields, *PARTITIONS.fields])
"""What a reader gets."""

GAPS: Final = types.StructType(
    [
        types.StructField("relay", types.StringType()),
        types.StructField("worker", types.StringType()),
        types.StructField("from_us", types.LongType()),
        types.StructField("to_us", types.LongType()),
        types.StructField("lost", types.LongType()),
        types.StructField("why", types.StringType()),
        types.StructField("estimated", types.LongType()),
        types.StructField("at_most", types.LongType()),
    ]
)
"""What recorders lost or cannot vouch for: both ends in microseconds since 1970, `lost` null where
nobody counted, `estimated` and `at_most` of such a gap null where nothing is known."""
