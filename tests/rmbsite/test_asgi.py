"""`rmbsite.asgi`: the operator site answers, static files of the theme included."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from asgiref.testing import ApplicationCommunicator

from rmbsite.asgi import admin
from tests.support.relay_process import ROOT, command_environment


async def get(path: str, host: str = "127.0.0.1:8081") -> tuple[int, bytes]:
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "path": path,
        "query_string": b"",
        "headers": [(b"host", host.encode())],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8081),
    }
    site = ApplicationCommunicator(admin, scope)
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
    # Nothing is fetched from elsewhere.
    assert not re.findall(r'(?:href|src)="(?:https?:)?//', text)


async def test_live_and_an_unknown_host() -> None:
    assert (await get("/live"))[0] == 200
    assert (await get("/live", host="evil.example"))[0] == 400


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
