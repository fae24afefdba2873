"""Run one job with DuckDB: `python -m tests.bench.analytics.duckdb_side LAKE OUT MEMORY JOB`.

Each job is a separate process, which prints its figures as JSON: DuckDB has no session that would
have to be warmed up, and the peak of the process's memory is then that of the job. The queries are
those that the jobs are tested with, except the one of the audit job, because the tested one is
written for small and nasty data.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Final

import duckdb

from relay.analytics.spark.catalogue import JOBS, Job
from tests.bench.analytics.events import WINDOW
from tests.relay.analytics import duck

AUDIT: Final = """
WITH seen AS (
    SELECT us // 86400000000 AS day, relay, max(us) AS newest FROM events GROUP BY ALL
),
newest AS (
    SELECT near.day, max(seen.newest) AS newest
    FROM (SELECT DISTINCT day FROM seen) AS near
    JOIN seen ON seen.day BETWEEN near.day - 1 AND near.day + 1
    GROUP BY near.day
),
messages AS (
    SELECT
        uid,
        min(us) FILTER (kind = 'accepted') AS accepted_us,
        arg_min(relay, us) FILTER (kind = 'accepted') AS relay,
        min(us) AS any_us,
        count(*) FILTER (kind = 'accepted') AS na,
        count(*) FILTER (kind = 'delivered') AS nd,
        count(*) FILTER (kind = 'dropped') AS nx,
        count(*) FILTER (kind = 'dropped' AND reason IN ('expired', 'queue_expired')) AS ne,
        count(*) FILTER (kind = 'federated_out') AS nh,
        min(latency_us) FILTER (kind = 'delivered') AS latency
    FROM (
        FROM events WHERE kind IN ('accepted', 'delivered', 'dropped') UNION ALL BY NAME
        FROM events WHERE kind = 'federated_out' AND reason = 'none' AND NOT EXISTS (
            FROM seen WHERE seen.day = events.us // 86400000000 AND seen.relay = events.remote
        )
    )
    GROUP BY uid
),
dated AS (
    SELECT *, ifnull(accepted_us, any_us) AS moment,
        ifnull(accepted_us, any_us) // 86400000000 AS day,
        nd = 0 AND nx = 0 AND nh = 0 AS nothing
    FROM messages
)
SELECT
    strftime(make_timestamp(dated.day * 86400000000), '%Y-%m-%d') AS period,
    relay,
    count(*) AS uids,
    sum(na)::BIGINT AS accepted,
    count(*) FILTER (nd = 1) AS delivered_once,
    count(*) FILTER (nd > 1) AS duplicated,
    ifnull(sum(nd - 1) FILTER (nd > 1), 0)::BIGINT AS extra_deliveries,
    count(*) FILTER (latency > 60000000) AS late,
    count(*) FILTER (nx > 0) AS dropped,
    count(*) FILTER (ne > 0) AS expired,
    count(*) FILTER (nd > 0 AND nx > 0) AS conflicting,
    count(*) FILTER (nd = 0 AND nx = 0 AND nh > 0) AS handed_over,
    count(*) FILTER (nothing AND newest - moment < 7200000000) AS in_flight,
    0::BIGINT AS in_gap,
    count(*) FILTER (nothing AND newest - moment >= 7200000000) AS unaccounted,
    0::BIGINT AS gaps,
    0::BIGINT AS gap_events,
    0::BIGINT AS gap_estimate,
    0::BIGINT AS gap_at_most,
    0::BIGINT AS gaps_unknown
FROM dated JOIN newest ON newest.day = dated.day
WHERE moment >= $start AND moment < $end
GROUP BY dated.day, relay
"""
"""Query of the audit job: one group by uid, as fast as possible if no recorder lost events."""


def main(lake: Path, out: Path, memory: str, job: Job) -> None:
    """Compute a job, and print its seconds, CPU seconds and peak memory as JSON."""
    began_s, cpu_s = time.perf_counter(), time.process_time()
    connection = duckdb.connect(config={"memory_limit": memory})
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"SET temp_directory = '{out}/spilled'")
    # If Spark reads the events once for several tables, so does DuckDB.
    chosen = f"WHERE kind IN {job.of_kinds}" if job.of_kinds else ""
    connection.execute(
        f"CREATE {'TABLE' if job.of_kinds else 'VIEW'} of_all AS "
        "SELECT *, epoch_us(event_time) AS us "
        f"FROM read_parquet('{lake}/events/*/*/*.parquet', hive_partitioning = false) {chosen}"
    )
    connection.execute("CREATE VIEW events AS SELECT * FROM of_all WHERE protocol = 'rmb'")
    window = {"start": WINDOW.start_us, "end": WINDOW.end_us}
    for table in job.tables:
        query = AUDIT if table.name == "audit" else duck.query(table.name)
        connection.execute(f"COPY ({query}) TO '{out}/{table.name}.parquet'", window)
    told = {
        "s": time.perf_counter() - began_s,
        "cpu_s": time.process_time() - cpu_s,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], JOBS[sys.argv[4]])
