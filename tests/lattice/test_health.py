"""Tests of the health checks of a bridge: of providers, and whether JetStream is available."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from lattice import health
from lattice.connection import LatticeConnection, MessageHandler
from lattice.embedded import EmbeddedNats
from lattice.health import UNKNOWN, Condition, Health
from lattice.options import LatticeOptions
from proto.lattice.messages import HealthCheckResponse
from proto.lattice.subjects import SubjectKind, provider_subject
from tests.support.waiting import eventually

ANSWERS = {
    "well": (HealthCheckResponse(True).encode(), Condition("passed")),
    "ill": (HealthCheckResponse(False, "db\ndown").encode(), Condition("failed", r"db\ndown")),
    "mute": (HealthCheckResponse(False).encode(), Condition("failed", "unhealthy")),
    "long": (HealthCheckResponse(False, "x" * 999).encode(), Condition("failed", "x" * 200)),
}


async def test_each_answer(connection: LatticeConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    lattice = connection.options.lattice
    monkeypatch.setattr(health, "ANSWER_S", 0.1)
    asked: list[str] = []
    tasks: list[asyncio.Future[None]] = []

    def answering(link_name: str) -> MessageHandler:
        def answer(message: Msg) -> None:
            asked.append(link_name)
            data = ANSWERS[link_name][0] if link_name in ANSWERS else b"\xc1"
            if link_name != "silent":
                tasks.append(asyncio.ensure_future(connection.publish(message.reply, data)))

        return answer

    for link_name in (*ANSWERS, "odd", "silent"):
        subject = provider_subject(lattice, "V", link_name, SubjectKind.HEALTH)
        await connection.subscribe(subject, answering(link_name))
    found = Health(connection)
    providers = {("V", each) for each in (*ANSWERS, "odd", "silent", "gone", "a b")}
    await found.ask(providers)
    for link_name, (_, expected) in ANSWERS.items():
        assert found.of("V", link_name) == expected
    assert found.of("V", "odd").health == "failed"
    assert found.of("V", "silent") == ("failed", "no answer within 0.1 s")
    assert found.of("V", "gone") == ("failed", "it does not run")
    assert found.of("V", "a b").health == "failed"  # no subject can have this name
    count = len(asked)
    await found.ask(providers)
    assert len(asked) == count, "asked again before its time"
    await found.ask({("V", "well")})
    assert found.of("V", "ill") == UNKNOWN, "gone, and still known"


async def test_many_are_asked_some_at_a_time(connection: LatticeConnection) -> None:
    found, providers = Health(connection), {("V", f"link{number}") for number in range(70)}
    known = []
    for _ in range(3):
        await found.ask(providers)
        known.append(sum(found.of(*each) != UNKNOWN for each in providers))
    assert known == [32, 64, 70]


async def test_jetstream_that_is_there_and_that_is_not(
    connection: LatticeConnection, tmp_path: Path
) -> None:
    async def jetstream(of: LatticeConnection) -> str:
        found = Health(of)
        keeping = asyncio.create_task(found.keep(set))
        try:
            await eventually(lambda: [found] if found.jetstream is not None else [])
        finally:
            keeping.cancel()
        assert found.jetstream is not None
        return found.jetstream

    assert await jetstream(connection) == ""
    with EmbeddedNats(tmp_path, jetstream=False) as server:
        async with LatticeConnection(LatticeOptions(servers=(server.url,))) as other:
            assert await jetstream(other)
