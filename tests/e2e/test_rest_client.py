"""The client in `contrib/client` against a running relay, and its examples run as programs."""

from __future__ import annotations

import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from relay.queues import keys
from tests.e2e.conftest import StartRelay
from tests.relay.federation import stored
from tests.support.identities import twin
from tests.support.operator_site import OperatorSite
from tests.support.relay_process import ROOT, RelayProcess
from tests.support.rmb_client import session
from tests.support.waiting import eventually

FOLDER = ROOT / "contrib" / "client"
TWIN = 1001


@pytest.fixture
def client_module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import the client's file as its users do."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import relay_api

    return relay_api


@pytest.fixture
def site(start_relay: StartRelay) -> OperatorSite:
    """Start a relay for one test."""
    return OperatorSite(start_relay(operator_site=True))


@pytest.fixture
def scripted() -> Iterator[Any]:
    """Start a server that answers from its list `answers` and records requests in `seen`."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def handle_one(self) -> None:
            server: Any = self.server
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            server.seen.append((self.command, self.path, dict(self.headers)))
            status, headers, body = server.answers.pop(0)
            if status == 0:
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = handle_one

        def log_message(self, *args: Any) -> None:
            """Suppress output to the terminal."""

    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.seen, server.answers = [], []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def replace_sleep(
    monkeypatch: pytest.MonkeyPatch, client_module: Any, sleep: Callable[[float], None]
) -> None:
    """Replace `sleep` for the client alone: other threads of this process may sleep meanwhile."""
    monkeypatch.setattr(client_module, "time", SimpleNamespace(sleep=sleep))


def run_example(site: OperatorSite, name: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(FOLDER / "examples" / name), site.url, *arguments],
        env={**os.environ, "RELAY_TOKEN": site.token},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_it_does_what_operators_do(
    site: OperatorSite, client_module: Any, tmp_path: Path
) -> None:
    relay: RelayProcess = site.relay
    api = client_module.RelayApi(site.url, site.token)
    async with session(relay.url, twin(TWIN), "phone"), session(relay.url, twin(TWIN), "desk"):
        await eventually(lambda: len(list(api.sessions(twin=TWIN, limit=1))) == 2)
        (phone,) = api.sessions(twin=TWIN, sid="phone")
        assert phone.key == f"{TWIN}:phone" and phone.opened_at.tzinfo is not None
        api.kick(phone.key, epoch=phone.epoch, reason="test")
        await eventually(lambda: [each.sid for each in api.sessions(twin=TWIN)] == ["desk"])
        assert api.kick_twin(TWIN) == 1
        await eventually(lambda: not list(api.sessions(twin=TWIN)))
        with pytest.raises(client_module.ApiError) as refused:
            api.kick_twin(TWIN)
        assert refused.value.status == 404
    await eventually(lambda: {each.close_reason for each in api.history(twin=TWIN)} == {"kicked"})

    limit = api.put_limit(7, 10, 1000, note="watch", unknown=True)
    assert api.limit(7).note == "watch" and not limit.banned
    old = api.limit(7).etag
    until = datetime.now(UTC) + timedelta(hours=1)
    assert api.ban(7, reason="noise", until=until).banned_until is not None
    with pytest.raises(client_module.ApiError) as refused:
        api.put_limit(7, 20, 2000, etag=old)
    assert refused.value.status == 412
    assert not api.lift_ban(7).banned
    with pytest.raises(client_module.ApiError) as refused:
        api.put_limit(7, 10, None)
    assert refused.value.status == 422

    assert relay.redis is not None
    entry = stored.add_dead(relay.redis, stored.message())
    assert [letter.entry for letter in api.dead_letters()] == [entry]
    assert api.requeue(entry) and not list(api.dead_letters())
    stored.add_partner(relay.redis)
    assert stored.PARTNER in {each.domain for each in api.relays()}
    assert api.act_on_relay(stored.PARTNER, "pause").paused
    actions = {each.action for each in api.audit(actor="olga")}
    assert {"session.kick", "ban.set", "limit.set", "letter.requeue", "relay.pause"} <= actions

    file = tmp_path / "twins.csv"
    kept = [each for each in api.twins(limit=500) if each.id != TWIN]
    rows = [f"{each.id},{each.account},{each.pk or ''},a.example" for each in kept]
    file.write_text("\n".join(["id,account,pk,relays", *rows, ""]))
    summary = run_example(site, "sync_twins.py", str(file))
    assert summary == f"0 added, {len(kept)} changed, 1 removed\n"
    assert [each.id for each in api.twins(limit=500)] == [each.id for each in kept]
    assert api.twin(kept[0].id).relays == ["a.example"]
    assert run_example(site, "ban_noisy.py", "1000") == ""


async def test_it_follows_a_stream(site: OperatorSite, client_module: Any) -> None:
    """The client follows a stream of events; without a Celery worker there is an alarm."""
    api = client_module.RelayApi(site.url, site.token)
    assert site.relay.redis is not None
    site.relay.redis.run("DEL", keys.STARTING)  # no alarm is raised during the start
    # Takes half a minute on an idle machine.
    await eventually(lambda: list(api.pages("/alarms/history")), timeout_s=180)
    events = api.events("/alarms/events", last_id="0")
    event = next(events)
    events.close()
    assert event.id == "1" and event.kind == event.data["kind"] and event.data["rule"]


def test_it_comes_again_when_it_is_turned_away(scripted: Any, client_module: Any) -> None:
    api = client_module.RelayApi(f"http://127.0.0.1:{scripted.server_port}", "secret")
    scripted.answers += [
        (429, {"Retry-After": "0"}, b"{}"),
        (503, {"Retry-After": "0"}, b"no JSON"),
        (0, {}, b""),
        (200, {}, b'{"sessions": 3}'),
    ]
    assert api.kick_twin(7) == 3
    assert len({headers["Idempotency-Key"] for _, _, headers in scripted.seen}) == 1
    assert {headers["Authorization"] for _, _, headers in scripted.seen} == {"Bearer secret"}
    problem = b'{"detail": "count: wrong", "errors": [{"field": "count", "message": "wrong"}]}'
    scripted.answers.append((422, {}, problem))
    with pytest.raises(client_module.ApiError) as refused:
        api.kick_twin(7)
    assert (refused.value.status, refused.value.fields) == (422, {"count": "wrong"})
    scripted.answers += [(503, {"Retry-After": "0"}, b"")] * 6
    with pytest.raises(client_module.ApiError) as refused:
        api.kick_twin(7)
    assert refused.value.status == 503


def test_it_comes_again_for_an_answer_that_was_cut(
    scripted: Any, client_module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_sleep(monkeypatch, client_module, lambda _: None)
    api = client_module.RelayApi(f"http://127.0.0.1:{scripted.server_port}", "secret")
    cut = {"Content-Length": "99"}
    scripted.answers += [(200, cut, b'{"sess'), (200, {}, b'{"sessions": 3}')]
    assert api.kick_twin(7) == 3
    assert len({headers["Idempotency-Key"] for _, _, headers in scripted.seen}) == 1
    scripted.answers += [(200, cut, b"{")] * 6
    with pytest.raises(client_module.UnreachableError):
        api.kick_twin(7)
    scripted.answers.append((404, cut, b'{"detail": "no such'))
    with pytest.raises(client_module.ApiError) as refused:
        api.kick_twin(7)
    assert refused.value.status == 404
    event = b"id: 1\nevent: fired\ndata: {}\n\n"
    chunked = {"Transfer-Encoding": "chunked"}
    scripted.answers += [(200, chunked, b"ff\r\nid: 1"), (200, {}, event)]
    assert next(api.events("/alarms/events")).id == "1"


def test_a_stream_goes_on_after_what_it_had(scripted: Any, client_module: Any) -> None:
    api = client_module.RelayApi(f"http://127.0.0.1:{scripted.server_port}", "secret")
    first = b'retry: 2000\n\n: alive\n\nid: 5\nevent: fired\ndata: {"rule": "x"}\n\n'
    scripted.answers += [
        (200, {}, first),
        (503, {}, b""),
        (200, {}, b"id: 6\nevent: resolved\ndata: {}\n\n"),
        (403, {}, b'{"detail": "no more"}'),
    ]
    events = api.events("/alarms/events")
    assert [(event.id, event.kind) for event in (next(events), next(events))] == [
        ("5", "fired"),
        ("6", "resolved"),
    ]
    with pytest.raises(client_module.ApiError, match="no more"):
        next(events)
    told = [headers.get("Last-Event-Id") for _, _, headers in scripted.seen]
    assert told == [None, "5", "5", "6"]


def test_a_stream_that_ends_at_once_is_not_asked_for_all_the_time(
    scripted: Any, client_module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    replace_sleep(monkeypatch, client_module, pauses.append)
    last = b"id: 1\nevent: fired\ndata: {}\n\n"
    scripted.answers[:] = [(200, {}, b"retry: 2000\n\n"), (200, {}, b""), (200, {}, last)]
    api = client_module.RelayApi(f"http://127.0.0.1:{scripted.server_port}", "t")
    assert next(api.events("/alarms/events")).id == "1"
    assert len(pauses) == 2 and min(pauses) > 0
