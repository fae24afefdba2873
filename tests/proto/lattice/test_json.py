"""Tests of the lattice's JSON, recorded and damaged: host data, control, registry and events."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.lattice.control import (
    Ack,
    Control,
    ControlRequest,
    RunningActor,
    RunningProvider,
    decode_ack,
    decode_bid,
    decode_claims_list,
    decode_host,
    decode_inventory,
    decode_links,
)
from proto.lattice.errors import FormatError, KeyFormatError
from proto.lattice.events import EventName, decode_event
from proto.lattice.host_data import DEFAULT_RPC_URL, HostData, decode_host_data
from proto.lattice.json_text import read_json
from proto.lattice.messages import (
    LinkDefinition,
    decode_shutdown,
    link_of_record,
)
from proto.lattice.registry import (
    ActorClaims,
    ProviderClaims,
    bucket_name,
    claims_key,
    decode_claims,
    link_key,
)
from tests.proto.lattice.identities import ACTOR, CLUSTER, HOST, PROVIDER, VECTORS

M, V, N = ACTOR.public, PROVIDER.public, HOST.public
LINK = LinkDefinition(M, V, "default", "wasmcloud:keyvalue", {"URL": "redis://127.0.0.1:6379"})
HOST_DATA, REAL = VECTORS["host_data"], VECTORS["real_host"]
OPERATIONS = {entry["op"]: entry for entry in VECTORS["control"]["ops"]}

control = Control("vectors")
REQUESTS: dict[str, ControlRequest] = {
    "get_hosts": control.ping_hosts(),
    "get_host_inventory": control.get_inventory(N),
    "get_claims": control.get_claims(),
    "perform_actor_auction": control.auction_actor("registry/echo:1", {"zone": "a"}),
    "perform_provider_auction": control.auction_provider("registry/kv:1", "default", {}),
    "scale_actor": control.scale_actor(N, "file:///actors/echo.wasm", 3, {"by": "test"}),
    "scale_actor_no_annotations": control.scale_actor(N, "file:///actors/echo.wasm", 0),
    "advertise_link": control.put_link(LINK),
    "remove_link": control.del_link(M, "wasmcloud:keyvalue", "default"),
    "query_links": control.get_links(),
    "put_config": control.put_config(M, "k", b"\x01\x02\x03"),
    "get_config": control.get_config(M, "k"),
    "get_all_config": control.get_config(M),
    "delete_config_key": control.del_config(M, "k"),
    "clear_config": control.del_config(M),
    "put_label": control.put_label(N, "zone", "a"),
    "delete_label": control.del_label(N, "zone"),
    "update_actor": control.update_actor(N, M, "registry/echo:2"),
    "start_provider": control.start_provider(N, "registry/kv:1", "default", "{}"),
    "stop_provider": control.stop_provider(N, "registry/kv:1", "default", "wasmcloud:keyvalue"),
    "stop_actor": control.stop_actor(N, "registry/echo:1"),
    "stop_host": control.stop_host(N, 500),
}
NOT_MADE = {"put_registries"}  # only hosts handle registry passwords


def real_answers(word: str) -> list[bytes]:
    """Return the answers of the real host to requests with this name."""
    return [entry["reply"].encode() for entry in REAL["control"] if entry["op"].split()[0] == word]


# --- control ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_are_the_recorded_ones(name: str) -> None:
    entry, request = OPERATIONS[name], REQUESTS[name]
    assert (request.subject, request.body.decode()) == (entry["subject"], entry["request"])
    assert request.gathers is (name == "get_hosts" or "auction" in name)


def test_each_recorded_request_is_known() -> None:
    assert OPERATIONS.keys() == REQUESTS.keys() | NOT_MADE
    assert Control("l", prefix="a.b").get_links().subject == "a.b.l.get.links"


@pytest.mark.parametrize("host_id", ["", "N *", "N\r\nPUB", "a..b"])
def test_subjects_cannot_be_broken(host_id: str) -> None:
    with pytest.raises(FormatError, match="control subject"):
        control.stop_host(host_id)


def test_acks() -> None:
    assert decode_ack(b'{"accepted":true,"error":""}') == Ack(True)
    refused = decode_ack(OPERATIONS["stop_provider"]["reply"].encode())
    assert refused == Ack(False, "provider not running")
    with pytest.raises(FormatError, match="'accepted' is missing"):
        decode_ack(b"{}")
    for entry in REAL["control"]:
        if "accepted" in entry["reply"]:
            assert decode_ack(entry["reply"].encode()).accepted is not bool(
                json.loads(entry["reply"])["error"]
            )


def test_hosts() -> None:
    recorded = decode_host(OPERATIONS["get_hosts"]["reply"].encode())
    assert (recorded.id, recorded.lattice, recorded.uptime_s) == (N, "vectors", 5)
    assert (recorded.js_domain, recorded.issuer, recorded.rpc_url) == ("", "", "127.0.0.1")
    (real,) = real_answers("ping")
    host = decode_host(real)
    assert (host.id, host.issuer, host.cluster_issuers) == (N, CLUSTER.public, (CLUSTER.public,))
    assert host.labels["hostcore.os"] == "linux"


def test_inventories() -> None:
    data = OPERATIONS["get_host_inventory"]["reply"].encode()
    inventory = decode_inventory(data, N)
    assert inventory.actors == (RunningActor(M, "echo", "file:///actors/echo.wasm", 1, 4),)
    assert inventory.providers == (RunningProvider(V, "default", "wasmcloud:keyvalue", revision=2),)
    for answer in real_answers("inventory"):
        assert decode_inventory(answer, N).actors[0].max_instances == 5
    with pytest.raises(FormatError, match=f"inventory of host {N}, expected NX"):
        decode_inventory(data, "NX")


def test_lists_and_bids() -> None:
    assert decode_links(OPERATIONS["query_links"]["reply"].encode())[0].provider_id == V
    assert decode_claims_list(OPERATIONS["get_claims"]["reply"].encode())[0]["sub"] == M
    for answer in real_answers("claims"):
        assert decode_claims_list(answer)[0]["subject"] == M
    for answer in real_answers("links"):
        decode_links(answer)
    for name in ("perform_actor_auction", "perform_provider_auction"):
        assert decode_bid(OPERATIONS[name]["reply"].encode()) == N


@pytest.mark.parametrize(
    ("decode", "data", "says"),
    [
        (decode_host, {}, "'id' is nil, expected text"),
        (decode_host, {"id": "N"}, "'id': invalid key 'N': 1 characters"),
        (decode_host, {"id": N, "labels": {"a": 1}}, "'labels' must be a map of texts"),
        (decode_host, {"id": N, "uptime_seconds": -1}, "uptime_seconds"),
        (decode_host, {"id": N, "friendly_name": "x" * 5000}, "limit: 4096"),
        (decode_links, {"links": [1]}, "'links' must be a list of objects"),
        (decode_links, {"links": [{}] * 10_001}, "10001 items, limit: 10000"),
        (decode_links, {"links": [{"actor_id": M}]}, "'values' is missing"),
        (decode_claims_list, {"claims": [{"a": None}]}, "must be a map of texts"),
        (decode_bid, {"host_id": V}, "provider key"),
    ],
)
def test_answers_that_lie(decode: Callable[[bytes], Any], data: Any, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        decode(json.dumps(data).encode())


# --- host data ----------------------------------------------------------------------------------


@pytest.mark.parametrize("line", [HOST_DATA["stdin_base64"], REAL["provider_stdin_base64_line"]])
def test_host_data_byte_for_byte(line: str) -> None:
    data = decode_host_data(f"{line}\r\n")
    assert (data.host_id, data.lattice, data.provider_key) == (N, "default", V)
    assert (data.invocation_seed, data.cluster_issuers) == (CLUSTER.seed, (CLUSTER.public,))
    assert (data.rpc_timeout_ms, data.log_level, data.otlp_endpoint) == (2000, "", None)
    assert data.links[0].actor_id == M
    assert data.encode() == line.strip().encode() + b"\r\n"
    assert CLUSTER.seed not in repr(data)


def host_line(**changes: Any) -> bytes:
    record = {**HOST_DATA["json"], **changes}
    return base64.b64encode(json.dumps({k: v for k, v in record.items() if v != "drop"}).encode())


def test_what_older_hosts_omit() -> None:
    data = decode_host_data(
        host_line(otel_config="drop", lattice_rpc_url="", default_rpc_timeout_ms=None)
    )
    assert (data.rpc_url, data.rpc_timeout_ms, data.traces_exporter) == (
        DEFAULT_RPC_URL,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"cluster_issuers": "drop"}, "'cluster_issuers' is nil, expected a list"),
        ({"cluster_issuers": [1]}, "'cluster_issuers' must be a list of texts"),
        ({"cluster_issuers": ["C"] * 1001}, "1001 items, limit: 1000"),
        ({"link_definitions": "drop"}, "'link_definitions'"),
        ({"env_values": "drop"}, "'env_values' is missing"),
        ({"host_id": None}, "'host_id' is nil"),
        ({"default_rpc_timeout_ms": 2.5}, "'default_rpc_timeout_ms' is a float"),
        ({"default_rpc_timeout_ms": True}, "'default_rpc_timeout_ms' is a boolean"),
        ({"structured_logging": 1}, "'structured_logging'"),
        ({"otel_config": []}, "'otel_config' is an array"),
    ],
)
def test_host_data_errors_name_the_field(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(FormatError, match=says) as caught:
        decode_host_data(host_line(**changes))
    assert CLUSTER.seed not in str(caught.value)


@pytest.mark.parametrize("line", ["", "é", "e30", "W10=", "x" * 9_000_000, b"\xff", "e30=\ne30="])
def test_other_lines_are_not_host_data(line: str | bytes) -> None:
    with pytest.raises(FormatError, match="host data"):
        decode_host_data(line)


@pytest.mark.parametrize(("host_id", "provider"), [("_TEST_", V), ("", V), (N, M), (N, "")])
def test_host_data_of_bad_keys_is_never_written(host_id: str, provider: str) -> None:
    data = HostData(host_id, "default", "default", provider, CLUSTER.seed, (CLUSTER.public,))
    with pytest.raises(KeyFormatError):
        data.encode()


def test_shutdown() -> None:
    recorded = VECTORS["shutdown"]["request_text"].encode()
    assert decode_shutdown(recorded) == N
    assert decode_shutdown(REAL["shutdown"][0]["request"].encode()) == N


# --- registry and events ------------------------------------------------------------------------


@pytest.mark.parametrize("key", REAL["registry"])
def test_claims_of_a_real_registry(key: str) -> None:
    value = REAL["registry"][key].encode()
    claims = decode_claims(key, value)
    assert isinstance(claims, ActorClaims if "_M" in key else ProviderClaims)
    assert claims_key(claims.subject) == key
    assert json.loads(claims.encode()) == json.loads(value)
    if isinstance(claims, ActorClaims):
        assert claims.encode() == value
    assert decode_claims(key, claims.encode()) == claims
    with pytest.raises(FormatError, match="under the key 'CLAIMS_X'"):
        decode_claims("CLAIMS_X", value)


def test_a_provider_with_a_schema() -> None:
    claims = ProviderClaims(V, "kv", "wasmcloud:keyvalue", config_schema="{}")
    assert decode_claims(claims_key(V), claims.encode()) == claims
    with pytest.raises(FormatError, match="'revision' is the integer 1, expected text"):
        decode_claims(claims_key(V), claims.encode().replace(b'"0"', b"1"))


@pytest.mark.parametrize("entry", VECTORS["links"], ids=lambda entry: str(entry["name"]))
def test_links_in_the_registry(entry: dict[str, Any]) -> None:
    link = link_of_record(entry["json"])
    key = link_key(link.actor_id, link.contract_id, link.link_name)
    assert key == entry["registry_key"]
    assert bucket_name("default") == "LATTICEDATA_default"


@pytest.mark.parametrize("name", REAL["events"])
def test_events_of_a_real_host(name: str) -> None:
    event = decode_event(REAL["events"][name].encode())
    assert (event.name, event.source, EventName(name)) == (name, N, name)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"specversion": "2.0"}, "CloudEvents '2.0', expected '1.0'"),
        ({"type": "com.wasmcloud.lattice."}, "expected com.wasmcloud.lattice.<name>"),
        ({"type": "x"}, "type 'x'"),
        ({"source": None}, "'source' is nil"),
        ({"data": []}, "'data' is an array"),
    ],
)
def test_other_events_are_refused(changes: dict[str, Any], says: str) -> None:
    record = {**json.loads(REAL["events"]["host_stopped"]), **changes}
    with pytest.raises(FormatError, match=says):
        decode_event(json.dumps(record).encode())


# --- anything -----------------------------------------------------------------------------------

TEXTS = st.sampled_from(["", "id", "host_id", "links", "claims", "values", N, "é"])
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 1 << 64) | st.floats() | TEXTS,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(TEXTS, values, max_size=4),
    max_leaves=6,
)
DECODERS: list[Callable[[bytes], Any]] = [
    *(decode_ack, decode_host, decode_links, decode_claims_list, decode_bid, decode_event),
    *(decode_shutdown, decode_host_data),
    lambda data: decode_inventory(data, N),
    lambda data: decode_claims("CLAIMS_", data),
    lambda data: decode_host_data(base64.b64encode(data)),
]


@given(st.binary(max_size=20) | JSON_VALUES.map(lambda value: json.dumps(value).encode()))
def test_anything_is_decoded_or_malformed(data: bytes) -> None:
    for decode in DECODERS:
        with contextlib.suppress(FormatError):
            decode(data)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":1,"a":2}', "a key occurs twice"),
        (b"9" * 5_000, "invalid JSON"),
        (b"\xff\xfe{\x00}\x00", "invalid JSON"),
        (b" " * 200_001, "200001 bytes, limit: 200000 bytes"),
    ],
)
def test_bombs_of_json(data: bytes, says: str) -> None:
    with pytest.raises(FormatError, match=f"^thing.*{says}"):
        read_json(data, "thing", 200_000)
