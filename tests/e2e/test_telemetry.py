"""OpenTelemetry: what a real collector gets from a running relay."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from rmbsite import config
from tests.support.waiting import eventually


class Collector(http.server.ThreadingHTTPServer):
    """Accepts OTLP over HTTP on the loopback; keeps the names of spans by service, and all data."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: dict[str, set[str]] = {}
        self.taken = b""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def take(self, body: bytes) -> None:
        self.taken += body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            names = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
            found = self.spans.setdefault(names["service.name"], set())
            found.update(span.name for scope in resource.scope_spans for span in scope.spans)


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        self.server.take(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: Any) -> None: ...


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


async def test_site_and_tasks_are_traced(
    start_relay: Any, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
    relay = start_relay(
        operator_site=True,
        settings={"otel.endpoint": collector.url, "otel.service": "here", "celery.embedded": "1"},
    )
    status, _ = relay.get("/api/v1/twins/0?code=a-TEST-code&state=a%20state", admin=True)
    assert status == 400
    await eventually(lambda: collector.spans.get("here-site") or None)
    assert any("api/v1/twins" in name for name in collector.spans["here-site"])
    await eventually(lambda: "run/federation.watch" in collector.spans.get("here-tasks", ()))
    assert b"/api/v1/twins/0" in collector.taken
    for secret in (b"a-TEST-code", b"a state", b"code="):
        assert secret not in collector.taken
    assert set(collector.spans) == {"here-site", "here-tasks"}, "messages of twins are not traced"


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"RMB_OTEL__ENDPOINT": "collector:4318"}, "must begin with http"),
        ({"RMB_OTEL__SHARE": "2"}, "at most 1"),
    ],
)
def test_refused(settings: dict[str, str], error: str) -> None:
    with pytest.raises(config.ConfigError, match=error):
        config.resolve({}, settings)


def test_without_the_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(config.ConfigError, match=r"pip install 'rmb-relay-platform\[otel\]'"):
        config.resolve({}, {"RMB_OTEL__ENDPOINT": "http://127.0.0.1:4318"})
