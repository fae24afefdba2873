"""Table `storms` in SQL: openings at most ten minutes apart belong to the same storm."""

from __future__ import annotations

from typing import Final

QUERY: Final = """
WITH opened AS (
    SELECT ifnull(src_twin, 0) AS twin, coalesce(src_key, src_session, '') AS session, us, uid,
        ifnull(protocol, 'rmb') AS protocol
    FROM of_all
    WHERE kind = 'session_open'
        AND us >= $start - 86400000000 AND us < $end + 86400000000
),
numbered AS (
    SELECT *, sum(begins) OVER (PARTITION BY protocol, twin, session ORDER BY us, uid NULLS FIRST
        ROWS UNBOUNDED PRECEDING) AS number
    FROM (
        SELECT *, CASE WHEN us - lag(us, 1, us) OVER (
            PARTITION BY protocol, twin, session ORDER BY us, uid NULLS FIRST
        ) > 600000000 THEN 1 ELSE 0 END AS begins
        FROM opened
    )
),
grouped AS (
    SELECT *, min(us) OVER (PARTITION BY protocol, twin, session, number) AS first_us FROM numbered
)
SELECT
    strftime(make_timestamp(first_us), '%Y-%m-%d') AS period,
    twin,
    session,
    first_us,
    max(us) AS last_us,
    count(*) AS opens,
    protocol
FROM grouped
WHERE first_us >= $start AND first_us < $end
    AND us // 86400000000 - first_us // 86400000000 <= 1
GROUP BY protocol, twin, session, number, first_us
HAVING count(*) >= 5
"""
