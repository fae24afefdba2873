"""Table `top_twins` in SQL."""

from __future__ import annotations

from typing import Final

QUERY: Final = """
WITH days AS (
    SELECT us // 86400000000 AS day, ifnull(src_twin, 0) AS twin, ifnull(size_bytes, 0) AS size
    FROM events
    WHERE us >= $start AND us < $end AND kind = 'accepted'
),
twins AS (
    SELECT day, twin, count(*) AS messages, sum(size)::BIGINT AS bytes FROM days GROUP BY day, twin
)
SELECT
    strftime(make_timestamp(day * 86400000000), '%Y-%m-%d') AS period,
    row_number() OVER (PARTITION BY day ORDER BY bytes DESC, twin) AS place,
    twin,
    messages,
    bytes,
    ifnull((bytes::HUGEINT * 1000000 // nullif(sum(bytes) OVER (PARTITION BY day), 0))::BIGINT, 0)
        AS share_ppm
FROM twins
QUALIFY place <= 100
"""
