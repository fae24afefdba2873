"""Tests of the node as a process: options, restarts, kills, and work in bulk."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from substrateinterface import SubstrateInterface
from websockets.sync import client as websocket_client

from chain.devchain import cli
from proto.chain import storage, twin
from proto.chain.headers import to_hex
from tests.support import identities
from tests.support.devchain import ROOT, Devchain, as_json, running_devchain
from tests.support.relay_process import command_environment

TIMEOUT_S = 30.0


def _stored(chain: Devchain, number: int) -> twin.Twin | None:
    value = chain.call("state_getStorage", [to_hex(storage.twin_key(number))])
    return twin.decode(bytes.fromhex(value[2:])) if value else None


def test_a_chain_survives_stop_and_kill(tmp_path: Path) -> None:
    first, second = identities.twin(7), identities.twin(9)
    chain = Devchain(tmp_path, [first]).start()
    genesis = chain.call("chain_getBlockHash", [0])
    try:
        chain.put_twin(second, "r1.example.com")
        chain.stop()
        chain.start()
        assert chain.call("chain_getBlockHash", [0]) == genesis
        found = _stored(chain, 9)
        assert found is not None and found.relay == b"r1.example.com"
        number = chain.put_twin(first, "r2.example.com:8080")
        chain.kill()
        chain.start()
        assert int(chain.call("chain_getHeader")["number"], 16) == number
        found = _stored(chain, 7)
        assert found is not None and found.relay == b"r2.example.com:8080"
        assert found.account == first.account and found.pk == first.encryption_key.public
    finally:
        chain.stop()
    assert chain.log() == ""


def test_bulk(tmp_path: Path) -> None:
    with running_devchain(tmp_path, made_up_twins=5000) as chain:
        begin = time.monotonic()
        chain.new_blocks(5000)
        # It takes half a second on an idle core, but a full test run shares the cores.
        assert time.monotonic() - begin < 20
        chain.put_twins([as_json(identities.twin(number)) for number in range(6001, 6101)])
        with SubstrateInterface(url=chain.url, ws_options={"timeout": TIMEOUT_S}) as client:
            keys = client.query_map("TfgridModule", "Twins", page_size=1000)
            assert sum(1 for _ in keys) == 5100
            assert client.get_block_number(client.get_chain_head()) == 5001
            assert len(client.get_events(client.get_chain_head())) == 101


def test_django_runs_it_too(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [
            *(sys.executable, str(ROOT / "manage.py"), "rmb_devchain"),
            *("--listen", "127.0.0.1:0", "--twins", "3", "--relay", "b.example.com_a.example.com"),
        ],
        cwd=tmp_path,
        env=command_environment(tmp_path, {}),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(cli.READY)
        url = line.removeprefix(cli.READY).split()[0]
        with websocket_client.connect(url) as socket:
            socket.send('{"jsonrpc":"2.0","id":1,"method":"system_chain"}')
            assert "TFChain" in str(socket.recv(timeout=TIMEOUT_S))
    finally:
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
        process.stdout.close()  # type: ignore[union-attr]


def _run(*arguments: str) -> Any:
    return subprocess.run(
        [sys.executable, "-m", "chain.devchain", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--listen", "9944"], "must be host:port"),
        (["--listen", "127.0.0.1:99999"], "must be host:port"),
        (["--listen", "192.0.2.1:1"], "cannot listen on 192.0.2.1:1"),
        (["--block-time", "-1"], "--block-time must be from 0"),
        (["--block-time", "nan"], "--block-time must be from 0"),
        (["--twins", "-1"], "--twins must be from 0"),
        (["--twins", "1000000"], "--twins must be from 0 to 200000"),
        (["--twins", "1", "--import", "x.csv"], "use --twins or --import"),
        (["--import", "missing.csv"], r"missing.csv: "),
        (["--file", "/dev"], "/dev: Is a directory"),
        (["--relay", "a" * 1025, "--twins", "1"], "--relay must have at most 1024 bytes"),
    ],
)
def test_options_that_cannot_be(arguments: list[str], problem: str) -> None:
    done = _run(*arguments)
    assert done.returncode == 2
    assert problem in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_port_is_taken(tmp_path: Path) -> None:
    with running_devchain(tmp_path) as chain:
        done = _run("--listen", f"127.0.0.1:{chain.port}")
        assert done.returncode == 2 and "cannot listen" in done.stderr
        done = _run("--listen", "127.0.0.1:0", "--file", str(chain.file))
        assert done.returncode == 2 and "another node has it open" in done.stderr


def test_a_chain_in_the_file_goes_before_new_twins(tmp_path: Path) -> None:
    with running_devchain(tmp_path, made_up_twins=2) as chain:
        genesis = chain.call("chain_getBlockHash", [0])
    with running_devchain(tmp_path, made_up_twins=50) as chain:
        assert chain.call("chain_getBlockHash", [0]) == genesis
        assert _stored(chain, 3) is None
