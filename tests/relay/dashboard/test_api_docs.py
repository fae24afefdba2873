"""The pages that document the REST API: for every account, with every operation."""

from __future__ import annotations

import dataclasses
import html
import json
import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from relay.access.matrix import Role
from relay.rest.api import api
from tests.relay.dashboard.conftest import SignIn

pytestmark = pytest.mark.django_db

OPERATIONS = [
    (method.upper(), path, told)
    for path, item in json.loads(api.document)["paths"].items()
    for method, told in item.items()
]


@pytest.fixture
def client() -> Client:
    """Return a client whose account may only sign in."""
    client = Client()
    client.force_login(User.objects.create_user("newcomer", is_staff=True))
    return client


def test_nobody_is_led_to_the_sign_in() -> None:
    for path in ("/api/docs/", "/api/docs/list_twins/"):
        answer = Client().get(path)
        assert answer.status_code == 302
        assert answer.headers["Location"] == f"/admin/login/?next={path}"


def test_all_operations_are_listed(client: Client) -> None:
    answer = client.get("/api/docs", follow=True)
    assert answer.status_code == 200
    page = answer.content.decode()
    for _, path, told in OPERATIONS:
        assert f'<a class="c-link" href="/api/docs/{told["operationId"]}/">{path}</a>' in page
    assert "Next page" not in page


def test_each_operation_has_a_page(client: Client) -> None:
    for method, path, told in OPERATIONS:
        answer = client.get(f"/api/docs/{told['operationId']}/")
        page = html.unescape(answer.content.decode())
        assert answer.status_code == 200
        assert f"<code>{method} {path}</code>" in page
        assert told.get("x-permission", "") in page
        for each in told["parameters"]:
            assert f">{each['name']}</code>" in page
        for status in told["responses"]:
            assert f'<td data-label="Status">{status}</td>' in page
        assert "curl " in page and "http://testserver/api/v1/" in page


def test_operations_are_filtered(client: Client) -> None:
    page = client.get("/api/docs/?tag=twins&method=DELETE").content.decode()
    assert "/api/docs/delete_twin/" in page and "/api/docs/get_twin/" not in page
    page = client.get("/api/docs/?find=silence+end").content.decode()
    assert "/api/docs/end_silence/" in page and "/api/docs/add_silence/" not in page


def test_operations_come_in_pages(client: Client) -> None:
    seen, path = [], "/api/docs/?limit=50&order=method"
    while path:
        page = client.get(path).content.decode()
        seen += re.findall(r'href="/api/docs/(\w+)/"', page)
        following = re.search(r'href="([^"]+)" rel="next"', page)
        path = html.unescape(following[1]) if following else ""
    assert sorted(seen) == sorted(told["operationId"] for _, _, told in OPERATIONS)


def test_an_operation_that_is_none(client: Client) -> None:
    answer = client.get("/api/docs/no_such/")
    assert answer.status_code == 404
    assert b"the REST API has no operation no_such" in answer.content


def test_the_console_leads_there(sign_in: SignIn) -> None:
    page = sign_in(Role.VIEWER).get("/console/settings/").content.decode()
    assert page.count('href="/api/docs/"') >= 2  # in the menu, and beside the version


def test_a_missing_second_factor_comes_first(sign_in: SignIn, settings: Any) -> None:
    access = dataclasses.replace(settings.RMB.access, require_totp=(Role.VIEWER,))
    settings.RMB = dataclasses.replace(settings.RMB, access=access)
    client = sign_in(Role.VIEWER)
    # Pages use the session and ignore the Authorization header.
    answer = client.get("/api/docs/", headers={"Authorization": "Bearer no"})
    assert answer.status_code == 302 and "totp" in answer.headers["Location"]


@pytest.mark.parametrize("query", ["find=%00", "limit=x", "order=x", "cursor=x"])
def test_odd_requests(client: Client, query: str) -> None:
    assert client.get(f"/api/docs/?{query}").status_code in (200, 400, 422)
