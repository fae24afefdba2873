"""Table `lattice_slow` in SQL."""

from __future__ import annotations

from typing import Final

QUERY: Final = """
WITH passed AS (
    SELECT us // 86400000000 AS day, kind, ifnull(dst_key, '') AS target, ifnull(link, '') AS link,
        ifnull(operation, '') AS operation, ifnull(reason, 'none') AS reason, latency_us
    FROM of_all
    WHERE us >= $start AND us < $end AND protocol = 'lattice'
        AND kind IN ('lattice_out', 'lattice_in') AND ifnull(reason, 'none') NOT IN
            ('no_policy', 'link', 'rate', 'size', 'malformed', 'not_found')
),
reasons AS (
    SELECT day, kind, target, link, operation, reason FROM passed WHERE reason <> 'none'
    GROUP BY day, kind, target, link, operation, reason
    QUALIFY row_number() OVER (
        PARTITION BY day, kind, target, link, operation ORDER BY count(*) DESC, reason
    ) = 1
),
each AS (
    SELECT day, kind, target, link, operation, count(*) AS calls,
        count(*) FILTER (reason <> 'none') AS failed,
        quantile_disc(latency_us, 0.50) AS p50_us,
        quantile_disc(latency_us, 0.95) AS p95_us,
        max(latency_us) AS max_us
    FROM passed
    GROUP BY day, kind, target, link, operation
    HAVING failed > 0 OR p95_us >= 1000000
)
SELECT
    strftime(make_timestamp(day * 86400000000), '%Y-%m-%d') AS period,
    row_number() OVER (
        PARTITION BY day
        ORDER BY failed DESC, p95_us DESC NULLS LAST, kind, target, link, operation
    ) AS place,
    kind, target, link, operation, calls, failed, ifnull(reason, '') AS reason,
    p50_us, p95_us, max_us
FROM each LEFT JOIN reasons USING (day, kind, target, link, operation)
QUALIFY place <= 100
"""
