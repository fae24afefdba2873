"""One connection that sends to a new session id each time, at a relay with two workers."""

from __future__ import annotations

from proto.rmb.notices import TWIN_FULL
from tests.support.rmb_client import session
from tests.support.world import fresh_twins

IDS = 3_000
BOUND = 100


async def test_ever_new_session_ids_fill_no_more_than_their_bound(
    start_server, start_relay
) -> None:
    server = start_server(append_fsync="no")
    settings = {"queue.unknown_queues": str(BOUND)}
    relays = [start_relay(server, settings=settings) for _ in range(2)]
    flooder, victim, friend = fresh_twins(3)
    async with session(relays[1].url, victim, "known"):
        pass
    async with session(relays[0].url, flooder) as flood:
        for number in range(IDS):
            await flood.request((victim.id, f"new-{number}"), bytes(200))
        await flood.barrier(60)
        told = [(await flood.receive()).error.message for _ in range(flood.inbox.qsize())]
        queues = len(server.run("KEYS", f"stream:{victim.id}:*"))
        assert set(told) == {TWIN_FULL} and len(told) == IDS - queues
        assert BOUND <= queues <= BOUND + 5
    async with (
        session(relays[0].url, friend) as sender,
        session(relays[1].url, victim, "reads") as reader,
    ):
        await reader.barrier()
        for sid in ("reads", "known"):
            await sender.request((victim.id, sid), b"from a friend")
        assert (await reader.receive()).plain == b"from a friend"
        await sender.barrier()
    async with session(relays[0].url, victim, "known") as waiting:
        assert (await waiting.receive()).plain == b"from a friend"
