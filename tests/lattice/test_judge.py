"""Tests of the faults that the monitor finds in invocations."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from lattice.monitor.judge import Finding, Judge, View
from lattice.monitor.watch import MAX_KEPT, MAX_WAITING, Watch
from proto.lattice.entity import Entity
from proto.lattice.errors import Reason
from proto.lattice.invocation import make
from proto.lattice.nkeys import KeyKind, KeyPair
from proto.lattice.subjects import rpc_subject
from tests.interop.recorded import recorded_lattice

RECORDED = recorded_lattice()
VARIANTS = {each["name"]: bytes.fromhex(each["body_hex"]) for each in RECORDED["variants"]["list"]}
NOW = float(RECORDED["variants"]["iat"])
ACTOR, PROVIDER, HOST, CLUSTER = (
    KeyPair.of_random(kind, bytes([number]) * 32)
    for number, kind in enumerate(
        (KeyKind.ACTOR, KeyKind.PROVIDER, KeyKind.HOST, KeyKind.CLUSTER), 1
    )
)
KEYS = {each["name"]: each["public"] for each in RECORDED["keys"]}
RECORDED_ACTOR = "MASUHOJP6EEVKEKHNLOIG2O3NXOJGNTFUEMXRXNBIBHOCBTMVFKZ3BLC"
RECORDED_PROVIDER = "VALUKU5UK3O57RUQR3FLDQIB7ZVLEHRLVIDBO6K3PVB2MNECTE75KIIV"

GOOD = {
    *("good", "array", "msg-ints", "msg-str", "extra-keys", "reordered", "wide-ints", "trailing"),
    *("actor-nolink-keys", "exp-future", "nbf-past", "sub-differs"),
    # Only the receiver can detect these faults.
    *("missing-object", "unknown-op"),
}
REASONS = {
    "old-iat": Reason.ISSUED_AT,
    "future-iat": Reason.ISSUED_AT,
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
    "host-id-crc": Reason.HOST_ID,
    "host-id-short": Reason.HOST_ID,
    "host-id-empty": Reason.HOST_ID,
    "issuer-short": Reason.TOKEN,
}


@pytest.mark.parametrize("name", VARIANTS)
def test_each_recorded_message(name: str) -> None:
    judge = Judge("default", [KEYS["cluster"]])
    judge.view = View(links={(RECORDED_ACTOR, RECORDED_PROVIDER, "default")})
    subject = f"wasmbus.rpc.default.{RECORDED_PROVIDER}.default"
    _, finding = judge.judge(subject, VARIANTS[name], NOW)
    assert (name in GOOD) == (finding is None)
    assert finding is None or finding.reason is REASONS[name]


def invocation(number: int = 0, *, to_provider: bool = True, **more: Any) -> tuple[str, bytes]:
    """Make an honest call, and return its subject and message."""
    actor, provider = Entity.actor(ACTOR.public), Entity(PROVIDER.public, "Main", "a:b")
    origin, target = (actor, provider) if to_provider else (provider, actor)
    given = {
        "host_id": HOST.public,
        "cluster": CLUSTER,
        "invocation_id": f"{number:032x}",
        "jti": f"{number:022}",
        "iat": int(NOW),
        **more,
    }
    made = make(given.pop("origin", origin), target, "A.B", b"payload", **given)
    return rpc_subject("default", target), made.encode()


def judge(**more: Any) -> Judge:
    found = Judge("default", [CLUSTER.public], **more)
    found.view = View(
        registered={ACTOR.public, PROVIDER.public},
        hosts={HOST.public: {ACTOR.public, PROVIDER.public}},
        links={(ACTOR.public, PROVIDER.public, "Main")},
    )
    return found


def reason(found: Judge, subject: str, data: bytes, now: float = NOW) -> Reason | None:
    finding = found.judge(subject, data, now)[1]
    return None if finding is None else finding.reason


@pytest.mark.parametrize("to_provider", [True, False])
def test_a_call_that_comes_twice(to_provider: bool) -> None:
    found = judge()
    subject, data = invocation(to_provider=to_provider)
    assert reason(found, subject, data) is None
    assert reason(found, subject, data, NOW + 1) is Reason.REPLAY
    other_token = invocation(to_provider=to_provider, jti="a" * 22)[1]
    assert reason(found, subject, other_token, NOW + 2) is Reason.REPLAY
    other_id = invocation(7, to_provider=to_provider, jti="0" * 22)[1]
    assert reason(found, subject, other_id, NOW + 2) is Reason.REPLAY
    assert reason(found, subject, invocation(8, to_provider=to_provider)[1]) is None


def test_a_late_replay_is_too_old_or_still_known() -> None:
    for window_s in (300, 0):
        found = judge(window_s=window_s)
        subject, data = invocation()
        assert reason(found, subject, data, NOW) is None
        late = reason(found, subject, data, NOW + 301)
        assert late is (Reason.ISSUED_AT if window_s else Reason.REPLAY)


def test_forgeries_do_not_make_honest_messages_replays() -> None:
    found = judge()
    stranger = KeyPair.of_random(KeyKind.CLUSTER, bytes(32))
    subject, forged = invocation(cluster=stranger)
    assert reason(found, subject, forged) is Reason.ISSUER
    assert reason(found, subject, invocation()[1]) is None


def test_memory_is_bounded() -> None:
    found = judge(capacity=20)
    for number in range(100):
        assert reason(found, *invocation(number)) is None
    assert len(found._seen) <= 20
    assert reason(found, *invocation(99)) is Reason.REPLAY


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (View(), None),
        (View(registered={PROVIDER.public}), Reason.ORIGIN_UNKNOWN),
        (View(hosts={}), Reason.HOST_UNKNOWN),
        (View(hosts={}, trusted_hosts={HOST.public}), None),
        (View(hosts={HOST.public: {PROVIDER.public}}), Reason.HOST_ORIGIN),
        (View(links=set()), Reason.UNLINKED),
        (View(links={(ACTOR.public, PROVIDER.public, "main")}), Reason.UNLINKED),
    ],
)
def test_what_is_known_of_the_lattice(view: View, expected: Reason | None) -> None:
    found = judge()
    found.view = view
    assert reason(found, *invocation()) is expected


def test_a_bridge_calls_actors_without_a_link() -> None:
    view = View(links=set(), trusted_hosts={HOST.public})
    for trusted, to_provider, expected in (
        (view, False, None),
        (view, True, Reason.UNLINKED),
        (View(links=set()), False, Reason.UNLINKED),
    ):
        found = judge()
        found.view = trusted
        assert reason(found, *invocation(to_provider=to_provider)) is expected


def test_another_subject_than_the_target() -> None:
    _, data = invocation()
    for subject in (rpc_subject("default", Entity.actor(ACTOR.public)), "wasmbus.rpc.other.x"):
        assert reason(judge(), subject, data) is Reason.TARGET


def test_a_finding_shows_little_of_a_strangers_text() -> None:
    secret = "s3cret\n" * 1000
    stranger = Entity(ACTOR.public, "x" * 250, secret[:250])
    _, data = invocation(origin=stranger)
    finding = judge().judge(secret, data, NOW)[1]
    assert isinstance(finding, Finding)
    texts = [
        getattr(finding, name) for name in ("text", "subject", "origin", "target", "operation")
    ]
    assert all(len(text) <= 120 and text.isprintable() for text in texts)


async def test_a_flood_costs_little_and_is_counted() -> None:
    watch = Watch(judge(), "mirror")
    count = MAX_WAITING + 1000
    for _ in range(count):
        watch.take(f"mirror.wasmbus.rpc.default.{PROVIDER.public}.Main", b"garbage")
    for kind in ("health", "shutdown", "linkdefs.put"):
        watch.take(f"mirror.wasmbus.rpc.default.{PROVIDER.public}.Main.{kind}", b"")
    assert (watch.seen, watch.unjudged) == (count, 1000)
    keeping = asyncio.create_task(watch.keep())
    while watch.judged < MAX_WAITING:
        await asyncio.sleep(0)
    keeping.cancel()
    assert watch.by_reason == Counter({Reason.UNDECODABLE: MAX_WAITING})
    *listed, rest = watch.take_findings()
    assert len(listed) == MAX_KEPT and rest.reason is Reason.UNDECODABLE
    assert rest.count == MAX_WAITING - MAX_KEPT and {each.count for each in listed} == {1}
    assert watch.take_findings() == []
