"""Models of the analytics: the ledger of the jobs, and results small enough for the database."""

from relay.analytics.models.lattice import LatticeForged, LatticeHour, LatticeSlow
from relay.analytics.models.ledger import Origin, Published, Run, RunState
from relay.analytics.models.live import LiveMinute, StreamState
from relay.analytics.models.results import (
    Anomaly,
    Concurrency,
    DeliveryAudit,
    FederationRank,
    FederationSlo,
    HotPair,
    ProtocolHour,
    RelayPairHour,
    Storm,
    TopKey,
    TopTwin,
    TrafficMatrix,
    Usage,
)

__all__ = [
    "Anomaly",
    "Concurrency",
    "DeliveryAudit",
    "FederationRank",
    "FederationSlo",
    "HotPair",
    "LatticeForged",
    "LatticeHour",
    "LatticeSlow",
    "LiveMinute",
    "Origin",
    "ProtocolHour",
    "Published",
    "RelayPairHour",
    "Run",
    "RunState",
    "Storm",
    "StreamState",
    "TopKey",
    "TopTwin",
    "TrafficMatrix",
    "Usage",
]
