"""44 recorded messages, each with one fault or deviation, and the verdict of each real receiver."""

from __future__ import annotations

from typing import Any

import pytest

from proto.lattice.entity import Entity
from proto.lattice.errors import CheckError, FormatError, Reason
from proto.lattice.invocation import check
from proto.lattice.messages import Invocation, decode_invocation
from tests.proto.lattice.identities import ACTOR, CLUSTER, IAT, PROVIDER, VECTORS

VARIANTS = {entry["name"]: entry for entry in VECTORS["variants"]["list"]}
RECEIVERS = ("host_actor_checks", "sdk_provider", "wbr_provider")
ME = Entity.provider(PROVIDER.public, "default", "interop:echo")
OPERATIONS = {"Echo.Echo"}

ACCEPTED = {
    *("good", "array", "msg-ints", "msg-str", "extra-keys", "reordered", "wide-ints", "trailing"),
    *("actor-nolink-keys", "exp-future", "nbf-past", "sub-differs"),
}
REFUSED = {
    "no-content-length": Reason.UNDECODABLE,
    "nil-trace": Reason.UNDECODABLE,
    "nil-msg": Reason.UNDECODABLE,
    "float-length": Reason.UNDECODABLE,
    "garbage": Reason.UNDECODABLE,
    "empty-body": Reason.UNDECODABLE,
    "hash": Reason.HASH,
    "operation": Reason.TARGET_URL,
    "target-url": Reason.TARGET_URL,
    "origin-url": Reason.ORIGIN_URL,
    "target-key": Reason.TARGET,
    "unlinked": Reason.UNLINKED,
    "expired": Reason.EXPIRED,
    "not-yet": Reason.NOT_YET,
    "issuer": Reason.ISSUER,
    "issuer-mismatch": Reason.SIGNATURE,
    "signature": Reason.SIGNATURE,
    "header": Reason.TOKEN,
    "token": Reason.TOKEN,
    "token-padded": Reason.TOKEN,
    "no-token": Reason.TOKEN,
    "no-wascap": Reason.TOKEN,
    "iat-float": Reason.TOKEN,
    "host-id": Reason.HOST_ID,
    "host-id-short": Reason.HOST_ID,
    "host-id-empty": Reason.HOST_ID,
    "issuer-short": Reason.TOKEN,
    "missing-object": Reason.PAYLOAD_MISSING,
    "unknown-op": Reason.OPERATION,
    # Stricter than each real receiver, on purpose:
    "old-iat": Reason.ISSUED_AT,  # they accept a captured call without a time limit
    "future-iat": Reason.ISSUED_AT,
    "host-id-crc": Reason.HOST_ID,  # they compare the checksum with the wrong two bytes
}
STRICTER = {"old-iat", "future-iat", "host-id-crc"}
MORE_LENIENT = {"actor-nolink-keys"}
"""Messages that the host and the SDK accept; only the older library needs all keys of an actor."""


def receive(entry: dict[str, Any], **changes: Any) -> Invocation:
    """Receive a message as a provider does whose object store is empty."""
    try:
        invocation = decode_invocation(bytes.fromhex(entry["body_hex"]))
    except FormatError as error:
        raise CheckError(Reason.UNDECODABLE, str(error)) from error
    if invocation.moved:
        raise CheckError(Reason.PAYLOAD_MISSING, "no such object")
    arguments = {
        "issuers": {CLUSTER.public},
        "now": IAT,
        "expected_target": ME,
        "linked": {ACTOR.public},
        **changes,
    }
    check(invocation, **arguments)
    if invocation.operation not in OPERATIONS:
        raise CheckError(Reason.OPERATION, f"Invalid method name {invocation.operation}")
    return invocation


@pytest.mark.parametrize("name", VARIANTS)
def test_variants(name: str) -> None:
    if name in ACCEPTED:
        assert receive(VARIANTS[name]).msg == b"abcdef"
        return
    with pytest.raises(CheckError) as caught:
        receive(VARIANTS[name])
    assert caught.value.reason is REFUSED[name], str(caught.value)


@pytest.mark.parametrize("name", ["old-iat", "future-iat"])
def test_without_a_window_any_time_of_issue_is_accepted(name: str) -> None:
    assert receive(VARIANTS[name], window_s=0)


def test_each_variant_has_a_verdict_and_each_difference_is_meant() -> None:
    assert len(VARIANTS) == 44
    assert VARIANTS.keys() == ACCEPTED | REFUSED.keys()
    for name, entry in VARIANTS.items():
        accepted_by = {receiver for receiver in RECEIVERS if entry[receiver] == "accepted"}
        if name in STRICTER:
            assert len(accepted_by) == len(RECEIVERS)
        elif name in MORE_LENIENT:
            assert 0 < len(accepted_by) < len(RECEIVERS)
        elif name in ACCEPTED:
            assert len(accepted_by) == len(RECEIVERS)
        else:  # at least one real receiver refuses it or crashes
            assert len(accepted_by) < len(RECEIVERS)
