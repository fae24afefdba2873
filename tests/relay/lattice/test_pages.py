"""The operator's pages of the lattice: names, hosts and actors, orders, filters and forms."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from proto.lattice.nkeys import KeyKind, KeyPair
from proto.lattice.state import ActorRow, HostRow, LinkRow, ProviderRow, Seen
from relay.lattice.models import LatticePolicy
from relay.lattice.resources import RESOURCES
from tests.relay.dashboard.conftest import sign_in
from tests.support.lattice_state import called, find, report, saw
from tests.support.redis_servers import RedisServer

__all__ = ["sign_in"]

pytestmark = pytest.mark.django_db

PAGE = "/console/lattice"


def key(kind: KeyKind, number: int = 1) -> str:
    return KeyPair.of_random(kind, bytes([number]) * 32).public  # TEST KEYS


HOST, ACTOR, OTHER, PROVIDER = (
    key(KeyKind.HOST), key(KeyKind.ACTOR), key(KeyKind.ACTOR, 2), key(KeyKind.PROVIDER),
)  # fmt: skip


@pytest.fixture
def operator(site_redis: RedisServer, sign_in: Callable[[str], Client]) -> Client:
    return sign_in("operator")


@pytest.fixture
def lattice(site_redis: RedisServer) -> None:
    """Set up one host with two actors and a provider, calls, findings and processes."""
    labels = {"region": "north"}
    saw(site_redis, Seen.HOSTS, HostRow(HOST, "quiet-tree", "C", "0.82.0", 90_000, labels, 2, 1, 9))
    saw(
        site_redis,
        Seen.ACTORS,
        ActorRow(ACTOR, "Meters", HOST, "registry/meters:1", 3, 1, 9),
        ActorRow(OTHER, "invoices", HOST, "registry/invoices:2", 20, 1, 9),
    )
    row = ProviderRow(PROVIDER, "store", HOST, "default", "wasmcloud:keyvalue", health="failed")
    saw(site_redis, Seen.PROVIDERS, row)
    link = LinkRow(ACTOR, PROVIDER, "default", "wasmcloud:keyvalue", {"URL": "redis://secret"})
    saw(site_redis, Seen.LINKS, link)
    called(site_redis, "to_lattice", ACTOR, "", "Meters.Read", times=12)
    called(site_redis, "to_lattice", "(others)", "", "(others)")
    for number, reason in enumerate(("target", "target_url")):
        find(site_redis, reason, origin=f"wasmbus://{ACTOR}", target=f"wasmbus://a/b/{PROVIDER}",
             operation=f"Meters.{number}")  # fmt: skip
    report(site_redis, "bridge", provider=PROVIDER, twin=104, running=2)
    report(site_redis, "monitor", nats="away", error="no route", seen=7, unjudged=0)
    LatticePolicy.objects.create(
        name="meters", direction="to_lattice", twins="7", entities="*", names="Meters.*"
    )


def text_of(client: Client, path: str) -> str:
    answer = client.get(f"{PAGE}/{path}")
    assert answer.status_code == 200, (path, answer.status_code)
    return " ".join(answer.content.decode().split())


def row_of(text: str, wanted: str) -> str:
    (found,) = [row for row in re.findall("<tr>.*?</tr>", text) if wanted in row]
    return found


def test_lists_name_keys_and_lead_to_their_pages(lattice: None, operator: Client) -> None:
    actor, provider, host = (
        f'href="{PAGE}/actors/{ACTOR}/"', f'href="{PAGE}/providers/{PROVIDER}/"',
        f'href="{PAGE}/hosts/{HOST}/"',
    )  # fmt: skip
    for path, wanted, expected in (
        ("hosts/", "quiet-tree", (host, f'data-copy="{HOST}"', "1 d 1 h")),
        ("actors/", "Meters", (actor, host, "quiet-tree")),
        ("providers/", "wasmcloud:keyvalue", (provider, host, "failed")),
        ("links/", ">URL<", (actor, ">Meters<", provider, ">store<")),
        ("calls/", "Meters.Read", (actor, ">Meters<", "Twins call the lattice", "3 ms")),
        ("findings/", "Meters.1", (actor, provider, "target url")),
        ("processes/", "bridge-1", ('href="/console/twins/104/"', PROVIDER)),
    ):
        row = row_of(text_of(operator, path), wanted)
        for each in expected:
            assert each in row, (path, each)
    assert "href" not in row_of(text_of(operator, "calls/"), "(others)")
    assert "redis://secret" not in text_of(operator, "links/")


def test_pages_of_one(lattice: None, operator: Client) -> None:
    for path, expected in (
        (f"hosts/{HOST}/", ("Host quiet-tree", "region=north", "Meters", "store")),
        (f"actors/{ACTOR}/", ("Actor Meters", "Hosts that run it", ">store<", "Meters.Read",
                              "target url", f"{PAGE}/links/?actor_id={ACTOR}")),
        (f"providers/{PROVIDER}/", ("Provider store", ">Meters<", "Calls in the last hour",
                                    "None.")),
        ("policies/meters/", ("Policy meters", "30 s", f"{PAGE}/policies/put/?name=meters")),
    ):  # fmt: skip
        text = text_of(operator, path)
        for each in expected:
            assert each in text, (path, each)
    path = re.findall(f'{PAGE}/(findings/[^"/?]+/)"', text_of(operator, "findings/"))[0]
    for each in ("Finding: target url", "Subject", f"wasmbus://{ACTOR}"):
        assert each in text_of(operator, path), each
    for path in (f"hosts/{key(KeyKind.HOST, 9)}/", "actors/x/", "findings/1-1/", "policies/x/"):
        assert operator.get(f"{PAGE}/{path}").status_code == 404, path


def test_every_list_can_be_ordered_by_every_order(lattice: None, operator: Client) -> None:
    for resource in RESOURCES:
        for order in (sign + each.name for each in resource.orders for sign in ("", "-")):
            answer = operator.get(f"/api/v1/{resource.address}", {"order": order, "limit": 1})
            assert answer.status_code == 200, (resource.name, order, answer.content)
            found, cursor = answer.json()["items"], answer.json()["next"]
            if cursor:
                query = {"order": order, "limit": 5, "cursor": cursor}
                rest = operator.get(f"/api/v1/{resource.address}", query).json()["items"]
                assert found and rest and found[0] not in rest, (resource.name, order)
    names = [each["name"] for each in operator.get("/api/v1/lattice/actors").json()["items"]]
    assert names == ["invoices", "Meters"]


@pytest.mark.parametrize(
    ("path", "query", "found"),
    [
        ("hosts", {"name": "QUIET"}, 1),
        ("hosts", {"version": "0.81"}, 0),
        ("actors", {"host_name": "tree", "image": "meters"}, 1),
        ("providers", {"health": "failed"}, 1),
        ("providers", {"health": "passed"}, 0),
        ("links", {"actor_name": "meter", "provider_id": PROVIDER}, 1),
        ("calls", {"name": "meters"}, 1),
        ("calls", {"direction": "to_twin"}, 0),
        ("findings", {"reason": "target"}, 1),
        ("findings", {"origin": ACTOR, "target": PROVIDER}, 2),
        ("policies", {"enabled": "false"}, 0),
        ("processes", {"kind": "monitor"}, 1),
    ],
)
def test_filters(
    lattice: None, operator: Client, path: str, query: dict[str, str], found: int
) -> None:
    assert len(operator.get(f"/api/v1/lattice/{path}", query).json()["items"]) == found


def test_an_export_has_keys_and_names(lattice: None, operator: Client) -> None:
    answer = operator.get(f"{PAGE}/links/?export=csv")
    (row,) = csv.DictReader(io.StringIO(answer.getvalue().decode()))
    assert (row["actor_name"], row["actor_id"], row["value_names"]) == ("Meters", ACTOR, "URL")


def test_empty_lists_say_what_to_do(operator: Client) -> None:
    for path, told in (
        ("hosts/", "lattice.servers"), ("actors/", "no host runs one"),
        ("providers/", "no link names one"), ("links/", "Put a link so that"),
        ("calls/", "Policies say which calls pass"), ("findings/", "Processes shows"),
        ("policies/", "Add a policy"), ("processes/", "Start the relay with --lattice"),
    ):  # fmt: skip
        assert told in text_of(operator, path), path


def test_forms_say_what_is_wrong_with_each_field(operator: Client) -> None:
    damaged = f"{ACTOR[:-1]}{'A' if ACTOR[-1] != 'A' else 'B'}"
    link = {"actor_id": damaged, "provider_id": ACTOR, "contract_id": "", "values": "alone"}
    policy = {"name": "", "direction": "to_lattice", "twins": "x", "entities": "a,,b",
              "names": "*" * 99, "per_s": "-1", "max_bytes": "0", "timeout_ms": "x"}  # fmt: skip
    call = {"target": "", "operation": "", "data": "{", "timeout_ms": "40000"}
    told: dict[str, dict[str, Any]] = {
        "links/put/": {"actor_id": "wrong checksum", "provider_id": "expected: provider key",
                       "contract_id": "required", "values": "name=text"},
        "policies/put/": {"name": "required", "twins": "x is not a twin id",
                          "entities": "empty entry", "names": "stars", "per_s": "0 to 1000000",
                          "max_bytes": "1 to 16777216", "timeout_ms": "whole number"},
        "calls/call/": {"target": "required", "operation": "required", "data": "is not JSON",
                        "timeout_ms": "1 to 30000"},
    }  # fmt: skip
    for (path, expected), form in zip(told.items(), (link, policy, call), strict=True):
        answer = operator.post(f"{PAGE}/{path}", form)
        fields = answer.content.decode().split('<div class="c-field">')[1:]
        for name, text in expected.items():
            (field,) = [each for each in fields if f'name="{name}"' in each]
            assert text in field and "c-refused" in field, (path, name)
    assert not LatticePolicy.objects.exists()


def test_a_policy_is_added_and_edited_in_the_console(operator: Client) -> None:
    text = text_of(operator, "policies/put/")
    assert "checked" in text and 'value="30000"' in text, "the defaults"
    form = {"name": "a", "direction": "to_twin", "twins": "7", "entities": "*", "names": "calc.*",
            "per_s": "5", "max_bytes": "", "timeout_ms": "", "enabled": "on"}  # fmt: skip
    assert operator.post(f"{PAGE}/policies/put/", form).status_code == 302
    text = text_of(operator, "policies/put/?name=a")
    for each in ("Edit policy a", "calc.*", 'value="5"', 'value="to_twin" selected', "checked"):
        assert each in text, each
    changed = {**form, "twins": "8", "enabled": ""}
    assert operator.post(f"{PAGE}/policies/put/?name=a", changed).status_code == 302
    (row,) = LatticePolicy.objects.all()
    assert (row.twins, row.enabled, row.per_s, row.timeout_ms) == ("8", False, 5, 30_000)
