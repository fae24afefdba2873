"""Table `traffic_matrix` in SQL: each first delivery, joined with acceptances around its time."""

from __future__ import annotations

from typing import Final

QUERY: Final = """
WITH given AS (
    SELECT uid, us, us // 86400000000 AS day, ifnull(relay, '') AS relay,
        ifnull(size_bytes, 0) AS size_bytes
    FROM events
    WHERE kind = 'delivered' AND us >= $start - 86400000000 AND us < $end
),
first_given AS (
    SELECT * FROM given
    WHERE us >= $start AND NOT EXISTS (
        FROM given AS earlier WHERE earlier.uid = given.uid AND earlier.day = given.day - 1
    )
    QUALIFY row_number() OVER (PARTITION BY uid, day ORDER BY us, relay, size_bytes) = 1
),
joined AS (
    SELECT first_given.*, ifnull(events.relay, '') AS origin
    FROM first_given JOIN events ON events.uid = first_given.uid AND events.kind = 'accepted'
        AND events.us >= (day - 1) * 86400000000
        AND events.us < (day + 1) * 86400000000 + 3600000000
    QUALIFY row_number() OVER (
        PARTITION BY first_given.uid, day ORDER BY events.us, ifnull(events.relay, '')
    ) = 1
)
SELECT
    strftime(make_timestamp(day * 86400000000), '%Y-%m-%d') AS period,
    origin,
    relay AS final,
    count(*) AS messages,
    sum(size_bytes)::BIGINT AS bytes
FROM joined
GROUP BY day, origin, relay
"""
