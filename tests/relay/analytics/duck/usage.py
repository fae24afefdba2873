"""Table `usage` in SQL: whole months, each computed from the sessions that its margins include."""

from __future__ import annotations

from typing import Final

QUERY: Final = """
WITH RECURSIVE months(first_day) AS (
    SELECT date_trunc('month', make_timestamp($start))::DATE
    UNION ALL
    SELECT (first_day + INTERVAL 1 MONTH)::DATE FROM months
    WHERE first_day + INTERVAL 1 MONTH < make_timestamp($end)
),
bounds AS (
    SELECT strftime(first_day, '%Y-%m') AS period, epoch_us(first_day::TIMESTAMP) AS from_us,
        epoch_us(first_day + INTERVAL 1 MONTH) AS to_us
    FROM months
),
newest AS (
    SELECT period, ifnull(relay, '') AS relay, max(us) AS newest
    FROM events JOIN bounds ON us >= from_us AND us < to_us
    WHERE kind IS NOT NULL
    GROUP BY ALL
),
messages AS (
    SELECT period, ifnull(src_twin, 0) AS twin,
        count(*) FILTER (kind = 'accepted') AS accepted,
        sum(size_bytes) FILTER (kind = 'accepted') AS accepted_bytes,
        count(*) FILTER (kind = 'delivered') AS delivered,
        sum(size_bytes) FILTER (kind = 'delivered') AS delivered_bytes,
        count(*) FILTER (kind = 'dropped') AS dropped
    FROM events JOIN bounds ON us >= from_us AND us < to_us
    WHERE kind IN ('accepted', 'delivered', 'dropped')
    GROUP BY period, ifnull(src_twin, 0)
),
seen AS (
    SELECT * FROM events JOIN bounds ON us >= from_us - 31 * 86400000000 AND us < to_us
    WHERE uid IS NOT NULL AND kind IN ('session_open', 'session_close')
),
sessions AS (
    SELECT period, uid, min(from_us) AS from_us, min(to_us) AS to_us,
        min(ifnull(relay, '')) AS relay, min(ifnull(src_twin, 0)) AS twin,
        min(ifnull(src_session, '')) AS session,
        min(us) FILTER (kind = 'session_open') AS opened,
        coalesce(
            min(us) FILTER (kind = 'session_close' AND reason IS DISTINCT FROM 'worker_lost'),
            min(us) FILTER (kind = 'session_close')
        ) AS closed,
        min(us - latency_us) FILTER (kind = 'session_close') AS began
    FROM seen
    GROUP BY period, uid
),
followed AS (
    SELECT *, lead(opened) OVER (
        PARTITION BY period, relay, twin, session ORDER BY opened NULLS FIRST, uid
    ) AS next
    FROM sessions
),
clipped AS (
    SELECT period, twin,
        greatest(0, coalesce(closed, least(next, newest), from_us)
            - greatest(from_us, coalesce(opened, began, closed))) AS open_us
    FROM followed LEFT JOIN newest USING (period, relay)
    WHERE closed >= from_us OR (closed IS NULL AND ifnull(next >= from_us, true))
),
connected AS (
    SELECT period, twin, sum(open_us) // 1000000 AS session_seconds FROM clipped GROUP BY ALL
)
SELECT
    period,
    twin,
    ifnull(accepted, 0) AS accepted,
    ifnull(accepted_bytes, 0)::BIGINT AS accepted_bytes,
    ifnull(delivered, 0) AS delivered,
    ifnull(delivered_bytes, 0)::BIGINT AS delivered_bytes,
    ifnull(dropped, 0) AS dropped,
    ifnull(session_seconds, 0)::BIGINT AS session_seconds
FROM messages FULL JOIN connected USING (period, twin)
"""
