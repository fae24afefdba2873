"""Charts: their lines, their figures for scripts, and the picture shown without scripts."""

from __future__ import annotations

import json
import time
from xml.etree import ElementTree

import pytest
from django.test import Client

from relay.access.matrix import Role
from relay.dashboard import chart_svg, charts
from relay.dashboard.chart_svg import bounds, thinned
from relay.dashboard.charts import BY_NAME, CHARTS, MAX_LINES, Data, Line, Reading
from relay.dashboard.figures import Kind
from relay.history import seconds
from relay.history.series import DROP_REASONS, drops
from relay.ops.redis_client import client as redis
from tests.relay.dashboard.conftest import SignIn
from tests.support.redis_servers import RedisServer


@pytest.fixture
def client(sign_in: SignIn, site_redis: RedisServer) -> Client:
    return sign_in(Role.VIEWER)


def wrote(*values: dict[str, float], until: int) -> None:
    for number, each in enumerate(values):
        seconds.put(redis(), until - len(values) + 1 + number, each)


@pytest.mark.django_db
def test_numbers_for_the_script(client: Client) -> None:
    now = int(time.time()) // 3 * 3
    wrote({"messages_in": 4, "commit_p99": 0.5}, until=now)
    found = json.loads(client.get("/console/charts/data.json?span=1h").content)
    assert found["times"][-1] in (now, now + 3) and found["step_s"] == 3
    place = found["times"].index(now)
    line = found["charts"]["messages"]["lines"][0]
    assert line["keys"] == ["messages_in"] and line["roll_up"] == "mean"
    assert line["values"][place] == 4 and line["values"][place - 1] is None
    assert found["charts"]["commit"]["lines"][1]["values"][place] == 0.5
    assert "chain" not in found["charts"]


@pytest.mark.django_db
def test_the_reasons_that_matter_have_lines(client: Client) -> None:
    now = int(time.time())
    some = DROP_REASONS[: MAX_LINES + 1]
    wrote({drops(reason): 10 - number for number, reason in enumerate(some)}, until=now)
    lines = charts.read([BY_NAME["drops"]], "1h", now).charts[0].lines
    assert len(lines) == MAX_LINES and lines[0].label == "unparsable"
    assert lines[-1].label == "others" and lines[-1].values[-1] == 3 + 2
    assert lines[-1].keys == tuple(drops(each) for each in some[-2:])


@pytest.mark.django_db
def test_nothing_dropped_is_one_line(client: Client) -> None:
    now = int(time.time())
    wrote(dict.fromkeys(map(drops, DROP_REASONS), 0.0), until=now)
    lines = charts.read([BY_NAME["drops"]], "1h", now).charts[0].lines
    assert [(line.label, line.values[-1]) for line in lines] == [("none", 0)]


@pytest.mark.django_db
def test_table_and_picture(client: Client) -> None:
    now = int(time.time())
    wrote({"bytes_in": 2048}, until=now)
    assert "2 KiB/s" in client.get("/console/charts/bytes/?span=1h").content.decode()
    answer = client.get("/console/charts/bytes.svg?span=1h&narrow")
    assert answer.headers["Content-Type"] == "image/svg+xml"
    assert ElementTree.fromstring(answer.content).get("width") == "340"
    exported = client.get("/console/charts/bytes/?span=1h&export=csv")
    lines = b"".join(exported.streaming_content).decode().splitlines()  # type: ignore[attr-defined]
    assert lines[0] == "at,bytes_in,bytes_out" and len(lines) == 1201


@pytest.mark.django_db
def test_a_table_has_each_reason_by_itself(client: Client) -> None:
    now = int(time.time())
    some = {drops(reason): number + 0.5 for number, reason in enumerate(DROP_REASONS[:9])}
    wrote({**dict.fromkeys(map(drops, DROP_REASONS), 0.0), **some}, until=now)
    page = client.get("/console/charts/drops/?span=1h").content.decode()
    assert all(f'data-label="{reason.replace("_", " ")}"' in page for reason in DROP_REASONS[:9])
    assert 'data-label="look up failed"' not in page and ">8.5/s</data>" in page


@pytest.mark.django_db
def test_what_there_is_not(client: Client) -> None:
    assert client.get("/console/charts/chain/").status_code == 404  # no chain is followed
    assert client.get("/console/charts/data.json?span=2h").status_code == 422
    assert (
        'aria-current="true"><abbr title="one hour"'
        in client.get("/console/?span=2h").content.decode()
    )


def test_pictures_of_anything_are_documents() -> None:
    values = [None, 1.0, None, 4.0, 5e9, 0.0]
    for chart in CHARTS:
        lines = [Line("<&>", (key,), "mean", values) for key, _ in chart.parts[:9]]
        reading = Reading("7d", 600, list(range(0, 3600, 600)), [Data(chart, lines)])
        ElementTree.fromstring(chart_svg.draw(reading, reading.charts[0]))
    nothing = Data(CHARTS[0], [Line("in", ("messages_in",), "mean", [])])
    assert "no figures" in chart_svg.draw(Reading("1h", 3, [], [nothing]), nothing)


def test_stacks_are_drawn_over_each_other() -> None:
    lines = [Line("a", ("a",), "mean", [3.0, None]), Line("b", ("b",), "mean", [1.0, None])]
    reading = Reading("1h", 3, [0, 3], [Data(BY_NAME["drops"], lines)])
    drawn = chart_svg.draw(reading, reading.charts[0], 340)
    # The total 4 above 1, on a scale that ends at 4.
    assert 'd="M66.0 216L66.0 34.0L66.0 216Z" fill="#7c3aed"' in drawn
    assert 'd="M66.0 216L66.0 170.5L66.0 216Z" fill="#0e7490"' in drawn


@pytest.mark.parametrize(
    ("known", "kind", "found"),
    [
        ([], Kind.RATE, (0, 1)),
        ([0], Kind.NUMBER, (0, 4)),
        ([7], Kind.RATE, (0, 8)),
        ([1000], Kind.RATE, (0, 1000)),
        ([5000], Kind.BYTES, (0, 8192)),
        ([0.95, 1], Kind.SHARE, (0.9, 1)),
        ([0.2, 1], Kind.SHARE, (0, 1)),
    ],
)
def test_scales_are_round(known: list[float], kind: Kind, found: tuple[float, float]) -> None:
    assert bounds(known, kind) == found


def test_thinning_keeps_peaks() -> None:
    assert thinned([1, None, 9, None, None, 2], 2) == [1, 9, 2]
    assert thinned([None, None], 2) == [None]
