"""Table `sessions` in SQL: a join of the first opening with the first closing of each uid."""

from __future__ import annotations

from typing import Final

QUERY: Final = """
WITH found AS (
    SELECT uid, us, kind, ifnull(relay, '') AS relay, ifnull(src_twin, 0) AS twin,
        coalesce(src_key, src_session, '') AS session, latency_us, reason,
        ifnull(protocol, 'rmb') AS protocol
    FROM of_all
    WHERE kind IN ('session_open', 'session_close') AND uid IS NOT NULL
        AND us >= $start - 86400000000 AND us < $end + 7 * 86400000000
    QUALIFY row_number() OVER (PARTITION BY uid, kind ORDER BY
        kind = 'session_close' AND reason IS NOT DISTINCT FROM 'worker_lost', us, relay NULLS FIRST,
        twin, session, latency_us NULLS FIRST, reason NULLS FIRST) = 1
),
joined AS (
    SELECT opening.*, closing.us AS closed_us, closing.latency_us AS measured_us,
        closing.reason AS why
    FROM found AS opening
    LEFT JOIN found AS closing ON closing.uid = opening.uid AND closing.kind = 'session_close'
        AND closing.us < (opening.us // 86400000000 + 8) * 86400000000
    WHERE opening.kind = 'session_open' AND opening.us >= $start AND opening.us < $end
)
SELECT
    strftime(make_timestamp(us), '%Y-%m-%d') AS period,
    relay,
    twin,
    session,
    uid,
    us AS opened_us,
    closed_us,
    CASE WHEN closed_us IS NOT NULL
        THEN greatest(0, ifnull(measured_us, closed_us - us)) END AS duration_us,
    why AS reason,
    protocol
FROM joined
"""
