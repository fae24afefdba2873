"""The records of other relays in the admin."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from relay.federation.models import RelayNode
from tests.relay.federation.stored import PARTNER
from tests.relay.ops.test_admin import page
from tests.relay.ops.test_control import fields
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

RELAYS = "/admin/relay_federation/relaynode/"


def test_a_relay_entered_by_hand(admin_client: Client, site_redis: RedisServer) -> None:
    form = {"domain": "a.example:8080", "blocked": "on", "note": "spammer"}
    assert admin_client.post(f"{RELAYS}add/", form).status_code == 302
    assert fields(site_redis)["relay:a.example:8080"] == "blocked"
    assert "spammer" in page(admin_client, RELAYS)
    row = f"{RELAYS}a.example:8080/"
    assert "spammer" in page(admin_client, f"{row}change/")
    assert admin_client.post(f"{row}change/", {"note": ""}).status_code == 302
    assert "relay:a.example:8080" not in fields(site_redis)
    assert admin_client.post(f"{row}delete/", {"post": "yes"}).status_code == 302
    assert not RelayNode.objects.exists()
    wrong = {"a_b": "a host has letters", "https://a.example": "must be host or host:port"}
    for domain, why in wrong.items():
        assert why in admin_client.post(f"{RELAYS}add/", {"domain": domain}).content.decode()
    assert admin_client.get(RELAYS, {"q": "example"}).context["cl"].result_count == 0


def test_a_relay_entered_in_another_spelling(admin_client: Client, site_redis: RedisServer) -> None:
    form = {"domain": "B.EXAMPLE.:443", "blocked": "on"}
    assert admin_client.post(f"{RELAYS}add/", form).status_code == 302
    assert fields(site_redis)["relay:b.example"] == "blocked"
    again = admin_client.post(f"{RELAYS}add/", {"domain": "b.Example"})
    assert "already exists" in again.content.decode(), "nothing that was decided is overwritten"
    assert RelayNode.objects.get().blocked


def test_looking_is_not_acting(viewer: Client, site_redis: RedisServer) -> None:
    RelayNode.objects.create(domain=PARTNER)
    assert PARTNER in page(viewer, RELAYS)
    assert viewer.post(f"{RELAYS}{PARTNER}/change/", {"blocked": "on"}).status_code == 403
    assert fields(site_redis) == {}


def test_strangers_see_nothing(client: Client, site_redis: RedisServer) -> None:
    assert client.get(RELAYS)["Location"].startswith("/admin/login/")
    client.force_login(User.objects.create_user("nobody", is_staff=True))
    assert client.get(RELAYS).status_code == 403
