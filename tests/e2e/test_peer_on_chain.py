"""Peers and a relay that know twins from the chain only, from their first start."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from pathlib import Path

from proto.identity.signing import KeyType
from tests.support.devchain import running_devchain
from tests.support.identities import twin
from tests.support.on_chain import chain_relay, wait_for_follower
from tests.support.peer_process import CLI, GATEWAY, Program, run_program, write_secret
from tests.support.redis_servers import start_valkey

RICH = 10**9

MODULE = """
from peer.modules.api import Module, Request

calc = Module("calc")


@calc.command("add")
async def add(request: Request) -> bytes:
    return f"{sum(request.json())} for {request.source.twin}".encode()
"""


async def test_a_gateway_moves_its_twin_to_the_relay_and_is_found_there(tmp_path: Path) -> None:
    """A gateway moves its sr25519 twin from an old entry on the chain to the relay.

    An ed25519 twin can call it there.
    """
    one = dataclasses.replace(twin(7), relays="old.example")
    two = dataclasses.replace(twin(8), key_type=KeyType.ED25519)
    (tmp_path / "my_calc.py").write_text(MODULE)
    with contextlib.ExitStack() as cleanup:
        chain = cleanup.enter_context(running_devchain(tmp_path / "chain", (one, two)))
        chain.set_balance(one.account, RICH)
        server = start_valkey(tmp_path / "redis")
        cleanup.callback(server.remove)
        relay = chain_relay(tmp_path / "relay", server, chain)
        cleanup.callback(relay.stop)
        relay.start()
        wait_for_follower(relay)
        queues = start_valkey(tmp_path / "queues")
        cleanup.callback(queues.remove)
        where = ("--relay", f"ws://localhost:{relay.port}", "--substrate", chain.url)
        gateway = Program(
            GATEWAY,
            tmp_path,
            *("--secret-file", str(write_secret(tmp_path, one)), "--redis", queues.url, *where),
            *("--module", "my_calc:calc"),
        )
        cleanup.callback(gateway.stop)
        cleanup.callback(lambda: print(gateway.log()))
        await gateway.says("twin 7 is updated, final in block 0x")
        await gateway.says("connected to ws://localhost")
        asker = ("-k", "ed25519", "--secret-file", str(write_secret(tmp_path, two)), *where)
        called = run_program(CLI, tmp_path, "call", "7", "calc.add", "[1, 2]", *asker)
        assert called.stdout == b"3 for 8", called.stderr
        # The chain now has the entry that the gateway wants: a second check finds nothing to do.
        shown = run_program(CLI, tmp_path, "twin", "7", "--json", "-s", chain.url)
        assert json.loads(shown.stdout)["relays"] == ["localhost"]
        checked = run_program(
            GATEWAY,
            tmp_path,
            *("--check", "-m", f"0x{one.mini_secret.hex()}", "-r", queues.url, *where),
            *("--module", "my_calc:calc"),
        )
        assert checked.returncode == 0, checked.stdout
        assert b"listed   ok" in checked.stdout
        assert b"rmb.* file.* calc.*" in checked.stdout
