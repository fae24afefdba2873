"""Table `relay_pair_hour` in SQL."""

from __future__ import annotations

from typing import Final

QUERY: Final = """
SELECT
    strftime(make_timestamp(us // 3600000000 * 3600000000), '%Y-%m-%d') AS period,
    make_timestamptz(us // 3600000000 * 3600000000) AS hour,
    ifnull(relay, '') AS relay,
    ifnull(remote, '') AS remote,
    count(*) AS attempts,
    ifnull(sum(size_bytes), 0)::BIGINT AS bytes,
    quantile_disc(latency_us, 0.5) AS p50_us,
    quantile_disc(latency_us, 0.95) AS p95_us,
    quantile_disc(latency_us, 0.99) AS p99_us,
    count(*) FILTER (reason IS DISTINCT FROM 'none') AS failed
FROM events
WHERE us >= $start AND us < $end AND kind = 'federated_out'
GROUP BY us // 3600000000, ifnull(relay, ''), ifnull(remote, '')
"""
