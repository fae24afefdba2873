"""Tests of `rmbsite.asgi`: the operator site answers, including static files of the theme."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.db.backends.signals import connection_created

from rmbsite.asgi import admin
from tests.relay.rest.conftest import account, token_of
from tests.support.relay_process import ROOT, command_environment
from tests.support.waiting import eventually

HOST = "127.0.0.1:8081"


@pytest.fixture
def connections() -> Iterator[list[Any]]:
    """Collect the database connections that are opened from now on."""
    made: list[Any] = []

    def note(connection: Any, **_: Any) -> None:
        made.append(connection)

    connection_created.connect(note)
    yield made
    connection_created.disconnect(note)


def site_for(path: str, host: str, token: str = "") -> ApplicationCommunicator:
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "path": path,
        "query_string": b"",
        "headers": [(b"host", host.encode()), (b"authorization", f"Bearer {token}".encode())],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8081),
    }
    return ApplicationCommunicator(admin, scope)


async def get(path: str, host: str = HOST, token: str = "") -> tuple[int, bytes]:
    site = site_for(path, host, token)
    await site.send_input({"type": "http.request"})
    start = await site.receive_output(timeout=10)
    body = b""
    while True:
        part = await site.receive_output(timeout=10)
        body += part.get("body", b"")
        if not part.get("more_body"):
            await site.wait()
            return start["status"], body


async def test_the_sign_in_page_and_its_files() -> None:
    status, body = await get("/admin/login/")
    assert status == 200
    text = body.decode()
    files = re.findall(r'(?:href|src)="(/static/[^"]+)"', text)
    assert files, "the theme has a style sheet"
    for file in files:
        assert (await get(file))[0] == 200, file
    # No file is loaded from other hosts.
    assert not re.findall(r'(?:href|src)="(?:https?:)?//', text)


async def test_live_and_an_unknown_host() -> None:
    assert (await get("/live"))[0] == 200
    assert (await get("/live", host="evil.example"))[0] == 400


@pytest.mark.django_db(transaction=True)
async def test_a_request_leaves_no_connection_behind(connections: list[Any]) -> None:
    """A request closes its database connection.

    Each request has its own thread, so nothing else would ever use or close that connection.
    """
    assert (await get("/api/v1/me", token="rmb_0123456789abcdef_" + 43 * "x"))[0] == 401
    assert connections and all(each.connection is None for each in connections)


@pytest.mark.django_db(transaction=True)
async def test_a_stream_of_events_holds_no_connection(connections: list[Any]) -> None:
    token = await sync_to_async(lambda: token_of(account("viewer", "viewer"), role="viewer"))()
    connections.clear()
    site = site_for("/api/v1/alarms/events", HOST, token)
    await site.send_input({"type": "http.request"})
    assert (await site.receive_output(timeout=10))["status"] == 200
    await site.receive_output(timeout=10)
    await eventually(lambda: connections and all(each.connection is None for each in connections))
    await site.send_input({"type": "http.disconnect"})
    await site.wait()


def test_a_server_that_would_log_tokens_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "uvicorn", "rmbsite.asgi:application", "--port", "0"),
            *("--app-dir", str(ROOT), "--log-level", "trace"),
        ],
        env=command_environment(tmp_path, {"redis.url": "redis://127.0.0.1:1"}),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert "uvicorn's log level trace prints" in done.stderr
