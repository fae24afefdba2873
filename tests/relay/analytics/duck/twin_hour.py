"""Table `twin_hour` in SQL."""

from __future__ import annotations

from typing import Final

from proto.rmb.reasons import MessageReason

_REASONS: Final = [reason.value for reason in MessageReason]

_DROPPED: Final = "".join(
    f", count(*) FILTER (kind = 'dropped' AND reason = '{reason}') AS dropped_{reason}"
    for reason in _REASONS
)

QUERY: Final = f"""
SELECT
    strftime(make_timestamp(us // 3600000000 * 3600000000), '%Y-%m-%d') AS period,
    make_timestamptz(us // 3600000000 * 3600000000) AS hour,
    ifnull(src_twin, 0) AS src_twin,
    count(*) FILTER (kind = 'accepted') AS accepted,
    ifnull(sum(size_bytes) FILTER (kind = 'accepted'), 0)::BIGINT AS accepted_bytes,
    count(*) FILTER (kind = 'delivered') AS delivered,
    ifnull(sum(size_bytes) FILTER (kind = 'delivered'), 0)::BIGINT AS delivered_bytes,
    quantile_disc(latency_us, 0.5) FILTER (kind = 'delivered') AS p50_us,
    quantile_disc(latency_us, 0.95) FILTER (kind = 'delivered') AS p95_us,
    quantile_disc(latency_us, 0.99) FILTER (kind = 'delivered') AS p99_us
    {_DROPPED},
    count(*) FILTER (kind = 'dropped' AND (reason IS NULL OR reason NOT IN {tuple(_REASONS)}))
        AS dropped_other
FROM events
WHERE us >= $start AND us < $end AND kind IN ('accepted', 'delivered', 'dropped')
GROUP BY us // 3600000000, ifnull(src_twin, 0)
"""
