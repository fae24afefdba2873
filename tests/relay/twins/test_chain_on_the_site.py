"""Twins of the chain on the operator site: shown, not changed; health and metrics of the chain."""

from __future__ import annotations

import pytest
from django.test import Client

from proto.chain.twin import Twin as ChainTwin
from relay.access.actor import SYSTEM
from relay.ops.redis_client import client as redis
from relay.queues import keys
from relay.twins import mirror
from relay.twins import services as twins
from relay.twins.fields import TwinValues
from relay.twins.models import Twin
from tests.relay.conftest import AddWorker
from tests.relay.twins.conftest import UseChain

pytestmark = pytest.mark.django_db

TWINS = "/admin/relay_twins/twin/"
KEY = b"\2" + bytes(32)


@pytest.fixture
def mirrored(add_worker: AddWorker, use_chain: UseChain) -> None:
    """A site with twin 7 of the chain and twin 8 of the registry."""
    add_worker("boot")
    use_chain("ws://127.0.0.1:1")
    mirror.keep_read([ChainTwin(7, bytes(range(32)), b"here.example", (), KEY)], 4711)
    twins.put_twin(TwinValues(8, bytes(32), None, ("there.example",)), actor=SYSTEM)


def test_a_twin_of_the_chain_is_shown_and_not_changed(admin_client: Client, mirrored: None) -> None:
    listed = admin_client.get(TWINS).content.decode()
    assert "4711" in listed and "here.example" in listed
    page = admin_client.get(f"{TWINS}7/change/").content.decode()
    assert "4711" in page and f"0x{KEY.hex()}" in page
    assert 'name="relays"' not in page and 'name="_save"' not in page
    form = {"id": "7", "account_text": "0x" + "00" * 32, "relays": "mine.example"}
    assert admin_client.post(f"{TWINS}7/change/", form).status_code == 403
    assert admin_client.post(f"{TWINS}7/delete/", {"post": "yes"}).status_code == 403
    assert admin_client.get(f"{TWINS}add/").status_code == 403
    action = {"action": "delete_selected", "_selected_action": ["7", "8"], "post": "yes"}
    admin_client.post(TWINS, action)
    assert Twin.objects.get(id=7).relays == "here.example"
    # What the registry left behind may be cleared away.
    assert admin_client.post(f"{TWINS}8/delete/", {"post": "yes"}).status_code == 302
    assert list(Twin.objects.values_list("id", flat=True)) == [7]


def test_the_chain_in_health(client: Client, mirrored: None) -> None:
    answer = client.get("/ready")
    assert answer.status_code == 200, "other hosts would have the same trouble"
    assert "chain: nobody follows the chain" in answer.json()["degraded"]
    now = redis().time()[0]
    redis().set(keys.CHAIN_LEASE, "somebody")
    redis().hset(keys.CHAIN, mapping={"url": "ws://node", "head_at": now - 99, "error": "mute"})
    complaints = client.get("/ready").json()["degraded"]
    assert [each for each in complaints if each.startswith("chain: no new block for ")]
    redis().hset(keys.CHAIN, "head_at", now)
    assert not [each for each in client.get("/ready").json()["degraded"] if "chain: " in each]


def test_the_chain_in_the_metrics(client: Client, mirrored: None) -> None:
    redis().hset(keys.CHAIN, mapping={"height": 4711, "hash": "00" * 32, "stored": 3})
    text = client.get("/metrics").content.decode()
    assert "\nevents_listener_last_processed_block_number 4711\n" in text
    assert "\nevents_listener_twin_stored_total 3\n" in text
    assert '\nevents_listener_errors_total{stage="node"} 0\n' in text


def test_a_registry_has_no_chain_in_its_metrics(client: Client, add_worker: AddWorker) -> None:
    add_worker("boot")
    assert "events_listener" not in client.get("/metrics").content.decode()
