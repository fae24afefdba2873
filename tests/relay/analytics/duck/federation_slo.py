"""Table `federation_slo` in SQL."""

from __future__ import annotations

from typing import Final

QUERY: Final = """
SELECT
    strftime(make_timestamp(us // 3600000000 * 3600000000), '%Y-%m-%d') AS period,
    make_timestamptz(us // 3600000000 * 3600000000) AS hour,
    ifnull(remote, '') AS remote,
    count(*) AS attempts,
    count(*) FILTER (reason = 'none') AS ok,
    count(*) FILTER (reason = 'none') * 1000 // count(*) AS permille,
    quantile_disc(latency_us, 0.95) AS p95_us
FROM events
WHERE us >= $start AND us < $end AND kind = 'federated_out'
GROUP BY us // 3600000000, ifnull(remote, '')
"""
