"""Table `concurrency` in SQL: one running sum for each relay and protocol, over all rows read."""

from __future__ import annotations

from typing import Final

QUERY: Final = """
WITH sessions AS (
    SELECT ifnull(relay, '') AS relay, ifnull(protocol, 'rmb') AS protocol, uid,
        min(us) FILTER (kind = 'session_open') AS opened,
        coalesce(
            min(us) FILTER (kind = 'session_close' AND reason IS DISTINCT FROM 'worker_lost'),
            min(us) FILTER (kind = 'session_close')
        ) AS closed
    FROM of_all
    WHERE kind IN ('session_open', 'session_close') AND uid IS NOT NULL
        AND us >= $start - 31 * 86400000000 AND us < $end
    GROUP BY ALL
    HAVING opened IS NOT NULL
),
steps AS (
    SELECT relay, protocol, opened AS us, 1 AS step, true AS seen FROM sessions
    UNION ALL
    SELECT relay, protocol, CASE
        WHEN closed IS NULL OR closed > opened + 31 * 86400000000 THEN opened + 31 * 86400000000
        WHEN closed < opened THEN opened
        ELSE closed END, -1, ifnull(closed <= opened + 31 * 86400000000, false)
    FROM sessions
),
running AS (
    SELECT relay, protocol, us, step, seen, us // 3600000000 AS number,
        sum(step) OVER (
            PARTITION BY relay, protocol ORDER BY us, step ROWS UNBOUNDED PRECEDING
        ) AS now
    FROM steps
),
hours AS (
    SELECT relay, protocol, number, bool_or(seen) AS seen, max(now) AS most,
        arg_min(now - step, (us, step)) AS carried
    FROM running
    GROUP BY relay, protocol, number
)
SELECT
    strftime(make_timestamp(number * 3600000000), '%Y-%m-%d') AS period,
    relay,
    make_timestamptz(number * 3600000000) AS hour,
    greatest(most, carried)::BIGINT AS peak,
    protocol
FROM hours
WHERE seen AND number * 3600000000 >= $start AND number * 3600000000 < $end
"""
