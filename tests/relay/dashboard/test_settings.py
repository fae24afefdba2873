"""The settings page: values, their sources, and secrets that are not shown."""

from __future__ import annotations

import csv
import dataclasses
from typing import Any

import pytest
from django.test import Client

from relay.access.matrix import Role
from tests.relay.dashboard.conftest import SignIn

pytestmark = pytest.mark.django_db


@pytest.fixture
def client(sign_in: SignIn) -> Client:
    return sign_in(Role.VIEWER)


def keys(client: Client, query: str) -> list[str]:
    answer = client.get(f"/console/settings/?export=csv&{query}")
    text = b"".join(answer.streaming_content).decode()  # type: ignore[attr-defined]
    return [row["key"] for row in csv.DictReader(text.splitlines())]


def test_all_of_them_on_one_page(client: Client, settings: Any) -> None:
    page = client.get("/console/settings/").content.decode()
    for option in settings.RMB_OPTIONS:
        assert f'title="{option.key}"' in page
    assert "Next page" not in page


def test_where_a_value_came_from(client: Client, settings: Any) -> None:
    settings.RMB_ORIGINS = {"relay.domains": "RMB_RELAY__DOMAINS"}
    settings.RMB = dataclasses.replace(
        settings.RMB, relay=dataclasses.replace(settings.RMB.relay, domains=("a.example", "b.c"))
    )
    page = client.get("/console/settings/?changed=yes").content.decode()
    assert "a.example, b.c" in page and "RMB_RELAY__DOMAINS" in page
    assert keys(client, "changed=yes") == ["relay.domains"]
    assert "relay.domains" not in keys(client, "changed=no")


def test_filters(client: Client) -> None:
    assert set(keys(client, "section=redis")) == {
        each for each in keys(client, "") if each.startswith("redis.")
    }
    assert keys(client, "find=tls_cert+TLS") == ["relay.tls_cert", "relay.tls_key"]
    assert keys(client, "find=no+such+setting") == []


def test_secrets_are_not_shown(client: Client, settings: Any) -> None:
    secret = next(each for each in settings.RMB_OPTIONS if each.secret)
    section = getattr(settings.RMB, secret.section)
    changed = dataclasses.replace(section, **{secret.name: "hush-hush"})
    settings.RMB = dataclasses.replace(settings.RMB, **{secret.section: changed})
    page = client.get("/console/settings/?column=key&column=value&column=default").content.decode()
    assert "hush-hush" not in page and "(set, not shown)" in page
    assert keys(client, "find=hush-hush") == []
