"""Table `audit` in SQL, also over the table `gaps`: each kind of row is counted separately."""

from __future__ import annotations

from typing import Final

QUERY: Final = """
WITH seen AS (
    SELECT *, us // 86400000000 AS day, ifnull(relay, '') AS writer
    FROM events
    WHERE us >= $start - 86400000000 AND us < $end + 86400000000
        AND kind IS NOT NULL
),
handed AS (
    SELECT uid, us FROM seen
    WHERE kind = 'federated_out' AND reason = 'none'
        AND NOT EXISTS (FROM seen AS own WHERE own.day = seen.day AND own.writer = seen.remote)
),
uids AS (
    SELECT DISTINCT uid FROM (
        SELECT uid FROM seen WHERE kind IN ('accepted', 'delivered', 'dropped')
        UNION ALL SELECT uid FROM handed
    )
),
messages AS (
    SELECT
        uids.uid,
        a.us AS accepted_us,
        a.writer AS relay,
        ifnull(a.n, 0) AS na,
        ifnull(d.n, 0) AS nd,
        ifnull(x.n, 0) AS nx,
        ifnull(h.n, 0) AS nh,
        d.latency,
        ifnull(x.up, false) AS up,
        least(a.us, d.us, x.us, h.us) AS any_us
    FROM uids
    LEFT JOIN (
        SELECT uid, min(us) AS us, arg_min(writer, (us, writer)) AS writer, count(*) AS n
        FROM seen WHERE kind = 'accepted' GROUP BY uid
    ) AS a ON a.uid IS NOT DISTINCT FROM uids.uid
    LEFT JOIN (
        SELECT uid, min(us) AS us, min(latency_us) AS latency, count(*) AS n
        FROM seen WHERE kind = 'delivered' GROUP BY uid
    ) AS d ON d.uid IS NOT DISTINCT FROM uids.uid
    LEFT JOIN (
        SELECT uid, min(us) AS us, count(*) AS n,
            bool_or(ifnull(reason IN ('expired', 'queue_expired'), false)) AS up
        FROM seen WHERE kind = 'dropped' GROUP BY uid
    ) AS x ON x.uid IS NOT DISTINCT FROM uids.uid
    LEFT JOIN (
        SELECT uid, min(us) AS us, count(*) AS n FROM handed GROUP BY uid
    ) AS h ON h.uid IS NOT DISTINCT FROM uids.uid
),
judged AS (
    SELECT
        *,
        ifnull(accepted_us, any_us) // 86400000000 AS day,
        CASE
            WHEN nd > 0 OR nx > 0 THEN 'known'
            WHEN nh > 0 THEN 'handed'
            WHEN (
                SELECT max(seen.us) FROM seen
                WHERE seen.day BETWEEN accepted_us // 86400000000 - 1
                    AND accepted_us // 86400000000 + 1
            ) - accepted_us < 7200000000 THEN 'young'
            WHEN EXISTS (
                FROM gaps WHERE (lost IS NULL OR lost > 0)
                    AND from_us < accepted_us + 7200000000 AND to_us >= accepted_us
            ) THEN 'gap'
            ELSE 'never'
        END AS fate
    FROM messages
    WHERE ifnull(accepted_us, any_us) >= $start AND ifnull(accepted_us, any_us) < $end
),
audited AS (
    SELECT
        day,
        relay,
        count(*) AS uids,
        sum(na)::BIGINT AS accepted,
        count(*) FILTER (nd = 1) AS delivered_once,
        count(*) FILTER (nd > 1) AS duplicated,
        ifnull(sum(nd - 1) FILTER (nd > 1), 0)::BIGINT AS extra_deliveries,
        count(*) FILTER (latency > 60000000) AS late,
        count(*) FILTER (nx > 0) AS dropped,
        count(*) FILTER (up) AS expired,
        count(*) FILTER (nd > 0 AND nx > 0) AS conflicting,
        count(*) FILTER (fate = 'handed') AS handed_over,
        count(*) FILTER (fate = 'young') AS in_flight,
        count(*) FILTER (fate = 'gap') AS in_gap,
        count(*) FILTER (fate = 'never') AS unaccounted
    FROM judged
    GROUP BY day, relay
),
lost AS (
    SELECT from_us // 86400000000 AS day, relay, count(*) AS gaps,
        ifnull(sum(lost), 0)::BIGINT AS gap_events,
        ifnull(sum(ifnull(lost, estimated)), 0)::BIGINT AS gap_estimate,
        ifnull(sum(ifnull(lost, at_most)), 0)::BIGINT AS gap_at_most,
        count(*) FILTER (lost IS NULL AND estimated IS NULL) AS gaps_unknown
    FROM gaps
    WHERE (lost IS NULL OR lost > 0) AND from_us >= $start AND from_us < $end
    GROUP BY ALL
)
SELECT
    strftime(make_timestamp(ifnull(audited.day, lost.day) * 86400000000), '%Y-%m-%d') AS period,
    ifnull(audited.relay, lost.relay) AS relay,
    ifnull(uids, 0) AS uids,
    ifnull(accepted, 0) AS accepted,
    ifnull(delivered_once, 0) AS delivered_once,
    ifnull(duplicated, 0) AS duplicated,
    ifnull(extra_deliveries, 0) AS extra_deliveries,
    ifnull(late, 0) AS late,
    ifnull(dropped, 0) AS dropped,
    ifnull(expired, 0) AS expired,
    ifnull(conflicting, 0) AS conflicting,
    ifnull(handed_over, 0) AS handed_over,
    ifnull(in_flight, 0) AS in_flight,
    ifnull(in_gap, 0) AS in_gap,
    ifnull(unaccounted, 0) AS unaccounted,
    ifnull(gaps, 0) AS gaps,
    ifnull(gap_events, 0) AS gap_events,
    ifnull(gap_estimate, 0) AS gap_estimate,
    ifnull(gap_at_most, 0) AS gap_at_most,
    ifnull(gaps_unknown, 0) AS gaps_unknown
FROM audited FULL JOIN lost ON lost.day = audited.day AND lost.relay = audited.relay
"""
