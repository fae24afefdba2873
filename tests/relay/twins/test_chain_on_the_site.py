"""Twins of the chain on the operator site: they are shown and read-only.

The health check and the metrics include the chain.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import HttpResponse
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
from tests.relay.rest.conftest import account, bearer, token_of
from tests.relay.twins.conftest import UseChain

pytestmark = pytest.mark.django_db

TWINS = "/console/twins/"
KEY = b"\2" + bytes(32)


@pytest.fixture
def mirrored(add_worker: AddWorker, use_chain: UseChain) -> None:
    """Set up a site with twin 7 from the chain and twin 8 from the registry."""
    add_worker("boot")
    twins.put_twin(TwinValues(8, bytes(32), None, ("there.example",)), actor=SYSTEM)
    use_chain("ws://127.0.0.1:1")
    mirror.keep_read([ChainTwin(7, bytes(range(32)), b"here.example", (), KEY)], 4711)


def test_a_twin_of_the_chain_is_shown_and_not_changed(admin_client: Client, mirrored: None) -> None:
    page = admin_client.get(f"{TWINS}7/").content.decode()
    assert "4711" in page and "here.example" in page and f"0x{KEY.hex()}" in page
    assert "/change/" not in page and "/remove/" not in page
    form = {"id": "9", "account": "0x" + "07" * 32, "relays": "mine.example"}
    for path in ("add/", "7/change/", "8/change/", "7/remove/"):
        answer = admin_client.post(f"{TWINS}{path}", form)
        assert answer.status_code == 409, path
        assert "twins come from the chain" in answer.content.decode()
    assert Twin.objects.get(id=7).relays == "here.example"
    # Twins that remain from the registry can be removed.
    assert admin_client.post(f"{TWINS}8/remove/").status_code == 302
    assert list(Twin.objects.values_list("id", flat=True)) == [7]


def test_rest_leaves_the_chain_alone(mirrored: None) -> None:
    owner = bearer(token_of(account("owner", "owner")))
    before = Client().get("/api/v1/twins/7").json()

    def refused(answer: HttpResponse) -> None:
        assert answer.status_code == 409, answer.content
        assert "twins come from the chain" in json.loads(answer.content)["detail"]

    changed = {"account": "0x" + "ff" * 32, "relays": ["evil.example"]}
    for path in ("/api/v1/twins/7", "/api/v1/twins/8", "/api/v1/twins/9"):
        refused(owner.put(path, changed, content_type="application/json"))
    refused(owner.patch("/api/v1/twins/7", {"relays": []}, content_type="application/json"))
    refused(owner.delete("/api/v1/twins/7"))
    text = f"id,account,pk,relays\n7,0x{'ff' * 32},,evil.example\n"
    refused(owner.generic("POST", "/api/v1/twins/import", data=text, content_type="text/csv"))
    assert Client().get("/api/v1/twins/7").json() == before
    assert owner.delete("/api/v1/twins/8").status_code == 204, "left behind by a registry"
    # Bans and limits belong to this site, not to the twin's record, so they can be set.
    reason = {"reason": "noise"}
    banned = owner.post("/api/v1/limits/7/ban", reason, content_type="application/json")
    assert banned.json()["banned"] is True
    limit = {"count": 10, "size": 1000}
    answer = owner.put("/api/v1/limits/7", limit, content_type="application/json")
    assert answer.json()["count"] == 10
    assert Twin.objects.get(id=7).source == Twin.Source.CHAIN


def test_the_console_leaves_the_chain_alone(admin_client: Client, mirrored: None) -> None:
    text = f"id,account,pk,relays\n7,0x{'ff' * 32},,evil.example\n"
    file = SimpleUploadedFile("twins.csv", text.encode())
    page = admin_client.post("/console/twins/import/", {"file": file})
    assert page.status_code == 200 and "twins come from the chain" in page.content.decode()
    assert Twin.objects.get(id=7).relays == "here.example"
    for twin in (7, 8):
        assert "/change/" not in admin_client.get(f"/console/twins/{twin}/").content.decode()


def test_the_mirror_is_what_a_registry_begins_with(
    admin_client: Client, mirrored: None, settings: Any
) -> None:
    settings.RMB = dataclasses.replace(
        settings.RMB, twins=dataclasses.replace(settings.RMB.twins, source="registry")
    )
    assert "/change/" in admin_client.get("/console/twins/7/").content.decode()
    form = {"id": "7", "account": "0x" + "07" * 32, "relays": "mine.example"}
    assert admin_client.post(f"{TWINS}7/change/", form).status_code == 302
    changed = Twin.objects.get(id=7)
    assert (changed.relays, changed.source) == ("mine.example", Twin.Source.REGISTRY)
    assert admin_client.post(f"{TWINS}7/remove/").status_code == 302
    assert not Twin.objects.filter(id=7).exists()


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
