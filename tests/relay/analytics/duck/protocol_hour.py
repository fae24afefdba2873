"""Table `protocol_hour` in SQL."""

from __future__ import annotations

from typing import Final

QUERY: Final = """
SELECT
    strftime(make_timestamp(us // 3600000000 * 3600000000), '%Y-%m-%d') AS period,
    make_timestamptz(us // 3600000000 * 3600000000) AS hour,
    ifnull(relay, '') AS relay,
    ifnull(protocol, 'rmb') AS protocol,
    count(*) FILTER (kind = 'session_open') AS opened,
    count(*) FILTER (kind = 'session_close') AS closed,
    count(*) FILTER (kind = 'accepted') AS accepted,
    ifnull(sum(size_bytes) FILTER (kind = 'accepted'), 0)::BIGINT AS accepted_bytes,
    count(*) FILTER (kind = 'delivered') AS delivered,
    ifnull(sum(size_bytes) FILTER (kind = 'delivered'), 0)::BIGINT AS delivered_bytes,
    count(*) FILTER (kind = 'dropped') AS dropped,
    ifnull(sum(size_bytes) FILTER (kind = 'dropped'), 0)::BIGINT AS dropped_bytes
FROM of_all
WHERE us >= $start AND us < $end
    AND kind IN ('session_open', 'session_close', 'accepted', 'delivered', 'dropped')
GROUP BY us // 3600000000, ifnull(relay, ''), ifnull(protocol, 'rmb')
"""
