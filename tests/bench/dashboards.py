"""Simulated open pages of the console, as browsers hold them: a websocket and reloaded parts.

What a page reloads and how often is read from the page itself (`data-refresh`, `data-charts`), so
that it does the same as the scripts of the page. Each page is a thread of this program, on the
cores of the load generators.
"""

from __future__ import annotations

import contextlib
import html
import http.client
import os
import re
import secrets
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import websockets
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from tests.bench.layout import layout
from tests.bench.targets import Target, TargetError

PAGE = "/console/"
OPEN_TIMEOUT_S = 20.0
SETTING = "BENCH_SESSION"
_CHARTS = re.compile(r'data-charts="([^"]+)"')
_PART = re.compile(r'id="([a-z-]+)"[^>]* data-refresh="([^"]+)" data-refresh-ms="(\d+)"')

SIGN_IN = f"""
import os
from datetime import timedelta
from django.contrib import auth
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.utils import timezone
user = User.objects.create_superuser("bench")
session = {{
    auth.SESSION_KEY: str(user.pk),
    auth.BACKEND_SESSION_KEY: "django.contrib.auth.backends.ModelBackend",
    auth.HASH_SESSION_KEY: user.get_session_auth_hash(),
}}
expires = timezone.now() + timedelta(days=1)
Session.objects.save(os.environ["{SETTING}"], session, expires)
"""


class Dashboards:
    """Pages opened by one account."""

    def __init__(self) -> None:
        self._key = secrets.token_hex(16)
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self.frames = 0
        self.answers = 0
        self.faults: list[str] = []

    @property
    def environment(self) -> dict[str, str]:
        """Environment of the relay whose pages are opened, and of its preparation."""
        return {SETTING: self._key}

    @contextlib.contextmanager
    def open(self, target: Target, count: int) -> Iterator[None]:
        """Hold pages open; each has received its first frame when the body begins.

        Raises:
            TargetError: A page has received no frame in time.
        """
        self._ended.clear()
        ready = threading.Semaphore(0)
        pages = [
            threading.Thread(target=self._run, args=(target.site, ready), daemon=True)
            for _ in range(count)
        ]
        for page in pages:
            page.start()
        try:
            deadline = time.monotonic() + OPEN_TIMEOUT_S
            for _ in pages:
                if not ready.acquire(timeout=max(0.0, deadline - time.monotonic())):
                    raise TargetError(f"no frame came to a page: {self.faults}")
            yield
        finally:
            self._ended.set()
            for page in pages:
                page.join()

    def _run(self, site: str, ready: threading.Semaphore) -> None:
        os.sched_setaffinity(0, layout().load)
        try:
            self._look(site, ready)
        except (OSError, WebSocketException, TargetError) as error:
            with self._lock:
                self.faults.append(repr(error))

    def _look(self, site: str, ready: threading.Semaphore) -> None:
        page = self._ask(site, PAGE)
        parts = {
            name: [html.unescape(address), int(every_ms) / 1000, time.monotonic()]
            for name, address, every_ms in _PART.findall(page)
        }
        charts = _CHARTS.search(page)
        if not parts or not charts:
            raise TargetError("the page asks for nothing again, or has no charts")
        self._ask(site, html.unescape(charts[1]))
        first = True
        headers = {"Cookie": f"rmb_operator={self._key}"}
        origin = websockets.Origin(f"http://{site}")
        address = f"ws://{site}/console/live"
        with connect(address, origin=origin, additional_headers=headers) as socket:
            while not self._ended.is_set():
                socket.recv(timeout=OPEN_TIMEOUT_S)
                with self._lock:
                    self.frames += 1
                if first:
                    ready.release()
                    first = False
                for name, part in parts.items():
                    path, every_s, asked_at = part
                    if time.monotonic() - float(asked_at) >= float(every_s):
                        part[2] = time.monotonic()
                        self._ask(site, str(path), name)

    def _ask(self, site: str, path: str, part: str = "") -> str:
        parts = urlsplit(f"http://{site}")
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
        headers = {"Cookie": f"rmb_operator={self._key}"}
        if part:
            headers["HX-Target"] = part
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status != 200:
            raise TargetError(f"{path}: {answer.status}")
        with self._lock:
            self.answers += 1
        return text
