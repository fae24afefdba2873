"""The rows of the bench by name, in the order they run."""

from __future__ import annotations

from collections.abc import Callable

from tests.bench.bench import Bench
from tests.bench.figures import Row
from tests.bench.rows import (
    analytics,
    chain,
    client,
    compaction,
    dashboards,
    federation,
    floods,
    gateways,
    processes,
    queues,
    recorder,
    sessions,
    soak,
    throughput,
    traced,
    uploads,
)

ROWS: dict[str, Callable[[Bench], Row]] = {
    "pairs": throughput.pairs,
    "many-pairs": throughput.many_pairs,
    "large": throughput.large,
    "fan-in": throughput.fan_in,
    "single": throughput.single,
    "append-only": throughput.append_only,
    "traced": traced.traced,
    "recorder": recorder.recorder,
    "dashboards": dashboards.dashboards,
    "absent": queues.absent,
    "idle": sessions.idle,
    "slow": sessions.slow,
    "beside": sessions.beside,
    "soak": soak.soak,
    "floods": floods.floods,
    "floods-two": floods.floods_two,
    "crossing": processes.crossing,
    "outage": processes.outage,
    "take-over": processes.take_over,
    "relays-signed": federation.crossing_signed,
    "relays-trusted": federation.crossing_trusted,
    "relays-single": federation.crossing_single,
    "relays-alone": federation.crossing_alone,
    "partner-away": federation.partner_away,
    "look-ups": chain.look_ups,
    "client-calls": client.client_calls,
    "gateway-single": gateways.single,
    "gateway-100": gateways.hundred,
    "upload": uploads.upload,
    "compaction": compaction.compaction,
    "analytics": analytics.jobs,
    "analytics-growth": analytics.growth,
    "analytics-cold": analytics.cold,
    "analytics-all": analytics.whole,
    "analytics-cluster": analytics.clustered,
    "analytics-stream": analytics.stream,
}
