"""Tests of subjects and queue groups: composing, refusing and parsing them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.lattice.entity import Entity
from proto.lattice.errors import FormatError
from proto.lattice.subjects import (
    RpcSubject,
    SubjectKind,
    check_lattice_id,
    control_subject,
    event_subject,
    parse_rpc_subject,
    provider_subject,
    queue_group,
    rpc_subject,
)
from tests.proto.lattice.identities import ACTOR, PROVIDER

M, V = ACTOR.public, PROVIDER.public
TOKENS = st.text(st.sampled_from("abcXYZ019_-é"), min_size=1, max_size=6)
LINK_NAMES = st.lists(TOKENS, min_size=1, max_size=3).map(".".join)


def test_queue_groups_are_those_of_hosts_and_providers() -> None:
    assert queue_group("default", Entity.actor(M)) == f"wasmbus.rpc.default.{M}"
    assert queue_group("default", Entity.provider(V, "default", "a:b")) == "rpc"


def test_the_link_name_goes_in_as_it_is() -> None:
    assert (
        rpc_subject("l", Entity.provider(V, "Front.End", "a:b")) == f"wasmbus.rpc.l.{V}.Front.End"
    )


@given(st.sampled_from(["default", "a-b_9"]), LINK_NAMES, st.sampled_from(list(SubjectKind)))
def test_what_is_made_is_taken_apart(lattice: str, link_name: str, kind: SubjectKind) -> None:
    subject = provider_subject(lattice, V, link_name, kind)
    assert parse_rpc_subject(subject) == RpcSubject(lattice, V, link_name, kind)
    actor = rpc_subject(lattice, Entity.actor(M))
    assert parse_rpc_subject(actor) == RpcSubject(lattice, M, "", SubjectKind.CALL)


@given(st.text(max_size=30) | st.text(max_size=20).map("wasmbus.rpc.default.".__add__))
def test_any_text_is_a_subject_or_malformed(text: str) -> None:
    with contextlib.suppress(FormatError):
        found = parse_rpc_subject(text)
        assert found.public_key and found.lattice == check_lattice_id(found.lattice)


@pytest.mark.parametrize(
    "link_name",
    ["", "a b", "a*", ">", "a..b", ".a", "a.", "a\r\nPUB x", "x" * 257, "health", "a.health",
     "linkdefs.put", "shutdown"],
)  # fmt: skip
def test_link_names_that_no_subject_can_hold(link_name: str) -> None:
    with pytest.raises(FormatError) as caught:
        provider_subject("default", V, link_name)
    assert caught.value.field == "link_name"


@pytest.mark.parametrize("lattice", ["", "a.b", "*", ">", "a b", "é", "x" * 65])
def test_lattice_ids_that_name_no_bucket(lattice: str) -> None:
    with pytest.raises(FormatError, match="invalid lattice id"):
        rpc_subject(lattice, Entity.actor(M))


@pytest.mark.parametrize("key", ["", "M.x", "M x", "*", "x" * 257])
def test_keys_that_no_subject_can_hold(key: str) -> None:
    with pytest.raises(FormatError, match="key"):
        rpc_subject("default", Entity(key, "", ""))


def test_subjects_of_control_and_events() -> None:
    assert control_subject("l", "get", M, "inv") == f"wasmbus.ctl.l.get.{M}.inv"
    assert control_subject("l", "get", "links", prefix="my.ctl") == "my.ctl.l.get.links"
    assert event_subject("l") == "wasmbus.evt.l.*"
    assert event_subject("l", "host_started") == "wasmbus.evt.l.host_started"
    for part in ("", "a>", "a..b"):
        with pytest.raises(FormatError, match="NATS subjects cannot hold"):
            control_subject("l", "get", part)
    with pytest.raises(FormatError, match="event name"):
        event_subject("l", "a b")
