"""`runrelay` and `rmb-relay` as an operator uses them: start, summary, stop, and being killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import redis
from websockets.asyncio.client import connect, unix_connect

from lattice.connection import LatticeConnection
from lattice.errors import NoRespondersError
from lattice.options import LatticeOptions
from proto.lattice.messages import decode_health
from proto.lattice.nkeys import KeyPair
from proto.lattice.subjects import SubjectKind, provider_subject
from relay.queues import keys
from relay.server.rewriting import LEAST_BYTES
from tests.support.certificates import make_certificate
from tests.support.identities import Twin
from tests.support.redis_servers import RedisServer, free_port, start_redis62
from tests.support.relay_process import ROOT, run_command
from tests.support.started import (
    START_TIMEOUT_S,
    STOP_TIMEOUT_S,
    Started,
    embedded,
    exists,
    get,
    make_tables,
    plain,
)
from tests.support.waiting import eventually
from tests.support.world import fresh_twins


async def answers_ready(relay: Started) -> bool:
    """Check whether the relay is ready.

    A worker listens shortly before it has read the operators' decisions.
    """
    status, _ = await get(relay.runtime()["relay_url"] + "/ready")
    return status == 200


async def test_an_embedded_start_needs_nothing_and_leaves_nothing(start: Any) -> None:
    relay = await start(*embedded("--processes", "2"), fresh=True, own_start=True).ready()
    runtime = relay.runtime()
    assert runtime["pid"] == relay.process.pid
    assert runtime["relay_url"].startswith("ws://127.0.0.1:")
    await eventually(lambda: answers_ready(relay))
    status, _ = await get(runtime["admin_url"] + "/admin/login/")
    assert status == 200
    output = relay.output()
    for fact in (
        "2 workers, uvicorn",
        "domains   localhost",
        "append-only, fsync everysec",
        "SQLite ",
        "registry, 3 known",
        "limits    none per twin, capacity 500000 sessions",
        "limit of open files",
        "make demo",
        "rmb ping -p data/alice.toml",
    ):
        assert fact in output
    assert re.search(r"sign in as +operator, password \S{20}", output)
    children = relay.descendants()
    assert len(children) == 6, "warm parent, two workers, the site, the server and its keeper"
    assert relay.stop() == 0
    assert not any(map(exists, children))
    assert not (relay.data_dir / "runtime.json").exists()


async def test_secrets_are_private_and_outlive_a_restart(start: Any) -> None:
    arguments = embedded()
    relay = await start(*arguments, fresh=True).ready()
    assert relay.data_dir.stat().st_mode & 0o777 == 0o700
    secrets = {}
    for name in ("secret_key", "demo-twins.json", "alice.toml"):
        path = relay.data_dir / name
        assert path.stat().st_mode & 0o777 == 0o600
        secrets[name] = path.read_text()
        assert secrets[name] not in relay.output()
    assert (relay.data_dir / "valkey" / "redis.sock").stat().st_mode & 0o077 == 0
    with redis.Redis.from_url(relay.runtime()["redis_url"]) as client:
        client.xadd("stream:9", {"_": b"mail"})
    assert relay.stop() == 0
    again = await start(*arguments).ready()
    assert secrets == {name: (again.data_dir / name).read_text() for name in secrets}
    assert "password" not in again.output(), "it was shown once"
    with redis.Redis.from_url(again.runtime()["redis_url"]) as client:
        assert client.xlen("stream:9") == 1


async def test_what_has_passed_leaves_the_bundled_servers_file(start: Any) -> None:
    relay = await start(*embedded()).ready()
    piece = b"x" * (1 << 20)
    with redis.Redis.from_url(relay.runtime()["redis_url"]) as client:
        for _ in range(LEAST_BYTES // len(piece)):
            client.set("passing", piece)
        await eventually(lambda: client.info("persistence")["aof_rewrites"])


async def test_the_demo_tells_its_story(start: Any) -> None:
    relay = await start(*embedded()).ready()
    demo = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "relay.demo", "--data", str(relay.data_dir)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    story = (await demo.communicate())[0].decode()
    assert demo.returncode == 0, story
    lines = [line.strip() for line in story.splitlines()]
    assert "alice  got the answer 'HOW ARE YOU?'" in lines
    left, back = lines.index("carol  has left"), lines.index("carol  is signed in", 15)
    letters = [line for line in lines[back:] if line.startswith("carol  opens")]
    assert left < back
    assert [line.split("'")[1] for line in letters] == [
        *("first letter", "second letter", "third letter")
    ]
    assert lines[-1].startswith("Done:")


async def test_the_demo_without_a_relay_says_so(tmp_path: Path) -> None:
    demo = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "relay.demo", "--data", str(tmp_path)),
        cwd=ROOT,
        stderr=asyncio.subprocess.PIPE,
    )
    error = (await demo.communicate())[1].decode()
    assert demo.returncode == 1
    assert error == (
        f"demo: no relay runs on {tmp_path}: start one with `make run` in another terminal\n"
    )


async def test_a_second_start_in_one_folder_is_refused(start: Any) -> None:
    relay = await start(*embedded()).ready()
    second = start(*embedded())
    assert second.process.wait(START_TIMEOUT_S) == 2
    assert f"is in use by a running relay (pid {relay.process.pid})" in second.output()
    await eventually(lambda: answers_ready(relay))


async def test_the_same_start_again_says_that_this_relay_runs(start: Any) -> None:
    listen = f"127.0.0.1:{free_port()}"
    relay = await start(*embedded("--listen", listen)).ready()
    second = start(*embedded("--listen", listen))
    assert second.process.wait(START_TIMEOUT_S) == 2
    told = second.output()
    assert f"this relay runs already (pid {relay.process.pid}, data folder " in told
    assert 'make run DATA=data2 ARGS="--listen 127.0.0.1:8090 --admin-listen' in told
    shown = json.loads(run_command(relay.data_dir.parent, "rmb_checkconfig", "--json").stdout)
    assert shown["relay.listen"]["running"] == {"value": listen, "origin": "--listen"}
    assert shown["redis.url"]["running"]["origin"] == "--embedded"


async def bridge_is_healthy(data_dir: Path, listen: str) -> None:
    """Wait for the bridge and the NATS server that `--embedded --lattice` starts."""
    options = LatticeOptions(servers=(f"nats://{listen}",))
    connection = LatticeConnection(options)
    async with asyncio.timeout(START_TIMEOUT_S):
        await connection.open(wait=True)
        seed = (data_dir / "lattice" / "provider.seed").read_text().strip()
        key = KeyPair.of_seed(seed).public
        subject = provider_subject(options.lattice, key, "default", SubjectKind.HEALTH)

        async def healthy() -> bool:
            with contextlib.suppress(NoRespondersError):
                answer = await connection.request(subject, b"", START_TIMEOUT_S)
                return decode_health(answer).healthy
            return False

        await eventually(healthy)
    await connection.close()


async def test_everything_ends_with_a_killed_supervisor(start: Any) -> None:
    arguments = embedded("--processes", "2")
    settings = {"lattice.embedded_listen": f"127.0.0.1:{free_port()}"}
    relay = await start(*arguments, "--lattice", settings=settings).ready()
    await bridge_is_healthy(relay.data_dir, settings["lattice.embedded_listen"])
    children = relay.descendants()
    relay.process.kill()
    relay.process.wait()
    await eventually(lambda: not any(map(exists, children)), STOP_TIMEOUT_S)
    assert relay.output().count("the parent process is gone: stopping") == 3
    await start(*arguments).ready()


async def test_a_start_waits_for_the_rest_of_a_killed_run(start: Any) -> None:
    arguments = embedded()
    relay = await start(*arguments).ready()
    relay.process.kill()
    relay.process.wait()
    # Other ports: the old ones may still be open, which is reported without waiting.
    await start(*embedded()).ready()


async def test_the_bundled_server_comes_back_with_its_data(start: Any) -> None:
    relay = await start(*embedded()).ready()
    url = relay.runtime()["redis_url"]
    with redis.Redis.from_url(url) as client:
        client.xadd("stream:9", {"_": b"mail"})
        os.kill(client.info("server")["process_id"], signal.SIGKILL)
    await eventually(lambda: "the bundled Redis server" in relay.output().partition("stop  ")[2])

    def mail_is_there() -> bool:
        with contextlib.suppress(redis.ConnectionError), redis.Redis.from_url(url) as client:
            return client.xlen("stream:9") == 1
        return False

    await eventually(mail_is_there, START_TIMEOUT_S)
    relay_url = relay.runtime()["relay_url"]

    async def is_ready() -> bool:
        return (await get(relay_url + "/ready"))[0] == 200

    await eventually(is_ready)


async def test_a_killed_keeper_takes_its_server_along(start: Any) -> None:
    relay = await start(*embedded()).ready()
    with redis.Redis.from_url(relay.runtime()["redis_url"]) as client:
        server = client.info("server")["process_id"]
    keeper = int(Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(keeper, signal.SIGKILL)
    await eventually(lambda: not exists(server))
    await eventually(lambda: "is ready again" in relay.output(), START_TIMEOUT_S)


async def test_a_very_long_data_folder(tmp_path: Path, start: Any) -> None:
    data_dir = tmp_path / ("long" * 30) / "data"
    relay = start(*embedded("--data", str(data_dir)))
    relay.data_dir = data_dir
    await relay.ready()
    path = relay.runtime()["redis_url"].removeprefix("unix://")
    assert len(path) < 100
    assert relay.stop() == 0


async def test_a_port_in_use_is_told_before_anything_starts(start: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        relay = start("--embedded", "--listen", f"127.0.0.1:{port}", fresh=True)
        assert relay.process.wait(START_TIMEOUT_S) == 2
    assert relay.output() == (
        f"runrelay: cannot listen on 127.0.0.1:{port}: the port is in use by another process; "
        'choose another port with --listen, as in make run ARGS="--listen 127.0.0.1:8090"\n'
    )
    assert not (tmp_path / "data").exists()


async def test_the_drop_in_command(start: Any, valkey: RedisServer) -> None:
    port = free_port()
    relay = await start(
        *("-m", "a.example", "b.example", "-r", valkey.url, "-l", f"[::]:{port}"),
        *("-s", "wss://one", "wss://two", "--limit", "100,5000", "-p", "60", "-w", "2", "-u", "3"),
        *("--twins", "registry", "--admin-listen", "none"),
        module=True,
    ).ready()
    output = relay.output()
    assert "domains   a.example, b.example" in output
    assert "100 messages, 5000 bytes per twin and minute, capacity 6 sessions" in output
    assert "has no effect" not in output
    assert "operator  none" in output
    for host in ("127.0.0.1", "[::1]"):
        assert (await get(f"http://{host}:{port}/live"))[0] == 200
    assert relay.stop() == 0


@pytest.mark.parametrize("server", ["uvicorn", "daphne"])
async def test_a_unix_socket(start: Any, valkey: RedisServer, tmp_path: Path, server: str) -> None:
    path = tmp_path / "relay.sock"
    relay = await start(
        *plain(valkey.url, "--listen", f"unix:{path}", "--server", server, "--data", "data")
    ).ready()
    (twin,) = fresh_twins(1)
    add_twin(tmp_path, twin)
    async with unix_connect(
        str(path),
        f"ws://localhost/?{twin.token()}",
        additional_headers={"X-Forwarded-For": "203.0.113.9"},
    ):
        # The session enters the directory just after it was accepted.
        (entry,) = await eventually(lambda: valkey.run("HVALS", "relay:sessions"))
        assert entry.decode().split()[3] == "203.0.113.9"
        relay.process.send_signal(signal.SIGHUP)
        await eventually(lambda: "rolling restart done" in relay.output(), START_TIMEOUT_S)
    async with unix_connect(str(path), f"ws://localhost/?{twin.token()}") as client:
        await client.ping()
    assert relay.stop() == 0
    assert not path.exists()


def add_twin(folder: Path, twin: Twin) -> None:
    """Add a twin to the database of a data folder."""
    done = run_command(
        folder,
        *("rmb_twin", "add", str(twin.id), f"0x{twin.account.hex()}", "--relays", "localhost"),
        settings={"redis.url": "redis://127.0.0.1:1"},
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("server", ["uvicorn", "daphne"])
async def test_tls_in_the_process(
    start: Any, valkey: RedisServer, tmp_path: Path, server: str
) -> None:
    certificate, key = make_certificate(tmp_path)
    (twin,) = fresh_twins(1)
    make_tables(tmp_path / "data")
    add_twin(tmp_path, twin)
    arguments = plain(valkey.url, "--server", server)
    port = arguments[arguments.index("--listen") + 1].rpartition(":")[2]
    relay = await start(*arguments, "--tls-cert", str(certificate), "--tls-key", str(key)).ready()
    assert ", TLS (1 worker" in relay.output()
    trusted = ssl.create_default_context(cafile=str(certificate))
    async with connect(f"wss://localhost:{port}/?{twin.token()}", ssl=trusted) as client:
        await client.ping()
    assert relay.stop() == 0


@pytest.mark.parametrize("server", ["uvicorn", "daphne"])
async def test_a_tls_handshake_that_stalls_is_cut(
    start: Any, valkey: RedisServer, tmp_path: Path, server: str
) -> None:
    certificate, key = make_certificate(tmp_path)
    arguments = plain(valkey.url, "--server", server)
    port = arguments[arguments.index("--listen") + 1].rpartition(":")[2]
    (tmp_path / "rmb.toml").write_text("[relay]\nhandshake_timeout_s = 1\n")
    relay = await start(*arguments, "--tls-cert", str(certificate), "--tls-key", str(key)).ready()
    began = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), 10) == b""
    assert 0.9 <= time.monotonic() - began <= 8
    writer.close()
    assert relay.stop() == 0


async def test_a_bad_certificate_is_told(start: Any, valkey: RedisServer, tmp_path: Path) -> None:
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("no certificate")
    tls = ("--tls-cert", str(nonsense), "--tls-key", str(nonsense))
    relay = start(*plain(valkey.url, *tls))
    assert relay.process.wait(START_TIMEOUT_S) == 2
    assert "--tls-cert" in relay.output()
    assert "Traceback" not in relay.output()


async def test_redis_that_comes_later(start: Any, tmp_path: Path) -> None:
    server = start_redis62(tmp_path / "redis")
    try:
        server.stop()
        arguments = plain(server.url)
        relay = start(*arguments, celery=True)
        port = arguments[arguments.index("--listen") + 1].rpartition(":")[2]
        told = "not ready: Redis does not answer"
        await eventually(lambda: told in relay.output(), START_TIMEOUT_S)
        assert len(relay.descendants()) == 2, "warm parent and worker"
        assert "NOT REACHABLE" in relay.output()
        url = f"http://127.0.0.1:{port}/ready"
        status, body = await get(url)
        assert (status, json.loads(body)["ready"]) == (503, False)
        await _tried(server, 6)  # each of both processes several times
        lines = relay.output().splitlines()
        (at,) = [number for number, line in enumerate(lines) if line.startswith(told)]
        assert lines[at].endswith("retrying") and len(lines) == at + 1
        assert not any("WARNING" in line or "ERROR" in line for line in lines)
        server.start()

        async def is_ready() -> bool:
            return (await get(url))[0] == 200

        await eventually(is_ready)
        await eventually(lambda: "ready after" in relay.output())
        await eventually(lambda: len(relay.descendants()) == 4)  # Celery's two as well
        assert relay.stop() == 0
    finally:
        server.remove()


async def _tried(server: RedisServer, count: int) -> None:
    """Wait until that many connections were attempted in vain."""
    tries = 0

    def tried(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal tries
        tries += 1
        writer.close()

    async with await asyncio.start_server(tried, "127.0.0.1", server.port):
        await eventually(lambda: tries >= count, START_TIMEOUT_S, f"{count} tries")


async def test_a_redis_cluster_is_refused(start: Any, start_server: Any) -> None:
    server = start_server("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    relay = start(*plain(server.url))
    assert relay.process.wait(START_TIMEOUT_S) == 2
    assert "is a cluster" in relay.output()


async def test_a_stop_during_the_start(start: Any) -> None:
    relay = start(*embedded("--processes", "2"))
    await eventually(lambda: "twins     registry" in relay.output(), START_TIMEOUT_S)
    children = relay.descendants()
    assert children
    began = time.monotonic()
    assert relay.stop() == 0
    assert time.monotonic() - began < 15
    assert not any(map(exists, children))


async def test_hanging_up_replaces_the_workers(start: Any, valkey: RedisServer) -> None:
    relay = await start(*plain(valkey.url, "--processes", "2")).ready()
    before = set(relay.descendants())
    assert len(before) == 3, "warm parent and two workers"
    relay.process.send_signal(signal.SIGHUP)
    await eventually(lambda: "rolling restart done" in relay.output(), START_TIMEOUT_S)
    after = set(relay.descendants())
    assert len(after) == 3
    assert not before & after
    assert relay.stop() == 0


@pytest.mark.parametrize("more", [(), ("--no-fork",)])
async def test_the_limit_of_open_files_is_raised(
    start: Any, valkey: RedisServer, more: tuple[str, ...]
) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1000), hard))
    try:
        relay = await start(*plain(valkey.url, *more), own_start=True).ready()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "limit of open files raised from 1000 to" in relay.output()
    below = relay.descendants()
    assert len(below) == (1 if more else 2), "the worker, and its warm parent"
    for each in below:
        limits = Path(f"/proc/{each}/limits").read_text()
        (line,) = [line for line in limits.splitlines() if line.startswith("Max open files")]
        assert int(line.split()[3]) > 1000


async def test_a_decision_made_while_redis_is_away_comes_into_force(
    start: Any, tmp_path: Path
) -> None:
    """A decision made without Redis, also while the relay starts, takes effect later.

    The command finds the relay's Redis by its folder.
    """
    server = start_redis62(tmp_path / "redis")
    try:
        server.kill()
        relay = start(*plain(server.url))
        await eventually((relay.data_dir / "redis_url").exists, START_TIMEOUT_S)

        def decide(*arguments: str) -> subprocess.CompletedProcess[str]:
            return run_command(relay.data_dir.parent, *arguments)

        block = ("rmb_relays", "block", "bad.example", "--unknown")
        for arguments in (("rmb_ban", "set", "7", "--unknown"), block):
            done = decide(*arguments)
            assert done.returncode == 3 and not done.stdout
            assert "saved and pending" in done.stderr and f":{server.port})" in done.stderr
        server.restart()

        def in_force() -> bool:
            fields = server.run("HGETALL", keys.CONTROL)
            return {b"ban:7", b"relay:bad.example"} <= fields.keys()

        await eventually(in_force, START_TIMEOUT_S)
        assert relay.stop() == 0
    finally:
        server.remove()
