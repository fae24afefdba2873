"""`rmb-peer` as an operator runs it: real processes, a real relay, chain and Redis."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.devchain import Devchain, running_devchain
from tests.support.gateway_process import Program as QueueUser
from tests.support.gateway_process import Service, payload_of
from tests.support.identities import Twin, twin
from tests.support.peer_process import GATEWAY, Program, environment, run_program, write_secret
from tests.support.redis_servers import RedisServer, free_port
from tests.support.relay_process import ROOT, RelayProcess
from tests.support.waiting import eventually
from tests.support.world import fresh_twins

RICH = 10**9

StartPeer = Callable[..., Program]


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Devchain]:
    """Start a node that has no twin at first."""
    with running_devchain(tmp_path_factory.mktemp("chain")) as node:
        yield node


@pytest.fixture
def start_peer(tmp_path: Path) -> Iterator[StartPeer]:
    """Start `rmb-peer` of a test twin: `start_peer(twin, redis, *options)`."""
    started: list[Program] = []

    def start(who: Twin, redis_url: str, *arguments: str) -> Program:
        secret = str(write_secret(tmp_path, who))
        program = Program(
            GATEWAY, tmp_path, "--secret-file", secret, "--redis", redis_url, *arguments
        )
        started.append(program)
        return program

    yield start
    for each in started:
        each.stop()
        print(each.log())


def by_name(relay: RelayProcess) -> tuple[str, str]:
    """Return the option that names the relay by a domain, as gateways require."""
    return "--relay", f"ws://localhost:{relay.port}"


def site(relay: RelayProcess) -> str:
    return f"http://127.0.0.1:{relay.admin_port}"


async def test_a_start_corrects_the_twin_on_the_chain_and_serves(
    chain: Devchain,
    relay: RelayProcess,
    redises: Callable[[], RedisServer],
    start_peer: StartPeer,
    tmp_path: Path,
) -> None:
    one, two = fresh_twins(2)
    chain.put_twin(one, "old.example", pk=two.encryption_key.public)
    chain.put_twin(two)
    chain.set_balance(one.account, RICH)
    first, second = redises(), redises()
    where = (*by_name(relay), "--substrate", chain.url)
    peer = start_peer(one, first.url, *where)
    await peer.says(f"twin {one.id} is updated, final in block 0x")
    await peer.says("connected to ws://localhost")
    other = start_peer(two, second.url, *where, "--log-format", "json")
    await other.says("connected to ws://localhost")
    # The other twin's entry is correct already: nothing was written.
    assert chain.requests("author_submitAndWatchExtrinsic") == 1
    async with Service(second, "calc.echo"):
        answer = await QueueUser(first).call("calc.echo", two.id, b'"hello"')
    assert payload_of(answer) == b'"hello"'
    assert answer["src"] == str(two.id)
    answer = await QueueUser(first).call("rmb.version", two.id)
    assert isinstance(json.loads(payload_of(answer)), str)
    assert (peer.stop(), other.stop()) == (0, 0)
    lines = [json.loads(line) for line in other.log().splitlines()]
    assert lines[-1]["message"] == "stopped"
    (told,) = [line for line in lines if line["message"].startswith("twin: ")]
    assert (told["twin"], told["relays"]) == (two.id, ["localhost"])
    assert chain.call("dev_counts")["requests"]  # the node kept working throughout


async def test_twins_of_a_relay_need_no_chain(
    relay: RelayProcess,
    redises: Callable[[], RedisServer],
    redis62: RedisServer,
    start_peer: StartPeer,
) -> None:
    """Twins of a relay need no chain; one gateway uses the oldest supported Redis."""
    one, two = fresh_twins(2)
    first, second = redises(), redis62
    where = (*by_name(relay), "--twins", site(relay))
    await start_peer(one, first.url, *where).says("connected to ws://localhost")
    await start_peer(two, second.url, *where).says("connected to ws://localhost")
    async with Service(second, "calc.echo"):
        answer = await QueueUser(first).call("calc.echo", two.id, b"{}")
    assert payload_of(answer) == b"{}"


async def test_the_lists_work_as_the_page_for_users_shows(
    relay: RelayProcess, redises: Callable[[], RedisServer], start_peer: StartPeer
) -> None:
    page = (ROOT / "docs/howto/peer.md").read_text()
    request, reply = re.findall(r"LPUSH msgbus\.system\.\w+ '([^']+)'", page)
    one, two = fresh_twins(2)
    first, second = redises(), redises()
    where = (*by_name(relay), "--twins", site(relay))
    await start_peer(one, first.url, *where).says("connected to ws://localhost")
    await start_peer(two, second.url, *where).says("connected to ws://localhost")
    first.run("LPUSH", "msgbus.system.local", request.replace("102", str(two.id)))
    _, raw = await asyncio.to_thread(second.run, "BRPOP", "msgbus.echo", 10)
    asked = json.loads(raw)
    assert payload_of(asked) == b'"hello"' and asked["src"] == str(one.id)
    answer = {**json.loads(reply), "ref": asked["ref"], "dst": asked["src"], "dat": asked["dat"]}
    second.run("LPUSH", asked["ret"], json.dumps(answer))
    _, raw = await asyncio.to_thread(first.run, "BRPOP", "my-answers", 10)
    assert payload_of(json.loads(raw)) == b'"hello"'


async def test_no_update_leaves_the_chain_alone(
    chain: Devchain, relay: RelayProcess, valkey: RedisServer, start_peer: StartPeer
) -> None:
    (one,) = fresh_twins(1)
    chain.put_twin(one, "old.example")
    writes = chain.requests("author_submitAndWatchExtrinsic")
    peer = start_peer(one, valkey.url, *by_name(relay), "--substrate", chain.url, "--no-update")
    await peer.says("connected to ws://localhost")
    assert f"twin {one.id} lists relays: old.example; they should be localhost" in peer.log()
    assert chain.requests("author_submitAndWatchExtrinsic") == writes


async def test_a_key_without_a_twin_ends_the_start(
    chain: Devchain, valkey: RedisServer, start_peer: StartPeer
) -> None:
    text = "no twin found on this network with given key (account 5"
    peer = start_peer(twin(5999), valkey.url, "--substrate", chain.url)
    assert await peer.ended() == 1
    (line,) = peer.log().splitlines()
    assert line.startswith(f"rmb-peer: {text}")
    as_json = ("--substrate", chain.url, "--log-format", "json")
    peer = start_peer(twin(5999), valkey.url, *as_json)
    assert await peer.ended() == 1
    (line,) = peer.log().splitlines()
    told = json.loads(line)
    assert (told["level"], told["logger"]) == ("error", "rmb-peer")
    assert told["message"].startswith(text)


async def test_a_node_that_is_away_ends_the_start(
    valkey: RedisServer, start_peer: StartPeer
) -> None:
    peer = start_peer(twin(5999), valkey.url, "--substrate", f"ws://127.0.0.1:{free_port()}")
    assert await peer.ended() == 1
    assert "rmb-peer: failed to get own twin id: no chain node answered" in peer.log()


async def test_a_start_that_waits_for_the_chain_can_be_stopped(
    chain: Devchain, valkey: RedisServer, start_peer: StartPeer, relay: RelayProcess
) -> None:
    (one,) = fresh_twins(1)
    chain.put_twin(one, "old.example")
    chain.set_balance(one.account, RICH)
    chain.set(finality_delay_s=60)
    try:
        peer = start_peer(one, valkey.url, *by_name(relay), "--substrate", chain.url)
        await peer.says("update twin details on the chain")
        assert peer.stop() == 0
    finally:
        chain.set(finality_delay_s=0.1)


async def test_a_gateway_whose_redis_is_away_can_be_stopped(
    relay: RelayProcess, start_peer: StartPeer, redises: Callable[[], RedisServer]
) -> None:
    (one,) = fresh_twins(1)
    redis = redises()
    redis.stop()
    peer = start_peer(one, redis.url, *by_name(relay), "--twins", site(relay))
    await peer.says("no connection to redis")
    asked = time.monotonic()
    assert peer.stop() == 0
    assert time.monotonic() - asked < 5


async def test_metrics_are_there_when_asked_for(
    relay: RelayProcess, redises: Callable[[], RedisServer], start_peer: StartPeer
) -> None:
    (one,) = fresh_twins(1)
    redis, port = redises(), free_port()
    listen = f"127.0.0.1:{port}"
    peer = start_peer(
        one, redis.url, *by_name(relay), "--twins", site(relay), "--metrics-listen", listen
    )
    await peer.says(f"metrics: http://{listen}/metrics")
    await peer.says("connected to ws://localhost")

    def scrape() -> str:
        with urllib.request.urlopen(f"http://{listen}/metrics") as answer:
            text: str = answer.read().decode()
        return text

    assert f'rmb_peer_relay_connected{{relay="ws://localhost:{relay.port}"}} 1.0' in scrape()
    assert 'rmb_peer_refused_total{reason="expired"} 0.0' in scrape(), "a rise from nothing is seen"
    assert "rmb_peer_dead_letters_total 0.0" in scrape()
    await QueueUser(redis).call("rmb.version", one.id)
    assert "rmb_peer_requests_sent_total 1.0" in scrape()
    second = run_program(
        GATEWAY,
        Path.cwd(),
        *("-m", f"0x{one.mini_secret.hex()}", "--twins", site(relay), *by_name(relay)),
        *("--metrics-listen", listen, "--redis", redis.url),
    )
    assert second.returncode == 2
    assert f"--metrics-listen {listen}: Address already in use" in second.stderr.decode()


async def test_dead_letters_are_shown(
    relay: RelayProcess,
    redises: Callable[[], RedisServer],
    start_peer: StartPeer,
    tmp_path: Path,
) -> None:
    (one,) = fresh_twins(1)
    redis = redises()
    shown = run_program(GATEWAY, tmp_path, "--dead-letters", "--redis", redis.url)
    assert (shown.returncode, shown.stdout) == (0, b"no dead letters\n")
    peer = start_peer(one, redis.url, *by_name(relay), "--twins", site(relay))
    await peer.says("connected to ws://localhost")
    QueueUser(redis).push(b"{not \x1b[2J json")

    def letters() -> Any:
        done = run_program(GATEWAY, tmp_path, "--dead-letters", "--json", "--redis", redis.url)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    (letter,) = await eventually(letters)
    assert letter["queue"] == "msgbus.system.local"
    shown = run_program(GATEWAY, tmp_path, "--dead-letters", "--redis", redis.url)
    assert b"msgbus.system.local" in shown.stdout
    assert b"{not ?[2J json" in shown.stdout


def test_dead_letters_onto_a_full_disk(valkey: RedisServer, tmp_path: Path) -> None:
    command = [sys.executable, "-m", GATEWAY, "--dead-letters", "--redis", valkey.url]
    buffered = environment({"PYTHONUNBUFFERED": ""})
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command, cwd=tmp_path, env=buffered, stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == 1
    assert done.stderr == b"rmb-peer: the output was not written: No space left on device\n"


def test_dead_letters_without_redis(tmp_path: Path) -> None:
    url = f"redis://127.0.0.1:{free_port()}"
    done = run_program(GATEWAY, tmp_path, "--dead-letters", "--redis", url)
    assert done.returncode == 1
    assert done.stderr.startswith(b"rmb-peer: redis: ")


def test_a_check_finds_everything_in_order(
    chain: Devchain, relay: RelayProcess, valkey: RedisServer, tmp_path: Path
) -> None:
    (one,) = fresh_twins(1)
    chain.put_twin(one)
    writes = chain.requests("author_submitAndWatchExtrinsic")
    arguments = (
        *("--check", "--secret-file", str(write_secret(tmp_path, one)), "--redis", valkey.url),
        *("--substrate", chain.url, *by_name(relay)),
    )
    done = run_program(GATEWAY, tmp_path, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    verdicts = [line.split()[:2] for line in done.stdout.decode().splitlines()]
    assert verdicts == [
        [name, "ok"] for name in ("keys", "twin", "listed", "relay", "redis", "modules")
    ]
    done = run_program(GATEWAY, tmp_path, *arguments, "--json")
    assert [each["verdict"] for each in json.loads(done.stdout)] == ["ok"] * 6
    assert chain.requests("author_submitAndWatchExtrinsic") == writes
    assert not valkey.run("KEYS", "*"), "no queue was touched"


def test_a_check_names_what_is_wrong(chain: Devchain, relay: RelayProcess, tmp_path: Path) -> None:
    (one,) = fresh_twins(1)
    chain.put_twin(one, "old.example")
    nobody = free_port()
    done = run_program(
        GATEWAY,
        tmp_path,
        *("--check", "--json", "-m", f"0x{one.mini_secret.hex()}", "--substrate", chain.url),
        *("--redis", f"redis://:hidden@127.0.0.1:{nobody}", *by_name(relay)),
        *("--relay", f"ws://localhost:{nobody}", "--module", "nothing.like:this"),
    )
    assert done.returncode == 1, done.stderr
    assert b"hidden" not in done.stdout
    assert not done.stderr
    findings = json.loads(done.stdout)
    assert [(each["name"], each["verdict"]) for each in findings] == [
        ("keys", "ok"),
        ("twin", "ok"),
        ("listed", "note"),
        ("relay", "ok"),
        ("relay", "FAIL"),
        ("redis", "FAIL"),
        ("modules", "FAIL"),
    ]
    assert "relays: old.example; they should be localhost" in findings[2]["text"]
    assert findings[4]["text"].startswith(f"ws://localhost:{nobody}: ")
    assert "--module nothing.like:this: ModuleNotFoundError" in findings[6]["text"]


async def test_a_check_does_not_push_a_working_gateway_out(
    relay: RelayProcess, valkey: RedisServer, start_peer: StartPeer, tmp_path: Path
) -> None:
    (one,) = fresh_twins(1)
    where = (*by_name(relay), "--twins", site(relay))
    peer = start_peer(one, valkey.url, *where)
    await peer.says("connected to ws://localhost")
    done = run_program(
        GATEWAY, tmp_path, "--check", "-m", f"0x{one.mini_secret.hex()}", "-r", valkey.url, *where
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert payload_of(await QueueUser(valkey).call("rmb.version", one.id))
    assert peer.log().count("connected to ws://localhost") == 1
