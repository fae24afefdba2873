"""The metrics: name, type and help, in one table that workers and `/metrics` share.

A worker publishes its figures as JSON in its heartbeat, `{series: number}` where a series is what
`series` returns; `relay.ops.exposition` adds the worker's labels and writes the Prometheus text.
Names up to and including the evictions, and those of federated messages, are those of the reference
relay (rmb-rs 1.5), for which dashboards exist.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from proto.sbd.errors import DropReason
from relay.sbd.options import AuthReason, EndReason, LossReason

Kind = Literal["counter", "gauge", "histogram"]

HISTOGRAM_SUFFIXES: Final = ("_bucket", "_sum", "_count")


class Metric(NamedTuple):
    """One metric; `labels` are those a series has besides those of its worker."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


METRICS: Final[tuple[Metric, ...]] = (
    Metric("relay_worker_connections", "gauge", "RMB sessions held by the worker."),
    Metric("relay_message_rx", "counter", "Messages received from sessions."),
    Metric("relay_message_tx", "counter", "Messages written to sessions."),
    Metric("relay_message_rx_bytes", "counter", "Bytes of messages received from sessions."),
    Metric("relay_message_tx_bytes", "counter", "Bytes of messages written to sessions."),
    Metric("relay_session_evictions_total", "counter", "Sessions that ended.", ("reason",)),
    # Messages.
    Metric("relay_messages_total", "counter", "Messages that ended undelivered.", ("reason",)),
    Metric("relay_messages_queued_total", "counter", "Messages committed to wait in a queue."),
    Metric("relay_messages_federated_total", "counter", "Messages handed to federation."),
    Metric("relay_limit_hits_total", "counter", "Windows in which a twin exceeded its limit."),
    Metric("relay_slowed_total", "counter", "Pauses in reading connections that send in vain."),
    Metric("relay_slowed_seconds_total", "counter", "Length of these pauses, in seconds."),
    Metric("relay_delivery_seconds", "histogram", "Time from a message to its receiver's socket."),
    # Sessions.
    Metric("relay_sessions_opened_total", "counter", "Sessions that began."),
    Metric("relay_sessions_full", "gauge", "Sessions whose client takes nothing now."),
    Metric("relay_sessions_filled_total", "counter", "Times a client fell behind its memory."),
    Metric("relay_handshakes_refused_total", "counter", "Handshakes refused.", ("reason",)),
    Metric("relay_history_dropped_total", "counter", "Session records lost: no database."),
    # Storage.
    Metric("relay_commit_seconds", "histogram", "Time from a group commit to its answer."),
    Metric("relay_commit_waiting_bytes", "gauge", "Bytes waiting for the next group commit."),
    Metric("relay_redis_reconnects_total", "counter", "Connections to Redis made again."),
    Metric("relay_redis_restarts_total", "counter", "Restarts and fail-overs of Redis."),
    Metric("relay_redis_went_back_total", "counter", "Times Redis was seen to have lost writes."),
    Metric("relay_check_found_total", "counter", "Messages only the periodic check found."),
    # Traces, of each worker.
    Metric("relay_trace_on", "gauge", "1 while the worker follows messages."),
    Metric("relay_trace_events_total", "counter", "Events noted for traces."),
    Metric("relay_trace_skipped_total", "counter", "Messages not followed: the rate was reached."),
    Metric("relay_trace_lost_total", "counter", "Events of traces that could not be kept."),
    # Events for analytics, of each worker that records; from Redis, those of all drainers.
    Metric("relay_analytics_events_total", "counter", "Events written to segments.", ("kind",)),
    Metric("relay_analytics_lost_total", "counter", "Events that were lost.", ("reason",)),
    Metric("relay_analytics_write_failures_total", "counter", "Times the disk refused events."),
    # From Redis, where the compactor of each machine says what it leaves.
    Metric(
        "relay_analytics_waiting_seconds",
        "gauge",
        "Age of the oldest file of events not in the lake, or how long no compactor told.",
        ("host",),
    ),
    Metric("relay_analytics_waiting_bytes", "gauge", "Bytes of all such files.", ("host",)),
    # Streams, of each worker that serves them.
    Metric("mux_connections", "gauge", "Connections that carry sessions on streams."),
    Metric("mux_streams", "gauge", "Open streams of these connections."),
    Metric("mux_opened_total", "counter", "Connections for streams that began."),
    Metric("mux_refused_total", "counter", "Connections that were refused.", ("reason",)),
    Metric("mux_ended_total", "counter", "Connections that ended.", ("reason",)),
    Metric("mux_streams_opened_total", "counter", "Streams that clients opened."),
    Metric("mux_streams_refused_total", "counter", "... and that were refused.", ("reason",)),
    Metric("mux_resets_total", "counter", "Streams (of clients: halves) reset.", ("by", "code")),
    Metric("mux_received_bytes_total", "counter", "Bytes received on streams."),
    Metric("mux_sent_bytes_total", "counter", "Bytes sent on streams."),
    Metric("mux_stalls_total", "counter", "Times that a client granted a stream no more bytes."),
    # SBD, of each worker that serves it; the reasons are in docs/protocol/sbd.md.
    Metric("sbd_connections", "gauge", "SBD connections of the worker."),
    Metric("sbd_keys", "gauge", "... whose clients have proven that they hold their key."),
    Metric("sbd_opened_total", "counter", "SBD connections that began."),
    Metric("sbd_authenticated_total", "counter", "... whose clients proved their key."),
    Metric("sbd_received_total", "counter", "Packets received from SBD clients."),
    Metric("sbd_delivered_total", "counter", "Packets written to SBD clients."),
    Metric("sbd_delivered_bytes_total", "counter", "Bytes of packets written to SBD clients."),
    Metric("sbd_crossed_total", "counter", "Packets handed to other workers."),
    *(
        Metric(f"sbd_ended_{reason}_total", "counter", f"SBD connections that ended: {reason}.")
        for reason in (*DropReason, *EndReason)
    ),
    *(
        Metric(f"sbd_lost_{reason}_total", "counter", f"Packets of SBD not delivered: {reason}.")
        for reason in LossReason
    ),
    *(
        Metric(f"sbd_auth_failures_{reason}_total", "counter", f"SBD clients not let in: {reason}.")
        for reason in AuthReason
    ),
    # Federation, of each worker.
    Metric("federation_inbound_accepted_total", "counter", "Messages of other relays taken."),
    Metric("federation_inbound_repeated_total", "counter", "Repeats of them, not taken again."),
    Metric(
        "federation_inbound_refused_total",
        "counter",
        "Messages or requests of other relays refused.",
        ("status", "reason"),
    ),
    Metric("federation_inbound_checks_waiting", "gauge", "Signatures that wait to be checked."),
    Metric("federation_inbound_checkers_restarted_total", "counter", "Checkers that ended."),
    Metric("federation_inbound_forgotten_total", "counter", "Messages not noted against repeats."),
    Metric("federation_start_failures_total", "counter", "Deliveries that could not be begun."),
    # Federation, from Redis: what all workers and drainers did together.
    Metric("federation_message_success", "counter", "Messages another relay took.", ("relay",)),
    Metric("federation_message_error", "counter", "Failed tries at another relay.", ("relay",)),
    Metric("federation_message_dropped_total", "counter", "Messages given up.", ("reason",)),
    Metric("federation_delivery_seconds", "histogram", "Time from the outbox to the other relay."),
    Metric("federation_outbox_messages", "gauge", "Messages for other relays.", ("shard",)),
    Metric("federation_outbox_oldest_seconds", "gauge", "Age of the oldest of them.", ("shard",)),
    Metric(
        "federation_backoff_seconds",
        "gauge",
        "Seconds until the next request to the relay.",
        ("relay",),
    ),
    Metric("federation_dead_letters", "gauge", "Messages for other relays that failed for good."),
    # The chain, from Redis: what its followers did one after another.
    Metric("events_listener_reconnecting", "gauge", "1 while no node of the chain is followed."),
    Metric("events_listener_reconnect_cycles_total", "counter", "Connections to nodes made again."),
    Metric("events_listener_errors_total", "counter", "Nodes left; changes not kept.", ("stage",)),
    Metric("events_listener_last_processed_block_number", "gauge", "Block all is known up to."),
    Metric("events_listener_twin_stored_total", "counter", "Changes that brought a new twin."),
    Metric("events_listener_twin_updated_total", "counter", "Changes of known twins."),
    Metric("relay_chain_head_block_number", "gauge", "The newest block announced."),
    Metric("relay_chain_head_age_seconds", "gauge", "Time since the newest block."),
    Metric("relay_chain_flushes_total", "counter", "Times changes may have been missed."),
    Metric("relay_chain_import_needed", "gauge", "1 until all twins were imported since."),
    Metric("relay_chain_queries_total", "counter", "Queries of the chain for twins."),
    Metric("relay_chain_query_failures_total", "counter", "Those no node answered."),
    # Machines, from Redis, where each supervisor tells of its own.
    Metric(
        "relay_process_memory_bytes",
        "gauge",
        "Memory of a process, with what it shares.",
        ("host", "process", "pid"),
    ),
    Metric(
        "relay_process_private_bytes",
        "gauge",
        "Memory that is a process's alone; not measured above 1 GiB.",
        ("host", "process", "pid"),
    ),
    Metric(
        "relay_process_cpu_cores",
        "gauge",
        "Cores in use by a process over the last 10 s.",
        ("host", "process", "pid"),
    ),
    Metric(
        "relay_process_open_files",
        "gauge",
        "Open files and sockets of a process.",
        ("host", "process", "pid"),
    ),
    Metric("relay_disk_used_bytes", "gauge", "What data takes on disk.", ("host", "use")),
    Metric("relay_disk_free_bytes", "gauge", "Free bytes of the disk below.", ("host", "use")),
    # Alarms, from the database.
    Metric("relay_alarms_firing", "gauge", "Alarms that fire, silenced or not.", ("severity",)),
    Metric("relay_alarms_evaluation_age_seconds", "gauge", "Time since they were evaluated."),
    Metric("relay_alarm_notices_waiting", "gauge", "Notices that receivers have not taken yet."),
    # The console, of the process of the operator site that is asked.
    Metric("relay_calls_connections", "gauge", "Open connections of operators' calls."),
    Metric("relay_calls_total", "counter", "Operators' calls by how they went.", ("outcome",)),
    Metric("relay_console_sockets", "gauge", "Open pages of the console that get live numbers."),
    Metric("relay_console_sockets_ended_total", "counter", "Those refused or ended.", ("code",)),
    # The process.
    Metric(
        "relay_twin_clocks_off_seconds",
        "gauge",
        "Median of what wrong clocks of twins are ahead of the relay's; negative: behind.",
    ),
    Metric("relay_twin_clocks_seen", "gauge", "Twins that signed in last, 64 at most."),
    Metric("relay_twin_clocks_wrong", "gauge", "... whose clock is more than 30 s off."),
    Metric("relay_twins_cached", "gauge", "Twins in the worker's memory."),
    Metric("relay_worker_loop_lag_seconds", "gauge", "Delay of the worker's event loop."),
    Metric("relay_worker_state", "gauge", "1 for the state the worker is in.", ("state",)),
    Metric("relay_worker_started_timestamp_seconds", "gauge", "Unix time the worker started."),
)

BY_NAME: Final[dict[str, Metric]] = {metric.name: metric for metric in METRICS}


def series(name: str, **labels: str) -> str:
    """The name of one series, labels included: `name{label="value"}`."""
    if not labels:
        return name
    inside = ",".join(f'{label}="{escape(value)}"' for label, value in labels.items())
    return f"{name}{{{inside}}}"


def family(series_name: str) -> str:
    """The metric a series belongs to: itself, or the histogram it is a part of."""
    for suffix in HISTOGRAM_SUFFIXES:
        name = series_name.removesuffix(suffix)
        if name != series_name and name in BY_NAME and BY_NAME[name].kind == "histogram":
            return name
    return series_name


def escape(value: str) -> str:
    """A label value as the Prometheus text format writes it."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
