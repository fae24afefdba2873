"""Table `top_keys` in SQL."""

from __future__ import annotations

from typing import Final

QUERY: Final = """
WITH keys AS (
    SELECT us // 86400000000 AS day, ifnull(src_key, '') AS key, count(*) AS messages,
        ifnull(sum(size_bytes), 0)::BIGINT AS bytes
    FROM of_all
    WHERE us >= $start AND us < $end AND kind = 'accepted' AND protocol = 'sbd'
    GROUP BY ALL
)
SELECT
    strftime(make_timestamp(day * 86400000000), '%Y-%m-%d') AS period,
    row_number() OVER (PARTITION BY day ORDER BY bytes DESC, key) AS place,
    key,
    messages,
    bytes,
    ifnull((bytes::HUGEINT * 1000000 // nullif(sum(bytes) OVER (PARTITION BY day), 0))::BIGINT, 0)
        AS share_ppm
FROM keys
QUALIFY place <= 100
"""
