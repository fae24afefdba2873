"""The analytics pages: results of jobs by days and months, and files to download."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from django.test import Client
from django.utils import timezone
from django.utils.html import strip_tags
from pyarrow import parquet

from relay.access.matrix import Role
from relay.analytics.models import LiveMinute, RunState, StreamState
from relay.analytics.results import columns
from tests.relay.dashboard.conftest import SignIn
from tests.support.analytics_results import KEY, a_run, fill, hour, publish
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db

PAGE = "/console/analytics/"
PAGES = {
    PAGE: "traffic_matrix",
    f"{PAGE}federation/": "federation_slo",
    f"{PAGE}lattice/": "lattice_calls",
    f"{PAGE}sessions/": "concurrency",
    f"{PAGE}anomalies/": "anomalies",
    f"{PAGE}busiest/": "top_twins",
    f"{PAGE}usage/": "usage",
    f"{PAGE}delivery/": "audit",
    f"{PAGE}graph/": "graph_nodes",
}
US = 1_000_000
SBD = {"protocol": "sbd"}
AUDIT = {
    name: 0
    for name in (
        *("uids", "accepted", "delivered_once", "duplicated", "extra_deliveries", "late"),
        *("dropped", "expired", "conflicting", "handed_over", "in_flight", "in_gap"),
        *("unaccounted", "gaps", "gap_events", "gap_estimate", "gap_at_most", "gaps_unknown"),
    )
}


@pytest.fixture
def client(sign_in: SignIn, site_redis: RedisServer) -> Client:
    return sign_in(Role.VIEWER)


def shown(client: Client, path: str, status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status, (path, answer.status_code, answer.content[-500:])
    return answer.content.decode()


def exported(client: Client, path: str) -> list[dict[str, object]]:
    answer = client.get(path)
    assert answer.status_code == 200, path
    found: list[dict[str, object]] = json.loads(answer.getvalue())
    return found


@pytest.mark.parametrize("path", PAGES)
def test_before_there_are_results_pages_say_what_to_do(client: Client, path: str) -> None:
    text = shown(client, path)
    assert "No results yet" in text and "rmb_analytics run" in text
    assert "RMB_ANALYTICS__RECORD=1" in text, "the recorder is off"


@pytest.mark.parametrize("path", [path for path in PAGES if path != f"{PAGE}usage/"])
def test_days_without_rows(client: Client, path: str) -> None:
    publish(PAGES[path], "2026-11-03")
    text = shown(client, path)
    assert "2026-11-03" in text and 'class="c-empty"' in text
    # A query written by hand is answered or refused; it never causes a server error.
    assert "No results" not in shown(client, f"{path}?from=2026-11-01&to=2026-11-02")
    for bad in ("from=x", "day=2026-13-01", "from=0001-01-01", "from=2026-11-04&to=2026-11-01"):
        assert client.get(f"{path}?{bad}").status_code in (200, 422)
    assert client.get(f"{path}?from=2020-01-01&to=2026-11-01").status_code in (200, 422)


def test_traffic(client: Client) -> None:
    rows = [
        {"origin": "a.example", "final": "b.example", "messages": 12_000, "bytes": 2048},
        {"origin": "b.example", "final": "b.example", "messages": 3, "bytes": 4_194_304},
    ]
    publish("traffic_matrix", "2026-11-02", rows)
    publish("traffic_matrix", "2026-11-03", rows[:1])
    assert "Packets" not in shown(client, PAGE), "nobody uses SBD"
    of_hour = {name: 0 for name in columns("protocol_hour")} | {"hour": hour(3), "relay": "a"}
    sbd = of_hour | {"protocol": "sbd", "accepted": 7_000, "accepted_bytes": 2048, "dropped": 17}
    del sbd["period"]
    publish("protocol_hour", "2026-11-03", [sbd, {**sbd, "protocol": "rmb"}])
    text = shown(client, PAGE)
    assert all(f'value="{each}"' in text for each in (7_000, 2_048, 17)), "of SBD alone"
    assert 'class="c-heat-8" title="a.example to b.example: 24,000">24 k<' in text
    assert 'class="c-heat-0" title="b.example to a.example' not in text, "no such column"
    assert "2 of 30 days are computed" in text
    assert ">4 MiB<" in shown(client, f"{PAGE}?measure=bytes")
    assert "24,000" not in shown(client, f"{PAGE}?from=2026-11-03&to=2026-11-03")
    found = exported(client, f"{PAGE}?export=json&order=bytes")
    assert [(row["origin"], row["messages"], row["bytes"]) for row in found] == [
        ("a.example", 24_000, 4096),
        ("b.example", 3, 4_194_304),
    ]


def test_error_budgets(client: Client) -> None:
    def slo(remote: str, number: int, attempts: int, ok: int) -> dict[str, object]:
        permille = ok * 1000 // attempts
        facts = {"attempts": attempts, "ok": ok, "permille": permille, "p95_us": 250_000}
        return {"hour": hour(3, number), "remote": remote, **facts}

    publish(
        "federation_slo",
        "2026-11-03",
        [
            slo("bad.example", 7, 1000, 900),
            slo("bad.example", 8, 1000, 1000),
            slo("good.example", 7, 10_000, 9_990),
            slo("close.example", 7, 1000, 996),
        ],
    )
    places = [(1, "good.example", 10), (2, "bad.example", 100)]
    publish(
        "federation_rank",
        "2026-11-03",
        [{"place": p, "remote": r, "failures": f, "score": f} for p, r, f in places],
    )
    path = f"{PAGE}federation/"
    text = shown(client, path)
    assert "1 of 3 relays missed the objective" in text and "99.5 %" in text
    budgets = exported(client, f"{path}?b-export=json")
    assert [(row["remote"], row["state"], row["bad_hours"], row["place"]) for row in budgets] == [
        ("bad.example", "missed", 1, 2),
        ("close.example", "nearly spent", 0, None),
        ("good.example", "kept", 0, 1),
    ]
    assert budgets[0]["left"] == pytest.approx(1 - 100 / 10)
    assert budgets[2]["left"] == pytest.approx(1 - 10 / 50)
    hours = exported(client, f"{path}?export=json&remote=bad.example")
    assert [(row["hour"], row["failed"]) for row in hours] == [
        ("2026-11-03 07:00", 100),
        ("2026-11-03 08:00", 0),
    ]


def test_sessions_and_storms(client: Client) -> None:
    publish(
        "concurrency",
        "2026-11-03",
        [
            {"relay": "a.example", "hour": hour(3, number), "peak": peak, "protocol": protocol}
            for number, peak, protocol in ((0, 40, "rmb"), (1, 41, "rmb"), (1, 9, "sbd"))
        ],
    )
    first = int(hour(3, 4).timestamp()) * US
    storm = {"session": "x<y", "first_us": first, "last_us": first + 40 * US, "opens": 5}
    sbd = {**storm, "twin": 0, "session": KEY, "protocol": "sbd"}
    publish("storms", "2026-11-03", [{"twin": 7, **storm}, {"twin": 8, **storm}, sbd])
    text = shown(client, f"{PAGE}sessions/?from=2026-11-03&to=2026-11-03")
    assert "a.example: at most <strong>41</strong>" in text and "x&lt;y" in text
    assert "a.example (SBD): at most <strong>9</strong>" in text
    assert 'href="/console/twins/7/"' in text
    found = exported(client, f"{PAGE}sessions/?export=json&twin=8")
    assert [(row["twin"], row["lasted_s"], row["rate"]) for row in found] == [(8, 40, 10)]
    (row,) = exported(client, f"{PAGE}sessions/?export=json&protocol=sbd")
    assert (row["twin"], row["session"], row["protocol"]) == (None, KEY, "SBD")


def test_anomalies_lead_to_their_twins(client: Client) -> None:
    publish(
        "anomalies",
        "2026-11-03",
        [
            {"hour": hour(3, 5), "twin": 7, "accepted": 500, "median": 20, "deviation": 2},
            {"hour": hour(3, 6), "twin": 9, "accepted": 0, "median": 90, "deviation": 0},
            {"hour": hour(3, 7), "twin": 0, "accepted": 80, "median": 9, "deviation": 1} | SBD,
        ],
    )
    path = f"{PAGE}anomalies/"
    text = shown(client, path)
    assert 'href="/console/twins/7/"' in text and "burst" in text and "silence" in text
    row, other = exported(client, f"{path}?export=json&kind=burst&order=hour")
    assert (other["twin"], other["protocol"]) == (None, "SBD")
    assert row["twin"] == 7 and row["times"] == pytest.approx(480 / (1.4826 * 2), abs=0.05)
    assert exported(client, f"{path}?export=json&kind=silence&twin=7") == []
    of_rmb = exported(client, f"{path}?export=json&protocol=rmb&order=hour")
    assert [row["twin"] for row in of_rmb] == [7, 9]


def test_the_busiest(client: Client) -> None:
    figures = {"messages": 10, "bytes": 1000, "share_ppm": 250_000}
    publish("top_twins", "2026-11-02", [{"place": 1, "twin": 5, **figures}])
    publish("top_twins", "2026-11-03", [{"place": 1, "twin": 7, **figures}])
    publish("hot_pairs", "2026-11-03", [{"place": 1, "src_twin": 7, "dst_twin": 0, **figures}])
    publish("top_keys", "2026-11-03", [{"place": 1, "key": KEY, **figures}])
    text = shown(client, f"{PAGE}busiest/")
    assert 'href="/console/twins/7/"' in text and "25 %" in text
    assert "/console/twins/0/" not in text, "nobody has this number"
    assert "?day=2026-11-02" in text and KEY in text
    assert 'href="/console/twins/5/"' in shown(client, f"{PAGE}busiest/?day=2026-11-02")


def test_the_lattice(client: Client) -> None:
    fill()
    page = f"{PAGE}lattice/"
    assert all(
        each in shown(client, page) for each in ("of twins", "Kv.Get", "timed_out", "N" * 56)
    )
    (slow,) = exported(client, f"{page}?s-export=json")
    assert (slow["failed"], slow["p95_s"], slow["target"]) == (3, 2.0, "V" * 56)
    for kind, count in (("lattice_out", 1), ("lattice_seen", 0)):
        assert len(exported(client, f"{page}?c-export=json&c-kind={kind}")) == count


def test_usage_and_its_files(client: Client) -> None:
    def used(twin: int, n: int) -> dict[str, int]:
        sent = {"accepted": n, "accepted_bytes": 10 * n, "delivered": n, "delivered_bytes": 9 * n}
        return {"twin": twin, **sent, "dropped": 1, "session_seconds": 3600}

    publish("usage", "2026-10", [used(7, 1)])
    publish("usage", "2026-11", [used(9, 5), used(7, 20)])
    text = shown(client, f"{PAGE}usage/")
    assert "<dt>Twins</dt>" in text and "2 h" in text
    assert text.index('href="/console/twins/7/"') < text.index('href="/console/twins/9/"')
    address = f"{PAGE}usage/2026-11/csv/"
    assert f'href="{address}"' in text
    answer = client.get(address)
    assert 'filename="usage-2026-11.csv"' in answer.headers["Content-Disposition"]
    lines = list(csv.reader(io.StringIO(answer.getvalue().decode())))
    assert lines[0] == [
        *("period", "twin", "accepted", "accepted_bytes", "delivered", "delivered_bytes"),
        *("dropped", "session_seconds"),
    ]
    assert lines[1:] == [
        ["2026-11", "7", "20", "200", "20", "180", "1", "3600"],
        ["2026-11", "9", "5", "50", "5", "45", "1", "3600"],
        ["all", "2", "25", "250", "25", "225", "2", "7200"],
    ]
    answer = client.get(f"{PAGE}usage/2026-11/parquet/")
    table = parquet.read_table(pa.BufferReader(answer.getvalue()))
    assert table.column_names == lines[0] and table["twin"].to_pylist() == [7, 9]
    for missing in ("2026-09/csv/", "2026-11/pdf/"):
        assert client.get(f"{PAGE}usage/{missing}").status_code == 404
    assert client.get(f"{PAGE}usage/?month=2026-09").status_code == 422


def test_what_became_of_messages(client: Client) -> None:
    publish(
        "audit",
        "2026-11-03",
        [
            {"relay": "a.example", **AUDIT, "uids": 100, "delivered_once": 98, "unaccounted": 2},
            {"relay": "b.example", **AUDIT, "uids": 50, "delivered_once": 49, "in_gap": 1},
            {"relay": None, **AUDIT, "uids": 3, "dropped": 3},
        ],
    )
    path = f"{PAGE}delivery/"
    text = shown(client, path)
    assert "lost without a record" in text and "(never accepted)" in text
    found = exported(client, f"{path}?export=json&order=-unaccounted")
    assert [(row["relay"], row["state"]) for row in found] == [
        ("a.example", "not all"),
        ("(never accepted)", "apart"),
        ("b.example", "gap"),
    ]
    assert len(exported(client, f"{path}?export=json&relay=b.example")) == 1


def test_what_gaps_cost_stands_beside_what_is_unaccounted(client: Client) -> None:
    """The losses of gaps are shown; rows of an earlier version, without estimates, are unknown."""
    path = f"{PAGE}delivery/"
    old = {"relay": "a.example", **AUDIT, "uids": 100, "gaps": 2, "gap_events": 7}
    old |= {"gap_estimate": None, "gap_at_most": None, "gaps_unknown": None}
    publish("audit", "2026-11-03", [old])
    text = strip_tags(shown(client, path))
    assert "Rows lost in gapsunknown" in text and "2, 2 of unknown size" in text
    new = {"gaps": 3, "gap_events": 7, "gap_estimate": 407, "gap_at_most": 907, "gaps_unknown": 1}
    publish("audit", "2026-11-04", [{"relay": "b.example", **AUDIT, "uids": 100, **new}])
    text = strip_tags(shown(client, path))
    assert "about 414, at most 914" in text and "5, 3 of unknown size" in text
    found = exported(client, f"{path}?export=json&order=-period")
    assert [(row["state"], row["gap_estimate"], row["unaccounted"]) for row in found] == [
        ("gap", 407, 0),
        ("gap", None, 0),
    ]


def test_events_by_the_minute(client: Client) -> None:
    path = f"{PAGE}now/"
    before = shown(client, path)
    assert "rmb_analytics stream" in before and "docs/operate/analytics-stream.md" in before
    begun, newest = hour(3, 5), hour(3, 7)
    stream = StreamState.objects.create(
        checkpoint="x", since=begun, counts_from=begun, newest=newest, began_at=begun,
        updated_at=timezone.now(),
    )  # fmt: skip
    assert "No events in these hours" in shown(client, path)
    facts = {"relay": "a.example", "remote": "", "size_bytes": 100}
    for minute, kind, reason, n, latency_us in (
        (hour(3, 6), "delivered", "none", 50, 50 * US),
        (newest, "delivered", "none", 150, 50 * US),
        (newest, "dropped", "queue_full", 3, 0),
    ):
        LiveMinute.objects.create(
            minute=minute, kind=kind, reason=reason, n=n, latency_us=latency_us, late=0, **facts
        )
    text = shown(client, path)
    assert "delivered: at most <strong>150</strong>" in text and "counting" in text
    rows = exported(client, f"{path}?export=json")
    assert [(row["kind"], row["reason"], row["n"], row["mean_s"]) for row in rows] == [
        ("delivered", "", 200, 0.5),
        ("dropped", "queue_full", 3, None),
    ]
    assert [row["n"] for row in exported(client, f"{path}?export=json&span=1h&kind=delivered")] == [
        150
    ]
    StreamState.objects.filter(pk=stream.pk).update(updated_at=begun)
    part = client.get(path, headers={"HX-Target": "analytics-now"}).content.decode()
    assert "stopped" in part and "<html" not in part


def test_minutes_that_were_not_counted_are_a_gap(client: Client) -> None:
    since = hour(3, 9)
    newest = since + timedelta(minutes=29, seconds=30)
    StreamState.objects.create(
        checkpoint="x", since=since, counts_from=since, newest=newest, began_at=since,
        updated_at=newest,
    )  # fmt: skip
    LiveMinute.objects.create(
        minute=since + timedelta(minutes=10), relay="a.example", kind="accepted", reason="none",
        n=5, size_bytes=0, latency_us=0, late=0,
    )  # fmt: skip
    line = re.compile(r'class="c-curves-line c-swatch-1" d="M([\d.]+) [\d.]+L')
    for span, unknown, minutes in (("1h", 30, 60), ("24h", 24 * 60 - 30, 24 * 60)):
        (begin,) = line.findall(shown(client, f"{PAGE}now/?span={span}"))
        assert float(begin) == pytest.approx(unknown * 1000 / (minutes - 1), abs=1), span


def test_runs(client: Client) -> None:
    publish("usage", "2026-11", job="usage")
    a_run("audit", "run-2", state=RunState.FAILED, error="no Java", first_day="2026-11-03")
    path = f"{PAGE}runs/"
    text = shown(client, path)
    assert "no Java" in text and "2026-11-01 to 2026-11-03" in text and "graph_edges" in text
    assert "no Java" not in shown(client, f"{path}?job=usage")
    text = shown(client, f"{path}run-usage/")
    assert "2026-11" in text and "local[2]" in text
    shown(client, f"{path}nobody/", 404)


NODES = pa.table(
    {
        "period": ["2026-11-03"] * 3,
        "kind": ["twin", "twin", "relay"],
        "node": ["7", "9", "a.example"],
        "sent": [5, 1, 4],
        "sent_bytes": [50, 10, 40],
        "received": [1, 5, 0],
        "received_bytes": [10, 50, 0],
        "targets": [2, 1, 1],
        "sources": [1, 2, 0],
        "attached": [1, 1, 2],
        "component": pa.array([7, 7, None], pa.int64()),
    }
)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from relay.analytics import places

    monkeypatch.setattr(places, "configured", lambda: places.Places(tmp_path))
    return tmp_path


def test_the_graph_is_read_from_its_files(
    client: Client, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = lake / "results" / "graph_nodes" / "2026-11-03" / "run"
    folder.mkdir(parents=True)
    parquet.write_table(NODES, folder / "part.parquet")
    publish("graph_nodes", "2026-11-03", folder="graph_nodes/2026-11-03/run")
    path = f"{PAGE}graph/"
    text = shown(client, path)
    assert "with twin 7" in text and 'href="/console/twins/9/"' in text
    assert [row["node"] for row in exported(client, f"{path}?export=json&kind=twin")] == ["7", "9"]
    (folder / "part.parquet").write_bytes(b"PAR1 is not this")
    assert "cannot be read" in shown(client, path, 503)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    text = shown(client, path, 503)
    assert "duckdb is not installed: make setup-analytics" in text


def test_parquet_without_arrow_is_told(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    publish("usage", "2026-11", [])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "make setup-analytics" in shown(client, f"{PAGE}usage/2026-11/parquet/", 503)
    assert "period,twin" in client.get(f"{PAGE}usage/2026-11/csv/").getvalue().decode()
