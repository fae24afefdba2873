"""`manage.py rmb_chain`: what it prints about the chain, and its exit codes."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from proto.identity import ss58
from relay.ops.redis_client import client
from relay.queues import keys
from relay.twins import mirror
from relay.twins.models import Twin
from tests.relay.twins.conftest import UseChain
from tests.support.devchain import Devchain
from tests.support.identities import twin
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)


def run(*arguments: str) -> tuple[int, str]:
    """Run the command, and return its exit code and output."""
    stdout = StringIO()
    try:
        call_command("rmb_chain", *arguments, stdout=stdout, stderr=StringIO())
    except SystemExit as ended:
        return int(ended.code or 0), stdout.getvalue()
    return 0, stdout.getvalue()


def followed(height: int, head_height: int) -> None:
    """Write the state and the lease of a follower to Redis."""
    now = client().time()[0]
    fields: dict[Any, Any] = {"height": height, "hash": "ab" * 32, "url": "ws://node"}
    client().hset(keys.CHAIN, mapping={**fields, "head_height": head_height, "head_at": now})
    client().set(keys.CHAIN_LEASE, "somebody")


def test_status_of_a_chain_that_nobody_follows(chain: Devchain) -> None:
    code, text = run("status")
    assert code == 1
    assert "follower  nobody follows the chain" in text
    assert "import    never run" in text
    assert chain.url in text


def test_status_of_a_chain_that_is_followed(chain: Devchain) -> None:
    followed(100, 103)
    code, text = run("status")
    assert code == 0, text
    assert "follower  at ws://node" in text
    assert "block     100, 3 behind the newest known" in text
    code, text = run("status", "--json")
    shown = json.loads(text)
    assert (shown["following"], shown["height"], shown["lag_blocks"]) == (True, 100, 3)
    assert shown["counts"]["stored"] == 0


def test_status_beside_a_registry(site_redis: RedisServer) -> None:
    assert "twins.source is registry here, the chain is not used" in run("status")[1]
    followed(100, 103)
    assert "twins.source is registry here, but a relay follows it" in run("status")[1]


def test_an_import_by_hand(chain: Devchain) -> None:
    assert run("import") == (0, "2 twins imported\n")
    assert "import    done, 2 twins in" in run("status")[1]
    document = json.loads(run("import", "--json")[1])
    assert (document["state"], document["twins"], document["error"]) == ("done", 2, "")
    client().set(keys.CHAIN_IMPORT_LEASE, "somebody")
    with pytest.raises(CommandError, match="another import is running"):
        run("import")


def test_one_twin(chain: Devchain) -> None:
    address = ss58.encode(twin(7).account)
    code, text = run("twin", "7")
    assert code == 0
    assert f"account   {address}\n" in text
    assert "mirror    not in the database\n" in text
    run("import")
    mirror.mark_stale(9)
    assert "stale since block 9: relays localhost" in run("twin", address)[1]
    Twin.objects.filter(id=7).update(source=Twin.Source.REGISTRY)
    assert "as a twin of the registry" in run("twin", f"0x{twin(7).account.hex()}")[1]
    shown = json.loads(run("twin", "8", "--json")[1])
    assert (shown["id"], shown["relays"]) == (8, "localhost")


@pytest.mark.parametrize(
    ("who", "complaint"),
    [
        ("9", "has no such twin"),
        ("0", "id: must be between 1"),
        ("x", "account: "),
        ("5CfvGQAWKykbiKFbkHNi96NdKtWAat7c3dFKRTNWhbmoc9AC", "account: "),
    ],
)
def test_who_is_not_there(chain: Devchain, who: str, complaint: str) -> None:
    with pytest.raises(CommandError, match=complaint):
        run("twin", who)


def test_without_a_node(site_redis: RedisServer, use_chain: UseChain) -> None:
    use_chain("ws://127.0.0.1:1")
    for arguments in (["twin", "7"], ["import"]):
        with pytest.raises(CommandError, match="chain: no chain node answered"):
            run(*arguments)


def test_without_redis(no_redis: None) -> None:
    with pytest.raises(CommandError, match="redis: "):
        run("status")


def test_twins_of_the_chain_are_not_changed_by_hand(chain: Devchain) -> None:
    run("import")
    for arguments in (["add", "7", "0x" + "07" * 32], ["remove", "7"], ["import", "-"]):
        with pytest.raises(CommandError, match="twins come from the chain"):
            call_command("rmb_twin", *arguments)
    stdout = StringIO()
    call_command("rmb_twin", "list", stdout=stdout, stderr=StringIO())
    assert stdout.getvalue().count("localhost") == Twin.objects.count() == 2
