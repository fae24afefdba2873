"""The metrics: name, type and help, in one table that workers and `/metrics` share.

A worker publishes its figures as JSON in its heartbeat, `{series: number}`, with the series as
`series` returns them; `relay.ops.exposition` adds the worker's labels and writes the Prometheus
text. The names up to and including the evictions, and those of federated messages, are those of the
reference relay (rmb-rs 1.5), for which dashboards exist.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from proto.sbd.errors import DropReason
from relay.sbd.options import AuthReason, EndReason, LossReason

Kind = Literal["counter", "gauge", "histogram"]

HISTOGRAM_SUFFIXES: Final = ("_bucket", "_sum", "_count")


class Metric(NamedTuple):
    """One metric; `labels` are those of its series in addition to the worker's."""

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
    Metric("relay_messages_queued_total", "counter", "Messages stored in a queue to wait."),
    Metric("relay_messages_federated_total", "counter", "Messages put in the outbox."),
    Metric("relay_limit_hits_total", "counter", "Limit windows that a twin exceeded."),
    Metric("relay_slowed_total", "counter", "Pauses in reading after refused messages."),
    Metric("relay_slowed_seconds_total", "counter", "Seconds of pauses after refused messages."),
    Metric("relay_delivery_seconds", "histogram", "Seconds from receiving to writing a message."),
    # Sessions.
    Metric("relay_sessions_opened_total", "counter", "Sessions that were opened."),
    Metric("relay_sessions_full", "gauge", "Sessions whose client does not read at present."),
    Metric("relay_sessions_filled_total", "counter", "Times a client read too slowly for memory."),
    Metric("relay_handshakes_refused_total", "counter", "Handshakes refused.", ("reason",)),
    Metric("relay_history_dropped_total", "counter", "Session records lost: no database."),
    # Storage.
    Metric("relay_commit_seconds", "histogram", "Seconds Redis takes to answer a group commit."),
    Metric("relay_commit_waiting_bytes", "gauge", "Bytes that wait for the next group commit."),
    Metric("relay_redis_reconnects_total", "counter", "Reconnections to Redis."),
    Metric("relay_redis_restarts_total", "counter", "Restarts and fail-overs of Redis."),
    Metric("relay_redis_went_back_total", "counter", "Times that Redis lost confirmed writes."),
    Metric("relay_check_found_total", "counter", "Messages that only the periodic check found."),
    # Traces, of each worker.
    Metric("relay_trace_on", "gauge", "1 while the worker traces messages."),
    Metric("relay_trace_events_total", "counter", "Events recorded for traces."),
    Metric("relay_trace_skipped_total", "counter", "Messages not traced: rate limit."),
    Metric("relay_trace_lost_total", "counter", "Events of traces that could not be stored."),
    # Events for analytics, of each worker that records; from Redis, those of all drainers.
    Metric("relay_analytics_events_total", "counter", "Events written to segments.", ("kind",)),
    Metric("relay_analytics_lost_total", "counter", "Events that were lost.", ("reason",)),
    Metric("relay_analytics_write_failures_total", "counter", "Failed writes of events to disk."),
    # From Redis, where the compactor of each machine reports its backlog.
    Metric(
        "relay_analytics_waiting_seconds",
        "gauge",
        "Age of the oldest segment not in the lake, or seconds since a compactor last reported.",
        ("host",),
    ),
    Metric(
        "relay_analytics_waiting_bytes",
        "gauge",
        "Bytes of segments not in the lake.",
        ("host",),
    ),
    # Streams, of each worker that serves them.
    Metric("mux_connections", "gauge", "Open connections for streams."),
    Metric("mux_streams", "gauge", "Open streams."),
    Metric("mux_opened_total", "counter", "Connections for streams that were opened."),
    Metric("mux_refused_total", "counter", "Refused connections for streams.", ("reason",)),
    Metric("mux_ended_total", "counter", "Ended connections for streams.", ("reason",)),
    Metric("mux_streams_opened_total", "counter", "Streams that clients opened."),
    Metric("mux_streams_refused_total", "counter", "Streams that the relay refused.", ("reason",)),
    Metric(
        "mux_resets_total",
        "counter",
        "Streams reset by the relay, and stream halves reset by clients.",
        ("by", "code"),
    ),
    Metric("mux_received_bytes_total", "counter", "Bytes received on streams."),
    Metric("mux_sent_bytes_total", "counter", "Bytes sent on streams."),
    Metric("mux_stalls_total", "counter", "Times a stream waited for its client to grant bytes."),
    # SBD, of each worker that serves it; the reasons are in docs/protocol/sbd.md.
    Metric("sbd_connections", "gauge", "Open SBD connections of the worker."),
    Metric("sbd_keys", "gauge", "Open SBD connections whose clients have proven their key."),
    Metric("sbd_opened_total", "counter", "SBD connections that were opened."),
    Metric("sbd_authenticated_total", "counter", "SBD connections whose clients proved their key."),
    Metric("sbd_received_total", "counter", "SBD packets received from clients."),
    Metric("sbd_delivered_total", "counter", "SBD packets written to clients."),
    Metric("sbd_delivered_bytes_total", "counter", "Bytes of SBD packets written to clients."),
    Metric("sbd_crossed_total", "counter", "SBD packets sent to other workers."),
    *(
        Metric(f"sbd_ended_{reason}_total", "counter", f"SBD connections that ended: {reason}.")
        for reason in (*DropReason, *EndReason)
    ),
    *(
        Metric(f"sbd_lost_{reason}_total", "counter", f"SBD packets not delivered: {reason}.")
        for reason in LossReason
    ),
    *(
        Metric(f"sbd_auth_failures_{reason}_total", "counter", f"SBD clients refused: {reason}.")
        for reason in AuthReason
    ),
    # The lattice, from Redis: what all bridges and monitors did together.
    Metric("lattice_processes", "gauge", "Bridges and monitors that are alive.", ("kind",)),
    Metric(
        "lattice_connected", "gauge", "Bridges and monitors that are connected to NATS.", ("kind",)
    ),
    Metric("lattice_calls_total", "counter", "Calls over bridges.", ("direction", "outcome")),
    Metric("lattice_refused_total", "counter", "Refused calls.", ("direction", "reason")),
    Metric("lattice_judged_total", "counter", "Invocations that monitors checked."),
    Metric("lattice_unjudged_total", "counter", "Invocations that came too fast to be checked."),
    Metric("lattice_findings_total", "counter", "Findings of monitors.", ("reason",)),
    Metric("lattice_unrecorded_total", "counter", "Invocations that are missing in the lake."),
    # Federation, of each worker.
    Metric("federation_inbound_accepted_total", "counter", "Messages from partners accepted."),
    Metric("federation_inbound_repeated_total", "counter", "Repeated messages discarded."),
    Metric(
        "federation_inbound_refused_total",
        "counter",
        "Messages and requests from partners refused.",
        ("status", "reason"),
    ),
    Metric("federation_inbound_checks_waiting", "gauge", "Signatures waiting for verification."),
    Metric("federation_inbound_checkers_restarted_total", "counter", "Restarts of verifiers."),
    Metric("federation_inbound_forgotten_total", "counter", "Messages not checked for repeats."),
    Metric("federation_start_failures_total", "counter", "Failed starts of federation delivery."),
    # Federation, from Redis: what all workers and drainers did together.
    Metric("federation_message_success", "counter", "Messages a partner accepted.", ("relay",)),
    Metric("federation_message_error", "counter", "Failed attempts to deliver.", ("relay",)),
    Metric("federation_message_dropped_total", "counter", "Outbox messages dropped.", ("reason",)),
    Metric("federation_delivery_seconds", "histogram", "Seconds from the outbox to the partner."),
    Metric("federation_outbox_messages", "gauge", "Messages in the outbox.", ("shard",)),
    Metric("federation_outbox_oldest_seconds", "gauge", "Age of the oldest message.", ("shard",)),
    Metric("federation_backoff_seconds", "gauge", "Seconds of back-off that remain.", ("relay",)),
    Metric("federation_dead_letters", "gauge", "Dead letters of federation."),
    # The chain, from Redis: what its followers did one after another.
    Metric("events_listener_reconnecting", "gauge", "1 while no node of the chain is followed."),
    Metric("events_listener_reconnect_cycles_total", "counter", "Reconnections to nodes."),
    Metric(
        "events_listener_errors_total",
        "counter",
        "Nodes given up; changes not stored.",
        ("stage",),
    ),
    Metric("events_listener_last_processed_block_number", "gauge", "Last block processed."),
    Metric("events_listener_twin_stored_total", "counter", "Changes that added a twin."),
    Metric("events_listener_twin_updated_total", "counter", "Changes to known twins."),
    Metric("relay_chain_head_block_number", "gauge", "Newest block that a node announced."),
    Metric("relay_chain_head_age_seconds", "gauge", "Seconds since the newest block."),
    Metric("relay_chain_flushes_total", "counter", "Times changes may have been missed."),
    Metric("relay_chain_import_needed", "gauge", "1 while twins have to be imported."),
    Metric("relay_chain_queries_total", "counter", "Queries for twins sent to the chain."),
    Metric("relay_chain_query_failures_total", "counter", "Queries that no node answered."),
    # Machines, from Redis, where each supervisor reports its own.
    Metric(
        "relay_process_memory_bytes",
        "gauge",
        "Memory of a process, shared memory included.",
        ("host", "process", "pid"),
    ),
    Metric(
        "relay_process_private_bytes",
        "gauge",
        "Private memory of a process; not measured above 1 GiB.",
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
    Metric("relay_disk_used_bytes", "gauge", "Bytes on disk used by the data.", ("host", "use")),
    Metric("relay_disk_free_bytes", "gauge", "Free bytes on that disk.", ("host", "use")),
    # Alarms, from the database.
    Metric("relay_alarms_firing", "gauge", "Firing alarms, also silenced ones.", ("severity",)),
    Metric("relay_alarms_evaluation_age_seconds", "gauge", "Seconds since alarms were evaluated."),
    Metric("relay_alarm_notices_waiting", "gauge", "Notices that wait for delivery to receivers."),
    # The console, of the operator site's process that answers.
    Metric("relay_calls_connections", "gauge", "Open connections for operators' calls."),
    Metric("relay_calls_total", "counter", "Operators' calls.", ("outcome",)),
    Metric("relay_console_sockets", "gauge", "Open console pages that receive live figures."),
    Metric(
        "relay_console_sockets_ended_total",
        "counter",
        "Live pages ended or refused.",
        ("code",),
    ),
    # The process.
    Metric(
        "relay_twin_clocks_off_seconds",
        "gauge",
        "Median seconds that wrong clocks of twins are ahead of the relay's; negative: behind.",
    ),
    Metric("relay_twin_clocks_seen", "gauge", "Twins compared: the last 64 that signed in."),
    Metric("relay_twin_clocks_wrong", "gauge", "Compared twins more than 30 s off."),
    Metric("relay_twins_cached", "gauge", "Twins cached by the worker."),
    Metric("relay_worker_loop_lag_seconds", "gauge", "Delay of the worker's event loop."),
    Metric("relay_worker_state", "gauge", "1 for the state the worker is in.", ("state",)),
    Metric("relay_worker_started_timestamp_seconds", "gauge", "Unix time the worker started."),
)

BY_NAME: Final[dict[str, Metric]] = {metric.name: metric for metric in METRICS}


def series(name: str, **labels: str) -> str:
    """Return the name of one series, including labels: `name{label="value"}`."""
    if not labels:
        return name
    inside = ",".join(f'{label}="{escape(value)}"' for label, value in labels.items())
    return f"{name}{{{inside}}}"


def family(series_name: str) -> str:
    """Return the metric that a series belongs to: itself, or the histogram that it is part of."""
    for suffix in HISTOGRAM_SUFFIXES:
        name = series_name.removesuffix(suffix)
        if name != series_name and name in BY_NAME and BY_NAME[name].kind == "histogram":
            return name
    return series_name


def escape(value: str) -> str:
    """Return a label value as the Prometheus text format requires it."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
