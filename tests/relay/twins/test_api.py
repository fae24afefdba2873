"""The REST API for twins: its answers and refusals."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client

from proto.identity import ss58
from relay.access.actor import SYSTEM
from relay.twins import mirror, services
from relay.twins.fields import TwinValues
from tests.relay.twins.conftest import UseChain
from tests.support.identities import Twin, twin

pytestmark = pytest.mark.django_db

PROBLEM = "application/problem+json"


def add(who: Twin, *relays: str, pk: bool = True) -> None:
    key = who.encryption_key.public if pk else None
    services.put_twin(TwinValues(who.id, who.account, key, relays), actor=SYSTEM)


def shown(who: Twin, *relays: str) -> dict[str, Any]:
    return {
        "id": who.id,
        "account": ss58.encode(who.account),
        "pk": f"0x{who.encryption_key.public.hex()}",
        "relays": list(relays),
    }


def test_a_twin_by_its_id(client: Client, no_redis: None) -> None:
    add(twin(7), "a.example", "b.example")
    answer = client.get("/api/v1/twins/7")
    assert (answer.status_code, answer.json()) == (200, shown(twin(7), "a.example", "b.example"))
    assert answer["Content-Type"] == "application/json"
    assert "no-store" in answer["Cache-Control"]


def test_a_twin_by_its_account(client: Client, no_redis: None) -> None:
    add(twin(7), "a.example")
    add(twin(8))
    for text in (ss58.encode(twin(7).account), f"0x{twin(7).account.hex()}"):
        answer = client.get("/api/v1/twins", {"account": text})
        assert (answer.status_code, answer.json()) == (200, shown(twin(7), "a.example"))


def test_what_a_twin_does_not_have_is_null_or_empty(client: Client, no_redis: None) -> None:
    add(twin(7), pk=False)
    assert client.get("/api/v1/twins/7").json() == {**shown(twin(7)), "pk": None}


@pytest.mark.parametrize(
    ("path", "status", "detail"),
    [
        ("/7", 404, "there is no twin 7"),
        (f"?account=0x{'00' * 32}", 404, f"no twin has {ss58.encode(bytes(32))}"),
        ("/0", 400, "id: must be between 1 and 4294967295, not 0"),
        ("/4294967296", 400, "id: must be between 1 and 4294967295, not 4294967296"),
        ("/seven", 400, "id: must be a number, not 'seven'"),
        ("/%00", 400, "id: must be a number, not '\\x00'"),
        ("", 400, "account: address is too short"),
        ("?account=0x00", 400, "account: must be 0x and 64 hexadecimal digits"),
    ],
)
def test_a_refusal_names_what_is_wrong(
    client: Client, no_redis: None, path: str, status: int, detail: str
) -> None:
    answer = client.get(f"/api/v1/twins{path}")
    assert (answer.status_code, answer["Content-Type"]) == (status, PROBLEM)
    assert (answer.json()["status"], answer.json()["detail"]) == (status, detail)


def test_it_is_for_reading(client: Client, no_redis: None) -> None:
    assert client.post("/api/v1/twins/7").status_code == 405
    assert client.delete("/api/v1/twins/7").status_code == 401


def test_without_its_database_it_says_so(client: Client, no_redis: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE relay_twins_twin RENAME TO elsewhere")
    answer = client.get("/api/v1/twins/7")
    assert (answer.status_code, answer["Content-Type"]) == (503, PROBLEM)
    assert answer.json()["detail"].startswith("database: ")


def test_on_the_chain_rows_of_a_registry_do_not_count(
    client: Client, no_redis: None, use_chain: UseChain
) -> None:
    add(twin(7), "a.example")
    use_chain("ws://127.0.0.1:1")
    assert client.get("/api/v1/twins/7").status_code == 404
    theirs = mirror.ChainTwin(7, twin(7).account, b"b.example", (), twin(7).encryption_key.public)
    mirror.keep_read([theirs], height=3)
    assert client.get("/api/v1/twins/7").json() == shown(twin(7), "b.example")
