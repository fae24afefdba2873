"""Which model holds which table of results, and their columns."""

from __future__ import annotations

from typing import Final

from relay.analytics.models import results
from relay.analytics.models.results import Result

MODEL_OF: Final[dict[str, type[Result]]] = {
    "relay_pair_hour": results.RelayPairHour,
    "traffic_matrix": results.TrafficMatrix,
    "storms": results.Storm,
    "concurrency": results.Concurrency,
    "federation_slo": results.FederationSlo,
    "federation_rank": results.FederationRank,
    "anomalies": results.Anomaly,
    "top_twins": results.TopTwin,
    "hot_pairs": results.HotPair,
    "usage": results.Usage,
    "audit": results.DeliveryAudit,
}
"""Those that the catalogue has in the database."""


def columns(table: str) -> list[str]:
    """The columns of a table, in the order of its schema.

    Raises:
        KeyError: it is not in the database.
    """
    return [field.name for field in MODEL_OF[table]._meta.fields if not field.primary_key]
