"""Table `graph_edges` in SQL: one query for each of the four links."""

from __future__ import annotations

from typing import Final

_ONE: Final = """
    SELECT us // 86400000000 AS day, '{link}' AS link, {src}::VARCHAR AS src,
        {dst}::VARCHAR AS dst, size_bytes
    FROM events
    WHERE kind = '{kind}' AND us >= $start AND us < $end AND {further}
"""

_ALL: Final = " UNION ALL ".join(
    _ONE.format(link=link, src=src, dst=dst, kind=kind, further=further)
    for link, src, dst, kind, further in (
        ("sends", "src_twin", "relay", "accepted", "true"),
        ("hands", "relay", "remote", "federated_out", "reason = 'none'"),
        ("delivers", "relay", "dst_twin", "delivered", "true"),
        ("talks", "src_twin", "dst_twin", "delivered", "true"),
    )
)

QUERY: Final = f"""
SELECT
    strftime(make_timestamp(day * 86400000000), '%Y-%m-%d') AS period,
    link,
    src,
    dst,
    count(*) AS messages,
    ifnull(sum(size_bytes), 0)::BIGINT AS bytes
FROM ({_ALL})
WHERE src IS NOT NULL AND dst IS NOT NULL
GROUP BY day, link, src, dst
"""
