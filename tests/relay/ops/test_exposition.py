"""`relay.ops.exposition`: one text for Prometheus from the heartbeats of all workers."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from relay.ops import exposition
from relay.ops.metric_names import METRICS, family, series
from relay.ops.workers import WorkerState, read_worker


def worker(slot: str, metrics: dict[str, float], **fields: str) -> WorkerState:
    state = read_worker(
        fields.pop("boot_id", f"boot-{slot}"),
        {"slot": slot, "host": "h", "sessions": "3", "loop_lag_ms": "1.5", "state": "ok", **fields},
    )
    return WorkerState(**{**{name: getattr(state, name) for name in state.__slots__},
                          "metrics": metrics})  # fmt: skip


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for found in text_string_to_metric_families(text)
        for sample in found.samples
    }


def test_names_are_unique_and_well_formed() -> None:
    names = [metric.name for metric in METRICS]
    assert len(names) == len(set(names))
    assert all(
        re.fullmatch(r"(relay|federation|events|sbd|mux|lattice)_[a-z_]+", name) for name in names
    )
    assert all(metric.help.endswith(".") for metric in METRICS)


def test_the_page_tells_of_each_metric() -> None:
    page = (Path(__file__).parents[3] / "docs/operate/metrics.md").read_text()
    rows = re.findall(r"^\| `(\w+)`(?: \*)? \| (\w+) \| ([^|]*) \| ([^|]*) \|$", page, re.MULTILINE)
    assert [(name, kind, labels.strip(), text) for name, kind, labels, text in rows] == [
        (metric.name, metric.kind, ", ".join(metric.labels), metric.help) for metric in METRICS
    ]


def test_what_no_worker_owns_has_no_label_of_one() -> None:
    text = exposition.render([worker("0", {})], {"federation_dead_letters": 3, "bad name": 1})
    assert "\nfederation_dead_letters 3\n" in text


def test_every_worker_has_its_own_series() -> None:
    text = exposition.render(
        [
            worker("0", {"relay_message_rx": 5, series("relay_messages_total", reason="empty"): 2}),
            worker("1", {"relay_message_rx": 7.5}),
        ]
    )
    found = samples(text)
    zero, one = (("host", "h"), ("worker", "0")), (("host", "h"), ("worker", "1"))
    assert found[("relay_message_rx_total", zero)] == 5 or found[("relay_message_rx", zero)] == 5
    assert 7.5 in found.values()
    assert found[("relay_messages_total", (zero[0], ("reason", "empty"), zero[1]))] == 2
    assert found[("relay_worker_connections", one)] == 3
    assert found[("relay_worker_loop_lag_seconds", one)] == 0.0015
    assert found[("relay_worker_state", (zero[0], ("state", "ok"), zero[1]))] == 1


def test_the_reference_names_keep_their_types() -> None:
    text = exposition.render([worker("0", {"relay_message_rx": 1, "relay_message_tx_bytes": 9})])
    assert "# TYPE relay_message_rx counter\nrelay_message_rx{" in text
    assert "# HELP relay_worker_connections RMB sessions held by the worker.\n" in text
    assert '\nrelay_worker_connections{worker="0",host="h"} 3\n' in text


def test_histograms_are_one_family() -> None:
    text = exposition.render(
        [
            worker(
                "0",
                {
                    'relay_commit_seconds_bucket{le="0.001"}': 1,
                    'relay_commit_seconds_bucket{le="+Inf"}': 2,
                    "relay_commit_seconds_sum": 0.5,
                    "relay_commit_seconds_count": 2,
                },
            )
        ]
    )
    assert text.count("relay_commit_seconds histogram") == 1
    families = {found.name: found for found in text_string_to_metric_families(text)}
    assert families["relay_commit_seconds"].type == "histogram"
    assert len(families["relay_commit_seconds"].samples) == 4
    assert family("relay_message_count") == "relay_message_count"


def test_of_two_heartbeats_for_one_slot_the_newer_counts() -> None:
    old = worker("0", {"relay_message_rx": 100}, boot_id="a", started="100")
    new = worker("0", {"relay_message_rx": 1}, boot_id="b", started="200")
    for order in ([old, new], [new, old]):
        text = exposition.render(order)
        assert text.count("\nrelay_message_rx{") == 1
        assert 'relay_message_rx{worker="0",host="h"} 1\n' in text


def test_undeclared_and_malformed_series_break_nothing() -> None:
    text = exposition.render(
        [worker("0", {"new_thing": 1, "bad name": 2, 'x{a="1"': 3, 'y{a="1\n"}': 4, "": 5})]
    )
    found = samples(text)
    assert [key[0] for key in found if "relay" not in key[0]] == ["new_thing"]
    assert "# TYPE new_thing untyped" in text


@given(st.text(), st.text(), st.dictionaries(st.text(), st.floats(allow_nan=False)))
def test_any_heartbeat_gives_a_readable_text(
    slot: str, label: str, metrics: dict[str, float]
) -> None:
    metrics = {**metrics, series("relay_messages_total", reason=label): 1.0}
    assert samples(exposition.render([worker(slot, metrics)]))


@given(st.dictionaries(st.sampled_from(sorted({
    "slot", "pid", "host", "started", "heartbeat", "sessions", "loop_lag_ms", "state", "metrics"
})), st.binary()))  # fmt: skip
def test_any_hash_is_a_worker(raw: dict[str, bytes]) -> None:
    exposition.render([read_worker("boot", raw)])
