"""Table `anomalies` in SQL: the full grid of hours, and two medians of each list of 168 hours."""

from __future__ import annotations

from typing import Final

QUERY: Final = """
WITH counts AS (
    SELECT CASE WHEN protocol = 'sbd' THEN 'sbd' ELSE ifnull(src_twin, 0)::VARCHAR END AS sender,
        us // 3600000000 AS number, count(*) AS x
    FROM of_all
    WHERE kind = 'accepted'
        AND us >= $start - 8 * 86400000000 AND us < $end + 86400000000
    GROUP BY ALL
),
days AS (
    SELECT unnest(range($start // 86400000000, $end // 86400000000)) AS day
),
spans AS (
    SELECT day, min(number) AS first, max(number) AS last
    FROM days JOIN counts ON number >= (day - 8) * 24 AND number < (day + 2) * 24
    GROUP BY day
),
grid AS (
    SELECT sender, number, ifnull(x, 0) AS x
    FROM (SELECT DISTINCT sender FROM counts WHERE x >= 20)
    CROSS JOIN (
        SELECT unnest(range((SELECT min(first) FROM spans), (SELECT max(last) + 1 FROM spans)))
            AS number
    )
    LEFT JOIN counts USING (sender, number)
),
listed AS (
    SELECT sender, number, x, list(x) OVER (
        PARTITION BY sender ORDER BY number ROWS BETWEEN 168 PRECEDING AND 1 PRECEDING
    ) AS before
    FROM grid
),
medians AS (
    SELECT sender, number, x, before, list_sort(before)[84] AS med
    FROM listed JOIN spans ON day = number // 24
    WHERE len(before) = 168 AND number - 168 >= first AND number <= last
),
deviations AS (
    SELECT *, list_sort([abs(y - med) FOR y IN before])[84] AS mad FROM medians
)
SELECT
    strftime(make_timestamp(number * 3600000000), '%Y-%m-%d') AS period,
    make_timestamptz(number * 3600000000) AS hour,
    ifnull(try_cast(sender AS BIGINT), 0) AS twin,
    x AS accepted,
    med AS median,
    mad AS deviation,
    CASE WHEN sender = 'sbd' THEN 'sbd' ELSE 'rmb' END AS protocol
FROM deviations
WHERE abs(x - med) >= 20 AND abs(x - med) * 10000 >= 6 * 14826 * greatest(mad, 1)
"""
