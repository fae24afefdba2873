"""Table `federation_rank` in SQL: hourly failures, weighted by their age at the end of the day."""

from __future__ import annotations

from typing import Final

QUERY: Final = """
WITH hours AS (
    SELECT
        us // 86400000000 AS day,
        23 - us % 86400000000 // 3600000000 AS age_h,
        ifnull(remote, '') AS remote,
        count(*) FILTER (reason IS DISTINCT FROM 'none') AS failures
    FROM events
    WHERE us >= $start AND us < $end AND kind = 'federated_out'
    GROUP BY ALL
),
scores AS (
    SELECT day, remote, sum(failures)::BIGINT AS failures,
        sum(failures * (2 ** (23 - age_h))::BIGINT)::BIGINT AS score
    FROM hours
    GROUP BY day, remote
)
SELECT
    strftime(make_timestamp(day * 86400000000), '%Y-%m-%d') AS period,
    row_number() OVER (PARTITION BY day ORDER BY score, remote) AS place,
    remote,
    failures,
    score
FROM scores
"""
