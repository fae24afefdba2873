"""The report of a month as HTML and PDF, each self-contained, from the command and the page."""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from relay.access.matrix import Role
from relay.analytics.models import Published
from relay.dashboard.report import content, html, pdf
from tests.relay.dashboard.conftest import SignIn
from tests.relay.dashboard.test_analytics import AUDIT, US
from tests.support.analytics_results import hour, publish
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def november() -> None:
    """Publish results of two days of a month, with something in each section."""
    for day in (2, 3):
        period = f"2026-11-0{day}"
        flow = {"origin": "a<b.example", "final": "b.example", "messages": 700, "bytes": 2048}
        publish("traffic_matrix", period, [flow])
        slo = {"remote": "b.example", "attempts": 100, "ok": 90, "permille": 900, "p95_us": 5}
        publish("federation_slo", period, [{"hour": hour(day), **slo}])
        open_now = [{"relay": "a.example", "hour": hour(day, n), "peak": 30 + n} for n in (1, 2)]
        publish("concurrency", period, open_now)
        first = int(hour(day).timestamp()) * US
        storm = {"session": "", "first_us": first, "last_us": first + 60 * US, "opens": 66}
        publish("storms", period, [{"twin": 7, **storm}])
        lost = {"unaccounted": day, "gaps": 1, "gap_estimate": 600, "gap_at_most": 70_000}
        publish("audit", period, [{"relay": "a.example", **AUDIT, "uids": 5, **lost}])
        burst = {"twin": 8, "accepted": 99, "median": 2, "deviation": 1}
        publish("anomalies", period, [{"hour": hour(day), **burst}])
    used = {"accepted_bytes": 10, "delivered": 1, "delivered_bytes": 9, "dropped": 0}
    publish("usage", "2026-11", [{"twin": 9, "accepted": 1234, **used, "session_seconds": 7200}])


def report(**options: object) -> str:
    out = StringIO()
    call_command("rmb_analytics", "report", stdout=out, **options)
    return out.getvalue()


@pytest.mark.usefixtures("november")
def test_both_files_are_whole(tmp_path: Path) -> None:
    told = json.loads(report(month="2026-11", output=tmp_path / "new", json=True))
    paths = [tmp_path / "new" / f"report-2026-11.{form}" for form in ("html", "pdf")]
    assert told["files"] == [str(path) for path in paths]
    assert "Traffic: 2 of 30 days are computed" in told["missing"]
    text = paths[0].read_text()
    assert not re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?\s*(?!#)\S", text), "asks for more"
    assert "<script" not in text and "a&lt;b.example" in text and "a<b" not in text
    assert "November 2026" in text and "This report does not contain the whole month" in text
    facts = dict(re.findall(r"<dt>([^<]+)</dt><dd>([^<]+?) ?<", text))
    assert facts == {
        "Messages": "1,400",
        "Bytes": "4 KiB",
        "Twins that used it": "1",
        "Most sessions on a relay": "32",
        "Unaccounted": "5",
        "Relays below the objective": "1 of 1",
        "Anomalies": "2",
        "Storms of reconnects": "2",
    }
    lost = "about 1,200, at most 140,000"
    for expected in ("missed", ">66<", "burst", "1,234", "2 h", lost):
        assert expected in text, expected
    assert paths[1].read_bytes().startswith(b"%PDF-")


@pytest.mark.usefixtures("november")
def test_a_bill_of_half_a_month_says_so() -> None:
    bill = Published.objects.filter(table="usage")
    bill.update(published_at=datetime(2026, 11, 30, 23, 59, tzinfo=UTC))
    assert "Usage: as of 2026-11-30 23:59 UTC" in content.gather("2026-11").missing
    bill.update(published_at=datetime(2026, 12, 1, tzinfo=UTC))
    assert not any("Usage" in each for each in content.gather("2026-11").missing)


@pytest.mark.usefixtures("november")
def test_the_same_report_is_the_same_file() -> None:
    found = content.gather("2026-11", hour(20))
    assert html.write(found) == html.write(found) and pdf.write(found) == pdf.write(found)


@pytest.mark.usefixtures("november")
def test_one_of_them_and_where_it_cannot_be_written(tmp_path: Path) -> None:
    report(month="2026-11", output=tmp_path, form="html")
    assert [path.name for path in tmp_path.iterdir()] == ["report-2026-11.html"]
    written = tmp_path / "report-2026-11.html"
    for output, told in (
        (written, f"{written} is a file; --output must be a folder"),
        (written / "x", f"the folder {written}/x cannot be created: Not a directory"),
    ):
        with pytest.raises(CommandError, match=told):
            report(month="2026-11", output=output)
    written.unlink()
    written.mkdir()
    with pytest.raises(CommandError, match=f"{written} cannot be written: Is a directory"):
        report(month="2026-11", output=tmp_path, form="html")


@pytest.mark.parametrize("month", ["2026", "2026-13", "2026-1", "x"])
def test_what_is_no_month(month: str) -> None:
    with pytest.raises(CommandError, match="must be a month such as 2026-11"):
        report(month=month)


def test_a_month_without_results_and_one_with_a_single_empty_day(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="no day of 2026-11 is computed"):
        report(month="2026-11")
    publish("audit", "2026-11-03")
    report(month="2026-11", output=tmp_path)
    assert "There was none." in (tmp_path / "report-2026-11.html").read_text()


@pytest.mark.usefixtures("november")
def test_the_page(
    sign_in: SignIn, site_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = sign_in(Role.VIEWER)
    path = "/console/analytics/report/2026-11"
    assert f'href="{path}/pdf/"' in client.get("/console/analytics/usage/").content.decode()
    answer = client.get(f"{path}/html/")
    assert 'filename="report-2026-11.html"' in answer.headers["Content-Disposition"]
    assert b"November 2026" in answer.content
    assert client.get(f"{path}/pdf/").content.startswith(b"%PDF-")
    assert client.get(f"{path}/odt/").status_code == 404
    assert client.get("/console/analytics/report/2026-10/pdf/").status_code == 404
    assert client.get("/console/analytics/report/x/pdf/").status_code == 422
    monkeypatch.setitem(sys.modules, "reportlab.platypus", None)
    answer = client.get(f"{path}/pdf/")
    assert answer.status_code == 503 and b"make setup-analytics" in answer.content
