"""Table `lattice_calls` in SQL."""

from __future__ import annotations

from typing import Final

QUERY: Final = """
WITH judged AS (
    SELECT *, us // 3600000000 AS number, kind = 'lattice_seen' AS seen,
        ifnull(reason, 'none') = 'none' AS ok,
        kind <> 'lattice_seen' AND ifnull(reason, 'none') IN
            ('no_policy', 'link', 'rate', 'size', 'malformed', 'not_found') AS refused,
        kind <> 'lattice_seen' AND ifnull(reason, 'none') = 'timed_out' AS late
    FROM of_all
    WHERE us >= $start AND us < $end AND protocol = 'lattice'
        AND kind IN ('lattice_out', 'lattice_in', 'lattice_seen')
),
named AS (
    SELECT * REPLACE (
        CASE WHEN refused OR seen AND NOT ok THEN '' ELSE ifnull(link, '') END AS link,
        CASE WHEN refused OR seen AND NOT ok THEN '' ELSE ifnull(contract, '') END AS contract,
        CASE WHEN refused OR seen AND NOT ok THEN '' ELSE ifnull(operation, '') END AS operation
    )
    FROM judged
)
SELECT
    strftime(make_timestamp(number * 3600000000), '%Y-%m-%d') AS period,
    make_timestamptz(number * 3600000000) AS hour,
    kind, link, contract, operation,
    count(*) AS calls,
    count(*) FILTER (ok) AS ok,
    count(*) FILTER (refused) AS refused,
    count(*) FILTER (late) AS timed_out,
    count(*) FILTER (NOT (ok OR refused OR late OR seen)) AS failed,
    count(*) FILTER (seen AND NOT ok) AS flagged,
    ifnull(sum(size_bytes), 0)::BIGINT AS bytes,
    ifnull(sum(answer_bytes), 0)::BIGINT AS answer_bytes,
    quantile_disc(latency_us, 0.50) AS p50_us,
    quantile_disc(latency_us, 0.95) AS p95_us,
    max(latency_us) AS max_us
FROM named
GROUP BY number, kind, link, contract, operation
QUALIFY row_number() OVER (
    PARTITION BY number ORDER BY count(*) DESC, kind, link, contract, operation
) <= 1000
"""
