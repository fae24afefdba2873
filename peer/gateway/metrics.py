"""The opt-in Prometheus endpoint: `--metrics-listen 127.0.0.1:9100`, path /metrics.

The gateway counts in its event loop; the endpoint answers in a thread of its own, and reads the
counters at each scrape. A counter's name may have a reason after a colon, which becomes a label:
`refused:expired` is `rmb_peer_refused_total{reason="expired"}`. `docs/operate/peer.md` lists all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from peer.arguments import UsageError

PREFIX: Final = "rmb_peer"


class RelayFigures(NamedTuple):
    """Figures of the session at one relay."""

    relay: str
    connected: bool
    sessions: int
    """Number of times the session was opened."""


class Figures(NamedTuple):
    """The figures that the endpoint shows."""

    counters: Mapping[str, int]
    gauges: Mapping[str, float]
    relays: tuple[RelayFigures, ...]


class GatewayCollector(Collector):
    """Collector that exposes the figures of a gateway as metrics.

    Args:
        read: returns the figures; called for each scrape, in the endpoint's thread.
        help_texts: descriptions of names; the default is the name itself.
    """

    def __init__(self, read: Callable[[], Figures], help_texts: Mapping[str, str]) -> None:
        self._read = read
        self._help = help_texts

    def collect(self) -> Iterator[Metric]:
        figures = self._read()
        yield from self._counters(figures.counters)
        for name, value in sorted(figures.gauges.items()):
            yield GaugeMetricFamily(f"{PREFIX}_{name}", self._text(name), value)
        connected = GaugeMetricFamily(
            f"{PREFIX}_relay_connected", "1 while signed in at the relay.", labels=["relay"]
        )
        sessions = CounterMetricFamily(
            f"{PREFIX}_relay_sessions", "Sessions opened at the relay.", labels=["relay"]
        )
        for relay in figures.relays:
            connected.add_metric([relay.relay], relay.connected)
            sessions.add_metric([relay.relay], relay.sessions)
        yield connected
        yield sessions

    def _counters(self, counters: Mapping[str, int]) -> Iterator[Metric]:
        families: dict[str, CounterMetricFamily] = {}
        for key, value in sorted(counters.items()):
            name, colon, reason = key.partition(":")
            if name not in families:
                families[name] = CounterMetricFamily(
                    f"{PREFIX}_{name}", self._text(name), labels=["reason"] if colon else []
                )
            families[name].add_metric([reason] if colon else [], value)
        return iter(families.values())

    def _text(self, name: str) -> str:
        return self._help.get(name) or name.replace("_", " ")


@contextlib.contextmanager
def serving(
    address: tuple[str, int], read: Callable[[], Figures], help_texts: Mapping[str, str]
) -> Iterator[str]:
    """Serve metrics within the context, and yield the URL to scrape.

    Raises:
        UsageError: the address cannot be listened on.
    """
    registry = CollectorRegistry()
    registry.register(GatewayCollector(read, help_texts))
    ProcessCollector(registry=registry)
    host, port = address
    shown = f"[{host}]" if ":" in host else host
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise UsageError(f"--metrics-listen {shown}:{port}: {error.strerror}") from None
    try:
        yield f"http://{shown}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
