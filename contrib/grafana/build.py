"""Generates the dashboards in this folder: run `python contrib/grafana/build.py` after a change
here.

A dashboard consists of rows of panels; a panel has a title, a unit and queries with their legends.
The tests check that every metric in a query exists, and that the files match the output of this
script.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

WIDTH: Final = 24
HEIGHT: Final = 8
SOURCE: Final = {"type": "prometheus", "uid": "${source}"}


class Panel(NamedTuple):
    """One chart.

    Attributes:
        queries: expression and legend of each line.
        unit: name of a Grafana unit, such as `reqps`.
        what: description shown in the corner of the panel.
    """

    title: str
    unit: str
    what: str
    queries: tuple[tuple[str, str], ...]


def rate(metric: str, *by: str) -> str:
    """Return a query for events per second, summed over all workers or by labels."""
    inside = f"rate({metric}[$__rate_interval])"
    return f"sum by ({', '.join(by)}) ({inside})" if by else f"sum({inside})"


def quantile(part: float, histogram: str) -> str:
    """Return a query for the latency below which this part of the events lies."""
    return f"histogram_quantile({part}, {rate(f'{histogram}_bucket', 'le')})"


RELAY: Final[dict[str, tuple[Panel, ...]]] = {
    "Traffic": (
        Panel(
            "Messages",
            "mps",
            "From sessions and to sessions, over all workers.",
            (
                (rate("relay_message_rx"), "in"),
                (rate("relay_message_tx"), "out"),
                (rate("relay_messages_queued_total"), "queued"),
                (rate("relay_messages_federated_total"), "to other relays"),
            ),
        ),
        Panel(
            "Bytes",
            "Bps",
            "Of the envelopes, without websocket and TLS.",
            ((rate("relay_message_rx_bytes"), "in"), (rate("relay_message_tx_bytes"), "out")),
        ),
        Panel(
            "Undelivered",
            "mps",
            "Messages that ended undelivered, by reason.",
            ((rate("relay_messages_total", "reason"), "{{reason}}"),),
        ),
        Panel(
            "Limits",
            "cps",
            "Windows in which a twin met its limit.",
            ((rate("relay_limit_hits_total"), "hits"),),
        ),
    ),
    "Sessions": (
        Panel(
            "Sessions",
            "short",
            "Held by each worker.",
            (("sum by (host, worker) (relay_worker_connections)", "{{host}}/{{worker}}"),),
        ),
        Panel(
            "Begun and ended",
            "cps",
            "Many ends with few begun: something in front cuts connections.",
            (
                (rate("relay_sessions_opened_total"), "begun"),
                (rate("relay_session_evictions_total", "reason"), "{{reason}}"),
            ),
        ),
        Panel(
            "Refused handshakes",
            "cps",
            "Before a session began, by reason.",
            ((rate("relay_handshakes_refused_total", "reason"), "{{reason}}"),),
        ),
        Panel(
            "Slow clients",
            "short",
            "Sessions whose client takes nothing now.",
            (("sum(relay_sessions_full)", "full"),),
        ),
    ),
    "Streams": (
        Panel(
            "Connections with streams",
            "short",
            "Connections that carry sessions, and their open streams.",
            (("sum(mux_connections)", "connections"), ("sum(mux_streams)", "streams")),
        ),
        Panel(
            "Opened and refused",
            "cps",
            "Streams that clients opened, and those that were refused, by reason.",
            (
                (rate("mux_streams_opened_total"), "opened"),
                (rate("mux_streams_refused_total", "reason"), "refused: {{reason}}"),
                (rate("mux_refused_total", "reason"), "connections refused: {{reason}}"),
            ),
        ),
        Panel(
            "Bytes of streams",
            "Bps",
            "Bytes from clients and to clients.",
            (
                (rate("mux_received_bytes_total"), "in"),
                (rate("mux_sent_bytes_total"), "out"),
            ),
        ),
        Panel(
            "Resets, ends and stalls",
            "cps",
            "By whom and with which code; connections by reason; clients that do not read.",
            (
                (rate("mux_resets_total", "by", "code"), "reset by {{by}}: {{code}}"),
                (rate("mux_ended_total", "reason"), "connections ended: {{reason}}"),
                (rate("mux_stalls_total"), "stalls"),
            ),
        ),
    ),
    "SBD": (
        Panel(
            "SBD connections",
            "short",
            "Open, and those whose clients have proven their key.",
            (("sum(sbd_connections)", "open"), ("sum(sbd_keys)", "proven")),
        ),
        Panel(
            "Packets",
            "pps",
            "From clients and to clients, and those that went to another worker.",
            (
                (rate("sbd_received_total"), "in"),
                (rate("sbd_delivered_total"), "out"),
                (rate("sbd_crossed_total"), "crossed"),
            ),
        ),
        Panel(
            "Lost packets",
            "pps",
            "Nothing is stored: packets for keys that are away are lost.",
            tuple(
                (rate(f"sbd_lost_{reason}_total"), reason)
                for reason in ("absent", "slow_reader", "redis_away", "crossing_full")
            ),
        ),
        Panel(
            "Dropped and refused",
            "cps",
            "Clients that the relay dropped or did not let in.",
            (
                *(
                    (rate(f"sbd_ended_{reason}_total"), reason)
                    for reason in ("slow_reader", "rate_limit", "bad_signature", "capacity")
                ),
                (rate("sbd_auth_failures_bad_token_total"), "bad token"),
                (rate("sbd_auth_failures_hook_failed_total"), "hook failed"),
                (rate("sbd_auth_failures_banned_total"), "banned"),
            ),
        ),
    ),
    "Storage and processes": (
        Panel(
            "Commit",
            "s",
            "From a group commit to Redis' answer.",
            (
                (quantile(0.5, "relay_commit_seconds"), "p50"),
                (quantile(0.99, "relay_commit_seconds"), "p99"),
            ),
        ),
        Panel(
            "Delivery",
            "s",
            "From a message to the socket of a receiver that keeps up.",
            (
                (quantile(0.5, "relay_delivery_seconds"), "p50"),
                (quantile(0.99, "relay_delivery_seconds"), "p99"),
            ),
        ),
        Panel(
            "Waiting for a commit",
            "bytes",
            "Grows when Redis is slower than the traffic.",
            (("sum(relay_commit_waiting_bytes)", "bytes"),),
        ),
        Panel(
            "Event loop",
            "s",
            "How late each worker is: above 0.1 it is short of processor time.",
            (("max by (host, worker) (relay_worker_loop_lag_seconds)", "{{host}}/{{worker}}"),),
        ),
        Panel(
            "Redis",
            "cps",
            "Connections made again, writes lost, messages only the periodic check found.",
            (
                (rate("relay_redis_reconnects_total"), "reconnects"),
                (rate("relay_redis_restarts_total"), "restarts"),
                (rate("relay_redis_went_back_total"), "went back"),
                (rate("relay_check_found_total"), "found by the check"),
            ),
        ),
    ),
}

FEDERATION: Final[dict[str, tuple[Panel, ...]]] = {
    "To other relays": (
        Panel(
            "Taken",
            "mps",
            "Messages each relay took.",
            ((rate("federation_message_success", "relay"), "{{relay}}"),),
        ),
        Panel(
            "Failed tries",
            "cps",
            "One message may fail several times before it is taken or expires.",
            ((rate("federation_message_error", "relay"), "{{relay}}"),),
        ),
        Panel(
            "Delivery",
            "s",
            "From the outbox to the other relay's answer, back-off included.",
            (
                (quantile(0.5, "federation_delivery_seconds"), "p50"),
                (quantile(0.99, "federation_delivery_seconds"), "p99"),
            ),
        ),
        Panel(
            "Back-off",
            "s",
            "Time a relay is left alone.",
            (("max by (relay) (federation_backoff_seconds) > 0", "{{relay}}"),),
        ),
    ),
    "What waits": (
        Panel(
            "Outbox",
            "short",
            "Messages for other relays.",
            (("sum(federation_outbox_messages)", "messages"),),
        ),
        Panel(
            "Oldest",
            "s",
            "Age of the oldest of them.",
            (("max(federation_outbox_oldest_seconds)", "age"),),
        ),
        Panel(
            "Given up",
            "mps",
            "By reason; their senders were told.",
            ((rate("federation_message_dropped_total", "reason"), "{{reason}}"),),
        ),
        Panel(
            "Dead letters",
            "short",
            "Failed for good in the last day; they can be sent again.",
            (("max(federation_dead_letters)", "letters"),),
        ),
    ),
    "From other relays": (
        Panel(
            "Taken",
            "mps",
            "Messages of other relays, and repeats that were not taken again.",
            (
                (rate("federation_inbound_accepted_total"), "taken"),
                (rate("federation_inbound_repeated_total"), "repeats"),
            ),
        ),
        Panel(
            "Refused",
            "mps",
            "By answer and reason.",
            (
                (
                    rate("federation_inbound_refused_total", "status", "reason"),
                    "{{status}} {{reason}}",
                ),
            ),
        ),
        Panel(
            "Checks waiting",
            "short",
            "Signatures that wait to be checked.",
            (("sum(federation_inbound_checks_waiting)", "waiting"),),
        ),
    ),
    "Chain": (
        Panel(
            "Height",
            "short",
            "The newest block, and the one all twins are known up to.",
            (
                ("max(relay_chain_head_block_number)", "head"),
                ("max(events_listener_last_processed_block_number)", "processed"),
            ),
        ),
        Panel(
            "Age of the newest block",
            "s",
            "A block comes each 6 s.",
            (("max(relay_chain_head_age_seconds)", "age"),),
        ),
        Panel(
            "Queries",
            "cps",
            "Of the chain for twins, and those no node answered.",
            (
                (rate("relay_chain_queries_total"), "queries"),
                (rate("relay_chain_query_failures_total"), "failed"),
            ),
        ),
    ),
}

DASHBOARDS: Final = {
    "relay": ("RMB relay", RELAY),
    "federation": ("RMB federation and chain", FEDERATION),
}


def panels(rows: dict[str, tuple[Panel, ...]]) -> Iterator[dict[str, Any]]:
    """Generate all panels with their positions."""
    number, top = 0, 0
    for row, members in rows.items():
        number += 1
        place = {"x": 0, "y": top, "w": WIDTH, "h": 1}
        yield {"id": number, "type": "row", "title": row, "collapsed": False, "gridPos": place}
        top += 1
        width = WIDTH // len(members)
        for index, panel in enumerate(members):
            number += 1
            yield {
                "id": number,
                "type": "timeseries",
                "title": panel.title,
                "description": panel.what,
                "datasource": SOURCE,
                "gridPos": {"x": index * width, "y": top, "w": width, "h": HEIGHT},
                "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
                "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
                "targets": [
                    {"refId": chr(ord("A") + at), "expr": query, "legendFormat": legend}
                    for at, (query, legend) in enumerate(panel.queries)
                ],
            }
        top += HEIGHT


def dashboard(name: str) -> str:
    """Return the content of one dashboard's file."""
    title, rows = DASHBOARDS[name]
    document = {
        "uid": f"rmb-{name}",
        "title": title,
        "tags": ["rmb"],
        "timezone": "browser",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [
                {
                    "name": "source",
                    "label": "Prometheus",
                    "type": "datasource",
                    "query": "prometheus",
                }
            ]
        },
        "panels": list(panels(rows)),
    }
    return json.dumps(document, indent=1) + "\n"


if __name__ == "__main__":
    for each in DASHBOARDS:
        Path(__file__).with_name(f"{each}.json").write_text(dashboard(each))
