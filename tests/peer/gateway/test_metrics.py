"""The metrics endpoint, scraped as Prometheus does."""

from __future__ import annotations

import re
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from peer.arguments import UsageError
from peer.gateway import app, incoming, metrics
from peer.gateway.metrics import Figures, RelayFigures
from proto.rmb.errors import EnvelopeError


def scrape(url: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    with urllib.request.urlopen(url) as answer:
        text = answer.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_what_is_counted_is_what_is_shown() -> None:
    counters = Counter({"requests_sent": 3, "refused:expired": 2, "refused:malformed": 1})
    relays = (RelayFigures("wss://r1.example", True, 4), RelayFigures("wss://r2.example", False, 0))

    def read() -> Figures:
        return Figures(dict(counters), {"waiting": 5.0}, relays)

    texts = {"requests_sent": "Requests sent.", "waiting": "Messages that wait."}
    with metrics.serving(("127.0.0.1", 0), read, texts) as url:
        first = scrape(url)
        counters["requests_sent"] += 1
        second = scrape(url)
        with urllib.request.urlopen(url) as answer:
            assert b"# HELP rmb_peer_requests_sent_total Requests sent." in answer.read()
    assert first["rmb_peer_requests_sent_total", ()] == 3
    assert second["rmb_peer_requests_sent_total", ()] == 4
    assert first["rmb_peer_refused_total", (("reason", "expired"),)] == 2
    assert first["rmb_peer_refused_total", (("reason", "malformed"),)] == 1
    assert first["rmb_peer_waiting", ()] == 5
    assert first["rmb_peer_relay_connected", (("relay", "wss://r1.example"),)] == 1
    assert first["rmb_peer_relay_connected", (("relay", "wss://r2.example"),)] == 0
    assert first["rmb_peer_relay_sessions_total", (("relay", "wss://r1.example"),)] == 4
    assert first["process_resident_memory_bytes", ()] > 0


def test_every_counter_begins_at_0() -> None:
    """Every counter starts at 0: one that appears only with its first event hides that increase."""
    source = "".join(path.read_text() for path in Path(app.__file__).parent.glob("*.py"))
    counted = set(re.findall(r'counters\["([^"]+)"\] \+= ', source))
    assert len(counted) > 10
    names = {f"{name}:{each}" for name, reasons in app.REASONS.items() for each in reasons}
    names |= set(app.COUNTERS) - set(app.REASONS)
    assert counted <= names
    codes = {str(each.code) for each in (EnvelopeError, *EnvelopeError.__subclasses__())}
    codes |= {str(error.code) for error in incoming.UNWRITTEN.values()}
    assert codes == set(app.REASONS["rejected"])


def test_an_address_in_use_is_told() -> None:
    def read() -> Figures:
        return Figures({}, {}, ())

    with metrics.serving(("127.0.0.1", 0), read, {}) as url:
        port = int(url.rpartition(":")[2].partition("/")[0])
        with (
            pytest.raises(UsageError, match=rf"--metrics-listen 127.0.0.1:{port}: Address already"),
            metrics.serving(("127.0.0.1", port), read, {}),
        ):
            pass
