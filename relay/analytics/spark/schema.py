"""The schema of events: one row for each thing that happened on one relay.

Parquet files are in folders `date=YYYY-MM-DD/hour=HH` (UTC, by `event_time`). Spark has no unsigned
columns of 32 or 64 bits, so numbers are signed 64. Every reader passes the schema explicitly: a
column that a file lacks is null, and other columns of a file are not read.

    event_time    time at which this relay saw the event
    relay         the relay that writes the row
    kind          one of KINDS, or of LATTICE_KINDS
    src_twin      sender; for session rows the twin
    dst_twin      receiver; 0 for session rows
    src_session   name of the session; "" if it has none
    size_bytes    size of the envelope; 0 for session rows
    latency_us    delivered: time since the acceptance; federated_out: round trip of the partner
                  relay; session_close: length of the session; otherwise null
    reason        NONE, or why: names of `proto.rmb.reasons` and `proto.federation.answers`
    remote        the partner relay, if federation takes part; otherwise null
    uid           for a message, xxh3-64 of (source twin, destination twin, kind of message, uid of
                  the envelope) as signed: senders choose uids, so two may choose the same; for
                  session rows, a different number for each connection
    protocol      one of PROTOCOLS; null, in files of the first version, means RMB
    src_key       sbd: the sender's public key, base64url without padding; lattice: the key of the
                  origin; otherwise null
    dst_key       sbd: the receiver's key, null for session rows; lattice: the key of the target;
                  otherwise null
    link          lattice: name of the link between an actor and a provider; otherwise null, as are
                  the columns below
    contract      contract of the provider
    operation     operation of the target
    host_id       host that the invocation names
    answer_bytes  size of the result; null for a call without a result

Clients of SBD have keys: such a row has no twin (null), no `src_session` ("") and, for a packet, 0
as `uid`. A packet is `accepted` by the worker of its sender, wherever its receiver is, and has a
second row, `dropped`, if it is lost; no row records its delivery.

A row of the lattice is an invocation that the bridge made for the twin `src_twin` (`lattice_out`)
or passed on to the twin `dst_twin` (`lattice_in`), or that the monitor saw (`lattice_seen`). For
the latter, `size_bytes` is the size of the whole message, otherwise that of the payload. `reason`
is `NONE`, how the call failed, or what the monitor found wrong. `uid` is a hash of the invocation's
id, 0 if it has none. Keys, names and `latency_us` are null where they are not known.
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
"""Version of the schema, in each file's metadata under VERSION_KEY. Files of a later version are
refused with an error that names them.

It is raised when releases that know only the previous version would compute wrong results from the
files. Columns and kinds that a release does not know do not matter: it skips them."""

VERSION_KEY: Final = "rmb.schema"

NONE: Final = "none"
"""`reason` of success."""

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
"""Columns of a file."""

PARTITIONS: Final = types.StructType(
    [
        types.StructField("date", types.StringType()),
        types.StructField("hour", types.IntegerType()),
    ]
)
"""Columns from the names of the folders."""

READ: Final = types.StructType([*EVENTS.fields, *PARTITIONS.fields])
"""Columns that a reader gets."""

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
"""Times in which recorders lost events, or may have lost some. Both ends are in microseconds since
1970; `lost` is null if it is not known; then `estimated` and `at_most` are null if there is no
estimate."""
