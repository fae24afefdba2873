"""The blocking client with threads, forks, Django and Celery."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from peer.client import ConnectError, ExpiredError, RemoteError, Reply, Request, SyncClient
from tests.peer.client.conftest import secret_of
from tests.support.identities import Twin
from tests.support.relay_process import ROOT, RelayProcess
from tests.support.waiting import wait_until
from tests.support.world import fresh_twins


def make(relay: RelayProcess, twins_file: Path, twin: Twin, **options: object) -> SyncClient:
    options = {"timeout": 10.0, **options}
    return SyncClient(secret_of(twin), [relay.url], twins_file, **options)  # type: ignore[arg-type]


def blocking_add(request: Request) -> int:
    time.sleep(0.001)  # in a thread: nothing else waits
    return sum(request.json())


def test_calls_notices_and_handlers(relay: RelayProcess, twins_file: Path) -> None:
    alice, bob = fresh_twins(2)
    heard = threading.Event()
    handlers = {"add": blocking_add}
    with (
        make(relay, twins_file, bob, sid=None, handlers=handlers) as server,
        make(relay, twins_file, alice) as client,
    ):
        server.serve({"note": lambda request: heard.set()})
        with pytest.raises(ValueError, match="'add' has a handler already"):
            server.serve({"add": blocking_add})
        assert client.connected
        assert client.call(bob.id, "add", [1, 2]).json() == 3
        client.notify(bob.id, "note")
        client.flush()
        assert heard.wait(10)
        (answer,) = client.ask([bob.id], "add", [1])
        assert isinstance(answer, Reply) and answer.json() == 1
        found = client.twin(bob.id)
        assert found is not None and found.account == bob.account
        with pytest.raises(RemoteError, match="unknown command"):
            client.call(bob.id, "nothing")
        with pytest.raises(ExpiredError):
            client.call(alice.id, "away", timeout=0.2)
    assert not client.connected


def test_a_handler_that_is_interrupted_ends_nothing(relay: RelayProcess, twins_file: Path) -> None:
    """A `KeyboardInterrupt` from a handler ends nothing: Ctrl-C reaches the main thread only."""
    alice, bob = fresh_twins(2)

    def handler(request: Request) -> None:
        raise KeyboardInterrupt

    with (
        make(relay, twins_file, bob, sid=None, handlers={"add": blocking_add, "odd": handler}),
        make(relay, twins_file, alice) as client,
    ):
        with pytest.raises(RemoteError, match="the service failed"):
            client.call(bob.id, "odd")
        assert client.call(bob.id, "add", [1, 2]).json() == 3


def test_a_call_that_is_interrupted_is_under_way_no_more(
    relay: RelayProcess, twins_file: Path
) -> None:
    alice, bob = fresh_twins(2)
    with make(relay, twins_file, alice) as client:
        main = threading.main_thread().ident
        assert main is not None

        def interrupt() -> None:
            running = client._running
            assert running is not None
            while not running.client._open.calls:
                time.sleep(0.01)
            signal.pthread_kill(main, signal.SIGINT)

        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            client.call(bob.id, "nobody is there")
        running = client._running
        assert running is not None
        wait_until(lambda: not running.client._open.calls)


def test_many_threads_share_one_client(relay: RelayProcess, twins_file: Path) -> None:
    alice, bob = fresh_twins(2)
    with (
        make(relay, twins_file, bob, sid=None, handlers={"add": blocking_add}),
        make(relay, twins_file, alice) as client,
        ThreadPoolExecutor(20) as threads,
    ):
        answers = threads.map(lambda n: client.call(bob.id, "add", [n, 1]).json(), range(200))
        assert list(answers) == list(range(1, 201))
        futures = [client.begin_call(bob.id, "add", [n]) for n in range(50)]
        assert [each.result().json() for each in futures] == list(range(50))


async def test_an_event_loop_need_not_block(relay: RelayProcess, twins_file: Path) -> None:
    alice, bob = fresh_twins(2)
    server = make(relay, twins_file, bob, sid=None, handlers={"add": blocking_add})
    client = make(relay, twins_file, alice)
    try:
        await asyncio.to_thread(server.__enter__)
        await asyncio.to_thread(client.__enter__)
        answer = await asyncio.wrap_future(client.begin_call(bob.id, "add", [4]))
        assert answer.json() == 4
    finally:
        await asyncio.to_thread(client.close)
        await asyncio.to_thread(server.close)


def test_it_is_used_no_more_after_its_end_and_says_what_is_wrong_at_once(
    relay: RelayProcess, twins_file: Path
) -> None:
    alice, bob = fresh_twins(2)
    client = make(relay, twins_file, alice)
    with make(relay, twins_file, bob, sid=None, handlers={"add": blocking_add}):
        assert client.call(bob.id, "add", [1]).json() == 1
        client.close()
        client.close()
        with pytest.raises(RuntimeError, match="the client is closed"):
            client.call(bob.id, "add", [2])
    with pytest.raises(RuntimeError, match="the client is closed"):
        make_closed(relay, twins_file, alice).notify(bob.id, "add")
    with pytest.raises(ValueError, match="relay: 'http://x' must be ws"):
        SyncClient(secret_of(alice), ["http://x"], twins_file)
    stranger = SyncClient("0x" + "42" * 32, [relay.url], twins_file)
    with pytest.raises(ConnectError, match="no twin found"):
        stranger.call(1, "add")


def make_closed(relay: RelayProcess, twins_file: Path, twin: Twin) -> SyncClient:
    found = make(relay, twins_file, twin)
    found.close()
    return found


def test_one_that_is_dropped_is_told_of_and_signs_out(
    relay: RelayProcess, twins_file: Path
) -> None:
    (alice,) = fresh_twins(1)
    before = set(threading.enumerate())
    client = make(relay, twins_file, alice)
    client.flush()
    (thread,) = {each for each in set(threading.enumerate()) - before if each.name == "rmb-client"}
    with pytest.warns(ResourceWarning, match="unclosed <peer.client.sync.SyncClient"):
        del client
        gc.collect()
    thread.join(10)
    assert not thread.is_alive()


def test_one_that_never_began_need_not_be_closed(relay: RelayProcess, twins_file: Path) -> None:
    stranger = SyncClient("0x" + "42" * 32, [relay.url], twins_file)
    with pytest.raises(ConnectError, match="no twin found"):
        stranger.call(1, "add")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        del stranger
        gc.collect()
    assert not told


def test_how_long_was_waited_is_said(relay: RelayProcess, twins_file: Path) -> None:
    alice, bob = fresh_twins(2)
    said = rf"no answer of twin {bob.id}:xx within 0\.25 s$"
    with (
        make(relay, twins_file, alice) as client,
        pytest.raises(ExpiredError, match=said),
    ):
        client.call(f"{bob.id}:xx", "away", timeout=0.25)


FORKING = """
import os, sys
from peer.client import SyncClient
secret, url, twins, twin = sys.argv[1:]
client = SyncClient(secret, [url], twins, timeout=10)
assert client.call(int(twin), "add", [1]).json() == 1
children = []
for number in range(3):
    pid = os.fork()
    if not pid:
        try:
            answer = client.call(int(twin), "add", [number, 1]).json()
            client.close()
            os._exit(answer)
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(100)
    children.append(pid)
print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children])
assert client.call(int(twin), "add", [7]).json() == 7
print("the first one still works")
"""


def test_forked_processes_have_sessions_of_their_own(relay: RelayProcess, twins_file: Path) -> None:
    alice, bob = fresh_twins(2)
    with make(relay, twins_file, bob, sid=None, handlers={"add": blocking_add}):
        done = run_python(FORKING, secret_of(alice), relay.url, twins_file, bob.id)
    assert done.stdout.splitlines() == ["[1, 2, 3]", "the first one still works"], done.stderr


DJANGO = """
import sys
import django
from django.conf import settings
secret, url, twins, twin = sys.argv[1:]
settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], DEBUG=True, SECRET_KEY="test")
django.setup()

import asyncio
from django.http import JsonResponse
from django.test import AsyncClient as Browser
from django.test import Client as BlockingBrowser
from django.urls import path
from peer.client import RemoteError, SyncClient

rmb = SyncClient(secret, [url], twins, timeout=10)

def add(request, a, b):
    return JsonResponse({"sum": rmb.call(int(twin), "add", [a, b]).json()})

async def add_async(request, a, b):
    reply = await asyncio.wrap_future(rmb.begin_call(int(twin), "add", [a, b]))
    return JsonResponse({"sum": reply.json()})

urlpatterns = [path("add/<int:a>/<int:b>", add), path("async/<int:a>/<int:b>", add_async)]
print(BlockingBrowser().get("/add/2/3").json())
print(asyncio.run(Browser().get("/async/4/5")).json())
rmb.close()
"""


def test_in_django_views(relay: RelayProcess, twins_file: Path) -> None:
    alice, bob = fresh_twins(2)
    with make(relay, twins_file, bob, sid=None, handlers={"add": blocking_add}):
        done = run_python(DJANGO, secret_of(alice), relay.url, twins_file, bob.id)
    assert done.stdout.splitlines() == ["{'sum': 5}", "{'sum': 9}"], done.stderr


CELERY = """
import os
from celery import Celery
from peer.client import SyncClient

app = Celery("jobs", broker=os.environ["BROKER"], backend=os.environ["BROKER"])
app.conf.worker_hijack_root_logger = False
rmb = SyncClient(os.environ["SECRET"], [os.environ["RELAY"]], os.environ["TWINS"], timeout=10)

@app.task
def add(a, b):
    return [rmb.call(int(os.environ["TWIN"]), "add", [a, b]).json(), os.getpid()]
"""


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_in_celery_tasks(
    relay: RelayProcess, twins_file: Path, tmp_path: Path, valkey: object, pool: str
) -> None:
    alice, bob = fresh_twins(2)
    (tmp_path / "jobs.py").write_text(CELERY)
    environment = {
        **os.environ,
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}",
        "BROKER": valkey.url,  # type: ignore[attr-defined]
        "SECRET": secret_of(alice),
        "RELAY": relay.url,
        "TWINS": str(twins_file),
        "TWIN": str(bob.id),
    }
    ask = (
        "import jobs, celery; group = celery.group(jobs.add.s(n, 1) for n in range(20));"
        "print([answer for answer, _ in group.apply_async().get(timeout=60)])"
    )
    with make(relay, twins_file, bob, sid=None, handlers={"add": blocking_add}):
        command = [
            "-m",
            "celery",
            "-A",
            "jobs",
            "worker",
            "--pool",
            pool,
            "-c",
            "2",
            "-l",
            "WARNING",
        ]
        with (tmp_path / "worker.log").open("wb") as log:
            worker = subprocess.Popen(
                [sys.executable, *command], cwd=tmp_path, env=environment, stdout=log, stderr=log
            )
        try:
            done = subprocess.run(
                [sys.executable, "-c", ask],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=90,
            )
        finally:
            worker.terminate()
            worker.wait(30)
    log_text = (tmp_path / "worker.log").read_text()
    assert done.stdout.strip() == str(list(range(1, 21))), f"{done.stderr}\n{log_text}"


def run_python(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a Python program in a process of its own and wait for it."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
