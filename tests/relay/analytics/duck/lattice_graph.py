"""Table `lattice_graph` in SQL: one query for each kind of endpoints."""

from __future__ import annotations

from typing import Final

_ONE: Final = """
    SELECT us // 86400000000 AS day, kind, {src}::VARCHAR AS src, {dst}::VARCHAR AS dst,
        ifnull(reason, 'none') <> 'none' AS failed, size_bytes, answer_bytes
    FROM of_all
    WHERE kind = '{kind}' AND protocol = 'lattice' AND us >= $start AND us < $end
        AND ifnull(reason, 'none') {reasons}
"""

_PASSED: Final = "NOT IN ('no_policy', 'link', 'rate', 'size', 'malformed', 'not_found')"

_ALL: Final = " UNION ALL ".join(
    _ONE.format(kind=kind, src=src, dst=dst, reasons=reasons)
    for kind, src, dst, reasons in (
        ("lattice_out", "src_twin", "dst_key", _PASSED),
        ("lattice_in", "src_key", "dst_twin", _PASSED),
        ("lattice_seen", "src_key", "dst_key", "= 'none'"),
    )
)

QUERY: Final = f"""
SELECT
    strftime(make_timestamp(day * 86400000000), '%Y-%m-%d') AS period,
    kind,
    src,
    dst,
    count(*) AS calls,
    count(*) FILTER (failed) AS failed,
    ifnull(sum(size_bytes), 0)::BIGINT AS bytes,
    ifnull(sum(answer_bytes), 0)::BIGINT AS answer_bytes
FROM ({_ALL})
WHERE src <> '' AND dst <> ''
GROUP BY day, kind, src, dst
"""
