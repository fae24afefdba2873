"""Tests of making and checking calls: the recorded ones byte for byte, and the guard."""

from __future__ import annotations

from typing import Any

import pytest

from proto.lattice.bounds import CHUNK_THRESHOLD_BYTES
from proto.lattice.claims import read
from proto.lattice.entity import Entity
from proto.lattice.errors import (
    CheckError,
    FormatError,
    KeyFormatError,
    Reason,
    RemoteError,
    ResponseError,
    ResponseFault,
)
from proto.lattice.invocation import check, hash_of, judge_response, make
from proto.lattice.messages import (
    InvocationResponse,
    decode_invocation,
    decode_response,
    response_object_name,
)
from proto.lattice.subjects import rpc_subject
from tests.proto.lattice.identities import (
    ACTOR,
    CLUSTER,
    HOST,
    IAT,
    ID,
    JTI,
    ORIGIN,
    PROVIDER,
    TARGET,
    VECTORS,
    call,
)

RECORDED = {entry["name"]: entry for entry in VECTORS["invocations"]}
ISSUERS = frozenset({CLUSTER.public})


def payload_of(entry: dict[str, Any]) -> bytes:
    """Return the payload of a recorded call; compute long ones from their recorded length."""
    payload = entry["payload"]
    if "hex" in payload:
        return bytes.fromhex(payload["hex"])
    return bytes((i * 31 + (i >> 8)) % 256 for i in range(payload["len"]))


def entity_of_json(record: dict[str, str]) -> Entity:
    return Entity(record["public_key"], record["link_name"], record["contract_id"])


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_calls_are_made_byte_for_byte(name: str) -> None:
    entry, fields = RECORDED[name], RECORDED[name]["fields"]
    claims, payload = entry["claims"]["body"], payload_of(entry)
    invocation = make(
        entity_of_json(fields["origin"]),
        entity_of_json(fields["target"]),
        fields["operation"],
        payload,
        host_id=fields["host_id"],
        cluster=CLUSTER,
        invocation_id=fields["id"],
        jti=claims["jti"],
        iat=claims["iat"],
        trace=fields["traceContext"],
    )
    assert invocation.encoded_claims == entry["claims"]["token"]
    assert read(invocation.encoded_claims).hash == entry["hash"]
    assert hash_of(*entry["hash_inputs"][:3], payload) == entry["hash"]
    assert invocation.moved is (len(payload) > CHUNK_THRESHOLD_BYTES)
    assert invocation.content_length == fields["content_length"]
    if not entry["fields"]["traceContext"] or len(fields["traceContext"]) == 1:
        assert invocation.encode().hex() == entry["by_wasmcloud_core_hex"]
    assert decode_invocation(bytes.fromhex(entry["by_wasmcloud_core_hex"])) == invocation


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("library", ["by_wasmcloud_core_hex", "by_wasmbus_rpc_hex"])
def test_recorded_calls_are_accepted(name: str, library: str) -> None:
    entry = RECORDED[name]
    invocation = decode_invocation(bytes.fromhex(entry[library]))
    claims = check(
        invocation,
        payload_of(entry),
        issuers=ISSUERS,
        now=IAT + 1,
        expected_target=invocation.target,
        linked={invocation.origin.public_key},
    )
    assert claims == read(invocation.encoded_claims)
    assert (claims.issuer, claims.subject, claims.iat) == (CLUSTER.public, invocation.id, IAT)


@pytest.mark.parametrize("name", RECORDED)
def test_subjects_are_the_recorded_ones(name: str) -> None:
    entry = RECORDED[name]
    target = entity_of_json(entry["fields"]["target"])
    if " " in entry["subject"]:  # NATS would split it into a shorter subject and a reply subject
        with pytest.raises(FormatError, match="link name 'B 2'"):
            rpc_subject("default", target)
    else:
        assert rpc_subject("default", target) == entry["subject"]


@pytest.mark.parametrize("where", ["captured_from_clients", "real_host"])
def test_calls_of_released_programs_are_accepted(where: str) -> None:
    entries = VECTORS[where]
    for entry in entries["invocations"] if where == "real_host" else entries:
        data = bytes.fromhex(entry["body_hex"])
        invocation = decode_invocation(data)
        claims = check(invocation, issuers=ISSUERS, now=read(invocation.encoded_claims).iat + 2.5)
        assert claims.subject == invocation.id
        if len(invocation.trace) <= 1 and b"traceContext" in data:
            assert invocation.encode() == data


@pytest.mark.parametrize(
    "host_id",
    ["", "N", "NA", "_TEST_", "Nhost", HOST.public[:-1], ACTOR.public, "N" * 56, HOST.seed],
)
def test_a_bad_host_id_never_leaves(host_id: str) -> None:
    with pytest.raises(KeyFormatError):
        call(host_id=host_id)


@pytest.mark.parametrize("cluster", [HOST, ACTOR, PROVIDER])
def test_only_a_cluster_signs(cluster: Any) -> None:
    with pytest.raises(KeyFormatError, match=r"cluster key \(C\)"):
        call(cluster=cluster)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"invocation_id": ""}, "id"),
        ({"invocation_id": "x" * 129}, "id"),
        ({"jti": "short"}, "jti"),
        ({"jti": 'Vector000000000000000"'}, "jti"),
        ({"iat": -1}, "iat"),
        ({"iat": 1.5}, "iat"),
        ({"operation": "x" * 513}, "operation"),
        ({"operation": "\ud800"}, "operation"),
        ({"origin": Entity("M" * 257)}, "public_key"),
        ({"target": Entity("V", "\udcff", "c")}, "link_name"),
    ],
)
def test_other_bad_arguments_are_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(FormatError) as caught:
        call(**changes)
    assert caught.value.field == field


@pytest.mark.parametrize("size", [0, 1, CHUNK_THRESHOLD_BYTES, CHUNK_THRESHOLD_BYTES + 1])
def test_payloads_above_the_threshold_are_moved(size: int) -> None:
    payload = bytes(size)
    invocation = decode_invocation(call(payload).encode())
    assert invocation.content_length == size
    assert invocation.msg == (b"" if size > CHUNK_THRESHOLD_BYTES else payload)
    check(invocation, payload, issuers=ISSUERS, now=IAT)
    if size:
        with pytest.raises(CheckError) as caught:
            check(invocation, payload[1:], issuers=ISSUERS, now=IAT)
        assert caught.value.reason is Reason.SIZE


@pytest.mark.parametrize("entry", VECTORS["responses"], ids=lambda entry: str(entry["name"]))
def test_recorded_responses(entry: dict[str, Any]) -> None:
    fields = entry["fields"]
    response = InvocationResponse(
        fields["invocation_id"],
        bytes.fromhex(fields["msg_hex"]),
        fields["error"],
        fields["content_length"],
    )
    assert response.encode().hex() == entry["by_wasmcloud_core_hex"]
    for library in ("by_wasmcloud_core_hex", "by_wasmbus_rpc_hex"):
        decoded = decode_response(bytes.fromhex(entry[library]))
        assert decoded == response
        if fields["error"] is not None:
            with pytest.raises(RemoteError, match=f"^{fields['error']}$"):
                judge_response(ID, decoded)
        else:
            expected = None if entry["name"] == "moved" else response.msg
            assert judge_response(ID, decoded) == expected


@pytest.mark.parametrize(
    ("response", "fault"),
    [
        (InvocationResponse("other", b"x"), ResponseFault.INVOCATION_ID),
        (InvocationResponse("", b"", "deser error"), ResponseFault.INVOCATION_ID),
        (InvocationResponse(ID, b"x", None, 2), ResponseFault.SIZE),
        (InvocationResponse(ID, b"", "boom", 4), ResponseFault.SIZE),
        (InvocationResponse(ID, b"", None, 2**63), ResponseFault.SIZE),
    ],
)
def test_responses_that_do_not_answer(response: InvocationResponse, fault: ResponseFault) -> None:
    with pytest.raises(ResponseError, match=response.error) as caught:
        judge_response(ID, response)
    assert caught.value.fault is fault


def test_an_old_response_has_no_length() -> None:
    assert judge_response(ID, InvocationResponse(ID, b"abc")) == b"abc"
    assert response_object_name(ID) == f"{ID}-r"


def test_a_call_from_anyone_trusted_to_anyone_linked() -> None:
    invocation = call()
    assert check(invocation, issuers=ISSUERS, now=IAT, expected_target=TARGET).jti == JTI
    assert invocation.origin == ORIGIN
