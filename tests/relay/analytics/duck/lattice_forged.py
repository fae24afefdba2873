"""Table `lattice_forged` in SQL."""

from __future__ import annotations

from typing import Final

QUERY: Final = """
SELECT
    strftime(make_timestamp(us // 86400000000 * 86400000000), '%Y-%m-%d') AS period,
    row_number() OVER (
        PARTITION BY us // 86400000000
        ORDER BY count(*) DESC, ifnull(src_key, ''), ifnull(host_id, ''), reason
    ) AS place,
    ifnull(src_key, '') AS origin,
    ifnull(host_id, '') AS host_id,
    reason,
    count(*) AS invocations,
    count(DISTINCT nullif(dst_key, '')) AS targets,
    ifnull(sum(size_bytes), 0)::BIGINT AS bytes,
    min(us) AS first_us,
    max(us) AS last_us
FROM of_all
WHERE us >= $start AND us < $end AND protocol = 'lattice' AND kind = 'lattice_seen'
    AND reason <> 'none'
GROUP BY us // 86400000000, ifnull(src_key, ''), ifnull(of_all.host_id, ''), reason
QUALIFY place <= 1000
"""
