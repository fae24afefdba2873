"""A grid for screenshots: a relay with active twins, and partner relays that work well and badly.

`relay.example.com` is the one with the operator site. `relay.example.net` is a relay of the same
kind; the others are servers of tests: one quick, one slow, and one that answers 500. All listen on
loopback, under names of the documentation range (`named_loopback`).

Charts need an hour of data, which is too long to wait: a plausible history is written for the
seconds before the start, and for minutes of a week ago. The figures of the last minute are those
that the relay counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import redis

from relay.history import seconds
from relay.history.packing import pack
from tests.support import imagined_lattice, partner
from tests.support.identities import twin, twins_csv
from tests.support.operator_browser import add_operator
from tests.support.redis_servers import RedisServer, free_port, start_valkey
from tests.support.relay_process import ROOT, command_environment, make_data_folder, run_command
from tests.support.rmb_client import RmbClient, connect
from tests.support.waiting import eventually

DOMAIN = "relay.example.com"
SISTER = "relay.example.net"
QUICK, SLOW, BROKEN = "hub.example.org", "north.example.org", "south.example.org"
ADDRESSES = {
    name: f"127.0.1.{number}"
    for number, name in enumerate((DOMAIN, SISTER, QUICK, SLOW, BROKEN), 1)
}
NAMED_LOOPBACK = Path(__file__).with_name("named_loopback")
START_TIMEOUT_S = 90.0
COMMAND_TIMEOUT_S = 300.0
SLOW_ANSWER_S = 0.12
TURN_S = 0.1
WEEK_S = 7 * 86_400
PAST_S = 1800
WRITE_MINUTES = """
from relay.history.models import Point
Point.objects.bulk_create(
    Point(resolution_s=60, at=at, figures=bytes.fromhex(figures))
    for at, figures in {0}.items()
)
"""

FOLLOWED = 1207
FOLLOWED_UID = "9f86d081-884c-4d65-a2fe-aa0c55ad015a"


def _port() -> int:
    """Return the port of HTTP if it may be used, so that names need no port."""
    with socket.socket() as probe:
        try:
            probe.bind((ADDRESSES[DOMAIN], 80))
        except OSError:
            return free_port()
    return 80


PORT = _port()


def place(name: str) -> str:
    """Return the name under which twins list a relay."""
    return name if PORT == 80 else f"{name}:{PORT}"


# Twins of users, nodes and farms of an imagined grid, with test keys.
TWINS = {
    number: twin(number, "_".join(map(place, relays)))
    for number, relays in (
        (FOLLOWED, [DOMAIN]),
        (2415, [DOMAIN, SISTER]),
        (2981, [DOMAIN]),
        (3306, [DOMAIN]),
        (4711, [DOMAIN]),
        (5150, [DOMAIN]),
        (5813, [DOMAIN]),
        (6029, [DOMAIN]),
        (7348, [DOMAIN]),
        (8080, [DOMAIN]),
        (8443, [DOMAIN]),
        (9001, [SISTER]),
        (9002, [SISTER]),
        (9100, [QUICK]),
        (9200, [SLOW]),
        (9300, [BROKEN]),
    )
}
# Sessions of the relay: twin, session id, program, messages a second, receivers.
SESSIONS = (
    (FOLLOWED, None, "rmb-peer/1.5", 60, (2415, 9001)),
    (2415, None, "rmb-peer/1.5", 40, (FOLLOWED,)),
    (2981, "dashboard-7f3a", "Node.js/20", 20, (6029, 9100)),
    (2981, "dashboard-c09e", "Node.js/20", 10, (6029,)),
    (3306, "deployer", "Go-http-client/1.1", 30, (4711, 9200)),
    (4711, None, "rmb-peer/1.5", 30, (3306, 9001)),
    (5150, "farmerbot", "Go-http-client/1.1", 30, (6029, 4711, 9100)),
    (5813, "monitoring", "Go-http-client/1.1", 50, (6029, 4711, FOLLOWED)),
    (6029, None, "rmb-peer/1.5", 40, (5813, 9001)),
)
SESSION_IDS = {number: sid for number, sid, *_ in SESSIONS}
SISTERS_SESSION = (9001, None, "rmb-peer/1.5", 30, (FOLLOWED,))
# Absent sessions: twin, session id, number of queued messages.
AWAY = ((7348, None, 214), (8080, "laptop", 37), (8443, None, 6), (2981, "dashboard-11d2", 3))
TO_BROKEN = 12


@dataclass
class Stage:
    """The running grid.

    Attributes:
        site: URL of the operator site.
        lattice_site: URL of the same site with the menu of a relay that takes part in a lattice.
    """

    site: str
    lattice_site: str
    folder: Path
    settings: dict[str, str]
    sister: Path
    sisters_settings: dict[str, str]

    def command(self, *arguments: str) -> str:
        """Run a command of the relay; return its output."""
        return _command(self.folder, self.settings, *arguments)

    def analyse(self, days: int) -> None:
        """Generate a history of this many days, and compute the analytics that are shown."""
        span = ("--days", str(days), "--rows", "300k")
        _command(self.folder, self.settings, "rmb_analytics", "generate", *span)
        for job in ("matrix", "sessions"):
            _command(self.folder, self.settings, "rmb_analytics", "run", job, "--from", f"{days}d")

    def sisters_command(self, *arguments: str) -> str:
        """Run a command of the other relay of this kind."""
        return _command(self.sister, self.sisters_settings, *arguments)


def _command(folder: Path, settings: dict[str, str], *arguments: str) -> str:
    done = run_command(folder, *arguments, settings=settings, timeout_s=COMMAND_TIMEOUT_S)
    assert done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
    return done.stdout


@contextlib.asynccontextmanager
async def imagined_grid(folder: Path) -> AsyncIterator[Stage]:
    """Start everything, run its traffic during the block, and stop it."""
    data = make_data_folder(folder / "template", twins_csv(TWINS.values()))
    site = f"127.0.0.1:{free_port()}"
    async with contextlib.AsyncExitStack() as stack:
        for name, behave in (
            (QUICK, partner.OurKind()),
            (SLOW, partner.slow(SLOW_ANSWER_S, partner.OurKind())),
            (BROKEN, partner.answer(500)),
        ):
            server = await partner.Partner(PORT, behave, (ADDRESSES[name],)).start()
            stack.push_async_callback(server.stop)
        settings = [
            stack.enter_context(_relay(folder / name, data, name, listen))
            for name, listen in ((DOMAIN, site), (SISTER, "none"))
        ]
        with_lattice = stack.enter_context(_site_with_lattice(folder / DOMAIN, settings[0]))
        scene = Stage(f"http://{site}", with_lattice, folder / DOMAIN, settings[0],
                      folder / SISTER, settings[1])  # fmt: skip
        add_operator(scene.folder)
        talk = asyncio.create_task(_talk())
        try:
            yield scene
            if talk.done():
                talk.result()
        finally:
            talk.cancel()
            await asyncio.gather(talk, return_exceptions=True)


@contextlib.contextmanager
def _relay(folder: Path, data: Path, name: str, site: str) -> Iterator[dict[str, str]]:
    """Run one relay with its own Redis; yield its settings."""
    folder.mkdir()
    subprocess.run(["cp", "-r", str(data), str(folder / "data")], check=True)
    server = start_valkey(folder / "redis")
    settings = {
        "redis.url": server.url,
        "federation.scheme": "http",
        "federation.allow_private": "1",
        "federation.requests_per_ip_per_s": "0",
        "relay.handshakes_per_ip_per_s": "0",
    }
    if site != "none":
        _write_past(folder, settings, server)
        imagined_lattice.write(server)
    environment = command_environment(folder, settings)
    environment["PYTHONPATH"] = os.pathsep.join([str(NAMED_LOOPBACK), environment["PYTHONPATH"]])
    environment["TEST_ADDRESSES"] = ",".join(f"{key}={value}" for key, value in ADDRESSES.items())
    log_path = folder / "relay.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, str(ROOT / "manage.py"), "runrelay", "--twins", "registry"),
                *("--domain", place(name), "--processes", "2" if site != "none" else "1"),
                *("--listen", f"{ADDRESSES[name]}:{PORT}", "--admin-listen", site),
            ],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while "ready after" not in log_path.read_text():
            assert process.poll() is None, log_path.read_text()
            assert time.monotonic() < deadline, log_path.read_text()
            time.sleep(TURN_S)
        yield settings
    finally:
        process.terminate()
        process.wait()
        server.remove()


@contextlib.contextmanager
def _site_with_lattice(folder: Path, settings: dict[str, str]) -> Iterator[str]:
    """Run the operator site of a relay once more, with the lattice turned on; yield its URL."""
    port = free_port()
    more = {"lattice.enabled": "1", "relay.domains": DOMAIN}
    environment = command_environment(folder, {**settings, **more})
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "uvicorn", "rmbsite.asgi:application"),
            *("--host", "127.0.0.1", "--port", str(port), "--log-level", "warning"),
        ],
        cwd=folder,
        env={**environment, "DJANGO_SETTINGS_MODULE": "rmbsite.settings"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _write_past(folder: Path, settings: dict[str, str], server: RedisServer) -> None:
    """Write the hour before the start, and some minutes of a week ago, in the same shape."""
    now = int(time.time())
    with contextlib.closing(server.client()) as client:
        for at in range(now - seconds.KEPT_S + 60, now):
            seconds.put(client, at, _imagined((now - at) / 3600))
    first = (now - WEEK_S) // 60 * 60
    points = {at: pack(_imagined(0.9)).hex() for at in range(first, first + PAST_S, 60)}
    _command(folder, settings, "shell", "-v", "0", "-c", WRITE_MINUTES.format(points))


def _imagined(hours_ago: float) -> dict[str, float]:
    """Return plausible figures of a second."""
    chance = random.Random(hours_ago)
    tide = 0.9 + 0.3 * math.sin(9 * hours_ago + 1) + 0.12 * math.sin(41 * hours_ago)
    messages = 270 * tide * chance.uniform(0.95, 1.05)
    commit = 0.0012 * chance.uniform(0.8, 1.3) * (0.7 + 0.4 * tide)
    worst = 0.02 * chance.uniform(0.5, 1.5)
    fails = 0.3 < hours_ago < 0.36
    return {
        "messages_in": messages,
        "messages_out": 0.76 * messages * chance.uniform(0.98, 1.02),
        "bytes_in": 340 * messages,
        "bytes_out": 260 * messages,
        "sessions": 9.0 if hours_ago < 0.4 else 8.0,
        "queued": 0.6 * tide * chance.uniform(0, 2),
        "waiting": 190 + 60 * math.sin(3 * hours_ago) ** 2,
        "commit_p50": commit,
        "commit_p99": worst,
        "delivery_p50": 1.6 * commit,
        "delivery_p99": 1.5 * worst,
        "federation_out": 0.3 * messages,
        "federation_in": 0.1 * messages,
        "federation_success": chance.uniform(0.9, 0.97) if fails else 1.0,
        "federation_p50": 0.02 * chance.uniform(0.9, 1.1),
        "federation_p99": 0.14 * chance.uniform(0.9, 1.2),
        "outbox": 14 + (300 * (0.36 - hours_ago) if fails else chance.uniform(0, 4)),
        "dead_letters": 0.0,
        "limit_hits": chance.choice((0.0, 0.0, 0.0, 1.0)) if 0.5 < hours_ago < 0.6 else 0.0,
        "loop_lag": 0.003 * chance.uniform(0.5, 1.5),
        "workers": 2.0,
        "drops": chance.choice((0.0, 0.0, 0.0, 1.0)) if 0.2 < hours_ago < 0.3 else 0.0,
    }


async def _talk() -> None:
    """Connect all sessions; each sends at its own rate until this is cancelled."""
    here = f"ws://{ADDRESSES[DOMAIN]}:{PORT}"
    there = f"ws://{ADDRESSES[SISTER]}:{PORT}"
    places = [(here, session) for session in SESSIONS] + [(there, SISTERS_SESSION)]
    clients = []
    for url, (number, sid, program, *_) in places:
        client = await connect(url, TWINS[number], sid, user_agent_header=program)
        client.signs = True
        client.on_message = lambda message: None
        clients.append(client)
    try:
        for number, sid, count in AWAY:
            for _ in range(count):
                await clients[1].request((number, sid), b"a letter", expiration=86_400)
        for _ in range(TO_BROKEN):
            await clients[4].request((9300, None), b"a letter", expiration=3600)
        async with asyncio.TaskGroup() as tasks:
            for client, (_, (*_, rate, receivers)) in zip(clients, places, strict=True):
                tasks.create_task(_write(client, rate, receivers))
    finally:
        for client in clients:
            await client.abort()


async def _write(client: RmbClient, rate: float, receivers: tuple[int, ...]) -> None:
    """Send messages to each receiver in turn, at a varying rate."""
    due, sent, begun = 0.0, 0, time.monotonic()
    while True:
        passed = time.monotonic() - begun
        due += rate * TURN_S * (1 + 0.35 * math.sin(passed / 7 + client.twin.id))
        while due >= 1:
            to = receivers[sent % len(receivers)]
            payload = b"x" * (80 + 37 * sent % 300)
            await client.request((to, SESSION_IDS.get(to)), payload)
            due, sent = due - 1, sent + 1
        await asyncio.sleep(TURN_S)


async def followed(scene: Stage) -> str:
    """Trace a message on both relays; return what the other one recorded, as JSON."""
    for command in (scene.command, scene.sisters_command):
        command("rmb_trace", "start", "uid", FOLLOWED_UID)
    for settings in (scene.settings, scene.sisters_settings):
        await eventually(lambda at=settings["redis.url"]: _follow(at), what="all workers to follow")
    client = await connect(
        f"ws://{ADDRESSES[DOMAIN]}:{PORT}", TWINS[FOLLOWED], "rmb-cli", user_agent_header="rmb/0.1"
    )
    client.signs = True
    try:
        await client.request((9001, None), b"status?", uid=FOLLOWED_UID)

        def noted() -> str:
            done = run_command(
                scene.sister,
                *("rmb_trace", "show", FOLLOWED_UID, "--json"),
                settings=scene.sisters_settings,
            )
            return done.stdout if done.returncode == 0 and "delivered" in done.stdout else ""

        found: str = await eventually(noted, 30, "the other relay to note the message")
        return found
    finally:
        await client.abort()


def _follow(url: str) -> bool:
    """Check whether each worker of a relay traces something, by its heartbeat."""
    with redis.Redis.from_url(url) as client:
        beats = [client.hget(key, "metrics") or b"" for key in client.keys("relay:worker:*")]
    return all(b'"relay_trace_on": 1.0' in beat for beat in beats)
