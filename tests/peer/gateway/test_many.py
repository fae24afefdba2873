"""`rmb-peer --many`: the gateways of several twins in one process, with one Redis."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import redis

from tests.support.gateway_process import Program as QueueUser
from tests.support.gateway_process import Service, payload_of
from tests.support.identities import Twin
from tests.support.peer_process import GATEWAY, Program, run_program, write_secret
from tests.support.redis_servers import RedisServer, free_port
from tests.support.relay_process import RelayProcess
from tests.support.waiting import eventually
from tests.support.world import UNKNOWN_TWIN, fresh_twins


class Database:
    """One database of a server, used as `tests.support.gateway_process` uses a server."""

    def __init__(self, server: RedisServer, number: int) -> None:
        self._server = server
        self._number = number

    def client(self) -> redis.Redis:
        path = self._server.socket_path
        return redis.Redis(unix_socket_path=path, db=self._number, socket_timeout=60, protocol=2)

    def run(self, *command: str | bytes | int) -> Any:
        with contextlib.closing(self.client()) as client:
            return client.execute_command(*command)


class ManyFile:
    """A file of twins, each with a database that programs use."""

    def __init__(self, folder: Path, relay: RelayProcess, twins: Path, server: RedisServer) -> None:
        self.path = folder / "twins.toml"
        self._folder = folder
        self._server = server
        self._top = (
            f'relays = ["ws://localhost:{relay.port}"]\ntwins = "{twins}"\nredis = "{server.url}"\n'
        )

    def write(self, *twins: Twin, more: str = "") -> None:
        """Write an entry for each twin; its database has the twin's position in the file."""
        text = self._top
        for number, who in enumerate(twins, 1):
            secret = write_secret(self._folder, who).name
            text += f'[[twin]]\nname = "t{who.id}"\nsecret_file = "{secret}"\n'
            text += f"database = {number}\n"
        self.path.write_text(text + more)

    def database(self, number: int) -> RedisServer:
        """Return the database of the twin at a position in the file."""
        return cast(RedisServer, Database(self._server, number))


@pytest.fixture
def file(
    tmp_path: Path, relay: RelayProcess, twins_file: Path, redises: Callable[[], RedisServer]
) -> ManyFile:
    return ManyFile(tmp_path, relay, twins_file, redises())


@pytest.fixture
def start_many(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Start `rmb-peer --many`."""
    started: list[Program] = []

    def start(path: Path, *arguments: str) -> Program:
        started.append(Program(GATEWAY, tmp_path, "--many", str(path), *arguments))
        return started[-1]

    yield start
    for each in started:
        each.stop()
        print(each.log())


async def test_three_twins_of_one_redis(
    file: ManyFile, relay: RelayProcess, start_many: Callable[..., Program]
) -> None:
    """A twin that cannot start does not affect others, and twins that SIGHUP reads are served."""
    twins = fresh_twins(3)
    await asyncio.to_thread(file.write, *twins[:2], UNKNOWN_TWIN)
    address = f"127.0.0.1:{free_port()}"
    peer = start_many(file.path, "--metrics-listen", address)
    await peer.says("ready: 2 of 3 twins; t2900: no twin found on this network with given key")
    one, two, three = map(file.database, (1, 2, 3))
    async with Service(two, "calc.echo"):
        answer = await QueueUser(one).call("calc.echo", twins[1].id, b'"hello"')
    assert (payload_of(answer), answer["src"]) == (b'"hello"', str(twins[1].id))

    file.write(*twins)
    peer.process.send_signal(signal.SIGHUP)
    await peer.says("1 twins begin, 1 end, 2 stay")
    await peer.says("ready: 3 of 3 twins")
    async with Service(one, "calc.echo"):
        answer = await QueueUser(three).call("calc.echo", twins[0].id, b"{}")
    assert (payload_of(answer), answer["src"]) == (b"{}", str(twins[0].id))
    assert not one.run("EXISTS", "msgbus.calc.echo")
    await eventually(lambda: relay.counted("mux_streams") == 3)
    assert relay.counted("mux_connections") == 1
    page = await asyncio.to_thread(_metrics, address)
    assert "rmb_peer_twins_ready 3.0" in page
    assert "rmb_peer_requests_sent_total 2.0" in page

    file.path.write_text("twin = 1")
    peer.process.send_signal(signal.SIGHUP)
    await peer.says("nothing is changed: ")
    assert peer.stop() == 0
    assert "stopped" in peer.log()
    assert peer.log().count("connected to ws://") == 1


async def test_entries_in_hand_survive_a_stop(
    file: ManyFile, start_many: Callable[..., Program]
) -> None:
    one, two = fresh_twins(2)
    file.write(one, two)
    ask = QueueUser(file.database(1))
    ret = ask.ask("calc.echo", [two.id], b"{}")  # before anything runs
    peer = start_many(file.path)
    async with Service(file.database(2), "calc.echo", echo=False) as service:
        await peer.says("ready: 2 of 2 twins")
        await eventually(lambda: len(service.taken) == 1)
        assert peer.stop() == 0
        body = service.reply(service.taken[0])
    file.database(2).run("LPUSH", service.taken[0]["ret"], json.dumps(body))
    start_many(file.path)
    answer = await ask.answer(ret)
    assert payload_of(answer) == b"{}"


async def test_a_check_shows_what_is_wrong(file: ManyFile, tmp_path: Path) -> None:
    one, two = fresh_twins(2)
    secret = write_secret(tmp_path, two).name
    file.write(one, UNKNOWN_TWIN, more=f'[[twin]]\nsecret_file = "{secret}"\ndatabase = 99\n')
    done = await asyncio.to_thread(
        run_program, GATEWAY, tmp_path, "--many", str(file.path), "--check"
    )
    assert done.returncode == 1
    lines = done.stdout.decode().splitlines()
    assert lines[-1] == "1 of 3 twins: ok"
    wrong = "".join(lines[:-1])
    assert "t2900: twin     FAIL  no twin found on this network with given key" in wrong
    assert "3: redis    FAIL" in wrong
    assert "out of range" in wrong


def test_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "twins.toml"
    path.write_text("[[twin]]\nsecret_fil = 'x'\n")
    done = run_program(GATEWAY, tmp_path, "--many", str(path))
    assert done.returncode == 2
    assert done.stderr.decode() == (
        f"rmb-peer: {path}: [[twin]] 1: unknown field 'secret_fil'; did you mean secret_file?\n"
    )


def _metrics(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
    return text
