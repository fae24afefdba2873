"""Table `hot_pairs` in SQL."""

from __future__ import annotations

from typing import Final

QUERY: Final = """
WITH days AS (
    SELECT us // 86400000000 AS day, ifnull(src_twin, 0) AS src,
        ifnull(dst_twin, 0) AS dst, ifnull(size_bytes, 0) AS size
    FROM events
    WHERE us >= $start AND us < $end AND kind = 'accepted'
),
pairs AS (
    SELECT day, src, dst, count(*) AS messages, sum(size)::BIGINT AS bytes
    FROM days
    GROUP BY ALL
)
SELECT
    strftime(make_timestamp(day * 86400000000), '%Y-%m-%d') AS period,
    row_number() OVER (PARTITION BY day ORDER BY bytes DESC, src, dst) AS place,
    src AS src_twin,
    dst AS dst_twin,
    messages,
    bytes,
    ifnull((bytes::HUGEINT * 1000000 // nullif(sum(bytes) OVER (PARTITION BY day), 0))::BIGINT, 0)
        AS share_ppm
FROM pairs
QUALIFY place <= 100
"""
