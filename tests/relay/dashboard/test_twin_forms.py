"""Adding, changing and removing a twin in the console."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from django.test import Client

from proto.identity import ss58
from relay.access.actor import SYSTEM
from relay.queues import keys
from relay.twins import services as twins
from relay.twins.fields import TwinValues
from relay.twins.models import Twin
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db

ACCOUNT = bytes(range(32))
PK = b"\2" + ACCOUNT
TWINS = "/console/twins/"
FORM = {"id": "7", "account": ss58.encode(ACCOUNT), "pk": "", "relays": ""}


def test_from_its_adding_to_its_end(admin_client: Client, site_redis: RedisServer) -> None:
    form = {**FORM, "pk": f"0x{PK.hex()}", "relays": "a_b"}
    assert admin_client.post(f"{TWINS}add/", form)["Location"] == TWINS
    assert Twin.objects.get(pk=7).record()[:4] == (7, ACCOUNT, PK, ("a", "b"))
    again = admin_client.post(f"{TWINS}add/", form).content.decode()
    assert "Twin 7 exists" in again, "nothing that is there is overwritten"
    page = admin_client.get(f"{TWINS}7/change/").content.decode()
    assert f"0x{PK.hex()}" in page and 'value="a_b"' in page
    changed = {"id": "8", "account": f"0x{ACCOUNT.hex()}", "pk": "", "relays": ""}
    assert admin_client.post(f"{TWINS}7/change/", changed).status_code == 302
    assert Twin.objects.get().record() == (7, ACCOUNT, None, (), 2)
    assert admin_client.post(f"{TWINS}7/remove/").status_code == 302
    assert not Twin.objects.exists()
    for path in ("change/", "remove/"):
        assert admin_client.get(f"{TWINS}7/{path}").status_code == 404


def test_the_form_offers_this_relay(
    admin_client: Client, site_redis: RedisServer, settings: Any
) -> None:
    own = dataclasses.replace(settings.RMB.relay, domains=("here.example",))
    settings.RMB = dataclasses.replace(settings.RMB, relay=own)
    offered = 'value="here.example"'
    assert offered in admin_client.get(f"{TWINS}add/").content.decode()
    answer = admin_client.post(f"{TWINS}add/", FORM, follow=True)
    assert "Twin 7 is added: it lists no relay" in answer.content.decode()
    assert offered not in admin_client.get(f"{TWINS}7/change/").content.decode()


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("id", "0", "greater than or equal to 1"),
        ("account", "x", "account: "),
        ("pk", "0x00", "pk: must be 0x"),
        ("relays", "_".join("x" * 20), "relays: must be at most 16"),
        ("relays", "wss://a", "did you mean a?"),
    ],
)
def test_bad_twins(
    admin_client: Client, site_redis: RedisServer, field: str, value: str, complaint: str
) -> None:
    answer = admin_client.post(f"{TWINS}add/", {**FORM, field: value})
    assert answer.status_code == 200
    assert complaint in answer.content.decode()
    assert not Twin.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_workers_are_told(admin_client: Client, site_redis: RedisServer) -> None:
    twins.put_twin(TwinValues(7, ACCOUNT, None, ("here",)), actor=SYSTEM)
    assert admin_client.post(f"{TWINS}7/remove/").status_code == 302
    assert site_redis.run("GET", keys.TWINS_VERSION) == b"2"
