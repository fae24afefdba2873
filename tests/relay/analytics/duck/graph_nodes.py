"""Table `graph_nodes` in SQL: a recursive query finds groups by visiting every reachable twin."""

from __future__ import annotations

from typing import Final

from tests.relay.analytics.duck import graph_edges

QUERY: Final = f"""
WITH RECURSIVE edges AS ({graph_edges.QUERY}),
talks AS (
    SELECT period, src::BIGINT AS src, dst::BIGINT AS dst FROM edges WHERE link = 'talks'
),
ways AS (
    SELECT period, src AS here, dst AS there FROM talks
    UNION SELECT period, dst, src FROM talks
),
reached(period, here, there) AS (
    SELECT * FROM ways
    UNION
    SELECT reached.period, reached.here, ways.there
    FROM reached JOIN ways ON ways.period = reached.period AND ways.here = reached.there
),
nodes AS (
    SELECT period, 'twin' AS kind, src AS node FROM edges WHERE link IN ('talks', 'sends')
    UNION SELECT period, 'twin', dst FROM edges WHERE link IN ('talks', 'delivers')
    UNION SELECT period, 'relay', src FROM edges WHERE link IN ('hands', 'delivers')
    UNION SELECT period, 'relay', dst FROM edges WHERE link IN ('hands', 'sends')
),
plain AS (
    SELECT *, CASE link WHEN 'talks' THEN 'twin' ELSE 'relay' END AS kind
    FROM edges WHERE link IN ('talks', 'hands')
),
attached AS (
    SELECT DISTINCT period, 'twin' AS kind, src AS node, dst AS other FROM edges
    WHERE link = 'sends'
    UNION SELECT period, 'twin', dst, src FROM edges WHERE link = 'delivers'
    UNION SELECT period, 'relay', dst, src FROM edges WHERE link = 'sends'
    UNION SELECT period, 'relay', src, dst FROM edges WHERE link = 'delivers'
)
SELECT
    period,
    kind,
    node,
    ifnull(sent.messages, 0) AS sent,
    ifnull(sent.bytes, 0) AS sent_bytes,
    ifnull(received.messages, 0) AS received,
    ifnull(received.bytes, 0) AS received_bytes,
    ifnull(sent.nodes, 0) AS targets,
    ifnull(received.nodes, 0) AS sources,
    ifnull(near.nodes, 0) AS attached,
    CASE kind WHEN 'twin' THEN least(node::BIGINT, part.least_twin) END AS component
FROM nodes
LEFT JOIN (
    SELECT period, kind, src AS node, sum(messages)::BIGINT AS messages,
        sum(bytes)::BIGINT AS bytes, count(*) AS nodes
    FROM plain GROUP BY ALL
) AS sent USING (period, kind, node)
LEFT JOIN (
    SELECT period, kind, dst AS node, sum(messages)::BIGINT AS messages,
        sum(bytes)::BIGINT AS bytes, count(*) AS nodes
    FROM plain GROUP BY ALL
) AS received USING (period, kind, node)
LEFT JOIN (
    SELECT period, kind, node, count(*) AS nodes FROM attached GROUP BY ALL
) AS near USING (period, kind, node)
LEFT JOIN (
    SELECT period, 'twin' AS kind, here::VARCHAR AS node, min(there) AS least_twin
    FROM reached GROUP BY ALL
) AS part USING (period, kind, node)
"""
