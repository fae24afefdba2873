"""Deliberate improvements of this relay over the reference.

Each line of the list in `docs/protocol/differences.md`, observed in the running reference, has a
test here.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from proto.identity.errors import TokenError
from tests.support.bystanders import bystanders
from tests.support.identities import twin as make_twin
from tests.support.raw_http import exchange, upgrade
from tests.support.relay_process import RelayProcess, directory
from tests.support.rmb_client import connect, session
from tests.support.waiting import eventually
from tests.support.world import fresh_twins

MIB = 1024 * 1024
AT_ONCE_S = 0.5  # the reference takes up to 2 s


def _length(relay: RelayProcess, stream: str) -> int:
    assert relay.redis is not None
    length: int = relay.redis.run("XLEN", stream)
    return length


@pytest.mark.parametrize("workers", ["relay", "daphne_relay", "relay_pair"])
async def test_a_take_over_closes_only_the_old_connection(
    request: pytest.FixtureRequest, workers: str
) -> None:
    """The relay closes the connection that it answered first, however quickly the other follows."""
    relay: RelayProcess = request.getfixturevalue(workers)
    (twin,) = fresh_twins(1)
    for number in range(50):
        sid = str(number)
        async with session(relay.url, twin, sid) as old, session(relay.url, twin, sid) as new:
            assert (await old.closed())[0] == 4001
            await new.barrier()
            entry = directory(relay.redis)[f"{twin.id}:{sid}"]
            await new.barrier()
            assert new.open and directory(relay.redis)[f"{twin.id}:{sid}"] == entry


async def test_the_first_delivery_to_a_new_session_is_at_once(relay_pair: RelayProcess) -> None:
    one, two = fresh_twins(2)
    async with session(relay_pair.url, one) as sender:
        slowest = 0.0
        for number in range(20):
            async with session(relay_pair.url, two) as receiver:
                start = time.monotonic()
                await receiver.barrier()
                await sender.request(receiver.key, b"%d" % number)
                assert (await receiver.receive()).plain == b"%d" % number
                slowest = max(slowest, time.monotonic() - start)
                await receiver.close()
    assert slowest < AT_ONCE_S


async def test_waiting_mail_is_delivered_at_once(relay_pair: RelayProcess) -> None:
    one, two = fresh_twins(2)
    async with session(relay_pair.url, one) as sender:
        await sender.request((two.id, None), b"mail")
        await sender.barrier()
    start = time.monotonic()
    async with session(relay_pair.url, two) as receiver:
        assert (await receiver.receive()).plain == b"mail"
    assert time.monotonic() - start < AT_ONCE_S


async def test_a_full_session_is_noticed_by_nobody_else(relay: RelayProcess) -> None:
    one, two = fresh_twins(2)
    async with (
        bystanders(relay) as pair,
        session(relay.url, one) as sender,
        session(relay.url, two) as full,
    ):
        full.stop_reading()
        for _ in range(300):
            await sender.request(full.key, bytes(64 * 1024))
        await sender.barrier()
        assert _length(relay, f"stream:{two.id}") > 0
        await eventually(lambda: relay.counted("relay_sessions_filled_total") > 0)
        before = len(pair.rounds_s)
        await pair.play_rounds(100)
        during = sorted(pair.rounds_s[before:])
        assert during[len(during) // 2] < 0.05
        full.resume_reading()
        for _ in range(300):
            await full.receive()


async def test_a_delivered_message_is_removed_without_waiting_for_the_next(
    relay: RelayProcess,
) -> None:
    """A message is removed when it is delivered, whether from memory or from the stream."""
    one, two = fresh_twins(2)
    async with session(relay.url, one) as sender:
        for number in range(20):
            async with session(relay.url, two, str(number)) as receiver:
                await sender.request(receiver.key, b"only one")
                await receiver.receive()
                await eventually(
                    lambda number=number: _length(relay, f"stream:{two.id}:{number}") == 0,
                    timeout_s=1,
                )


async def test_a_delivered_message_does_not_come_again_after_a_crash(start_relay) -> None:
    relay = start_relay()
    one, two = fresh_twins(2)
    async with session(relay.url, one) as sender, session(relay.url, two) as receiver:
        for number in range(50):
            await sender.request(receiver.key, b"%d" % number)
            await receiver.receive()
        await eventually(lambda: _length(relay, f"stream:{two.id}") == 0, timeout_s=1)
        relay.kill()
    relay.start()
    async with session(relay.url, two) as receiver:
        await receiver.barrier()
        assert receiver.inbox.empty()


async def test_an_envelope_whose_deadline_passed_in_the_queue_is_not_delivered(
    relay: RelayProcess,
) -> None:
    one, two = fresh_twins(2)
    before = relay.counted("relay_messages_total", reason="expired")
    async with session(relay.url, one) as sender:
        late = await sender.request((two.id, None), b"too late", expiration=2)
        kept = await sender.request((two.id, None), b"in time", expiration=300)
        await sender.barrier()
        # The deadline is in whole seconds of the wall clock, and no event reports that it has
        # passed.
        await asyncio.sleep(late.timestamp + 3.1 - time.time())
        async with session(relay.url, two) as receiver:
            assert (await receiver.receive()).uid == kept.uid
            notice = await sender.receive()
            assert (notice.uid, notice.error.message) == (late.uid, "message has expired")
            assert not notice.HasField("source")
            await receiver.barrier()
            assert receiver.inbox.empty()
    await eventually(lambda: relay.counted("relay_messages_total", reason="expired") == before + 1)
    await eventually(lambda: _length(relay, f"stream:{two.id}") == 0)


async def test_an_envelope_that_arrives_expired_is_forwarded(relay: RelayProcess) -> None:
    """The relay does not judge a sender's clock: a message expires only by waiting at the relay."""
    one, two = fresh_twins(2)
    async with session(relay.url, one) as sender:
        for expiration, timestamp in ((0, None), (10, int(time.time()) - 1000), (300, 0)):
            await sender.request(
                (two.id, None), b"kept", expiration=expiration, timestamp=timestamp
            )
        await sender.barrier()
        async with session(relay.url, two) as receiver:
            assert [(await receiver.receive()).plain for _ in range(3)] == [b"kept"] * 3


async def test_an_empty_message_is_no_envelope(relay: RelayProcess) -> None:
    before = relay.counted("relay_messages_total", reason="empty")
    async with session(relay.url, *fresh_twins(1)) as client:
        await client.send_bytes(b"")
        await client.barrier()
        assert client.inbox.empty()
    await eventually(lambda: relay.counted("relay_messages_total", reason="empty") == before + 1)


@pytest.mark.parametrize(
    ("body", "status"), [(b"", 400), (b"x" * 40 * MIB, 413)], ids=["empty", "40 MiB"]
)
async def test_unsigned_posts_are_not_accepted(
    relay: RelayProcess, body: bytes, status: int
) -> None:
    """Unsigned posts are refused; the reference answers 202 to both and fills queues with them."""
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with bystanders(relay):
        answer = await exchange(relay.port, head + body[:MIB])
        assert answer.status == status


async def test_session_ids_are_bounded(relay: RelayProcess) -> None:
    (twin,) = fresh_twins(1)
    async with session(relay.url, twin, "s" * 128) as longest:
        await longest.barrier()
    assert (await upgrade(relay.port, f"/?{twin.token('s' * 129)}")).status == 401
    with pytest.raises(TokenError):
        twin.token("s" * 30_000)  # none can be made: both sides bound the size of tokens


async def test_long_lived_tokens_may_be_refused(start_relay) -> None:
    relay = start_relay(settings={"relay.max_token_lifetime_s": "600"})
    (twin,) = fresh_twins(1)
    assert (await upgrade(relay.port, f"/?{twin.token(ttl_s=601)}")).status == 401
    async with session(relay.url, twin, token=twin.token(ttl_s=600)) as client:
        await client.barrier()


async def test_fatal_input_is_answered_by_a_close_code(relay: RelayProcess) -> None:
    for content, code in ((b"\xff", 1007), (bytes(16 * MIB + 1), 1009)):
        async with session(relay.url, *fresh_twins(1)) as client:
            await client.send_bytes(content)
            assert (await client.closed())[0] == code
    async with session(relay.url, *fresh_twins(1)) as client:
        await client.send_text("text")
        assert (await client.closed())[0] == 1003


async def test_an_idle_session_is_closed_and_pings_keep_one(start_relay) -> None:
    relay = start_relay(settings={"relay.idle_timeout_s": "1.5"})
    one, two = fresh_twins(2)
    async with session(relay.url, one) as idle, session(relay.url, two) as alive:
        closing = asyncio.create_task(idle.closed())
        while not closing.done():
            await asyncio.wait_for(await alive.websocket.ping(), 5)
            await asyncio.wait({closing}, timeout=0.2)
        assert await closing == (4005, "idle")
        assert alive.open


async def test_nobody_is_replaced_by_a_bad_token(relay: RelayProcess) -> None:
    (twin,) = fresh_twins(1)
    impostor = make_twin(7_000_000)
    async with session(relay.url, twin) as client:
        head, claims, _ = twin.token().split(".")
        forged = f"{head}.{claims}.{impostor.token().split('.')[2]}"
        assert (await upgrade(relay.port, f"/?{forged}")).status == 401
        await client.barrier()


async def test_a_full_queue_is_told_to_the_sender(start_relay) -> None:
    relay = start_relay(settings={"queue.max_messages": "100"})
    one, two = fresh_twins(2)
    async with session(relay.url, one) as sender:
        told = 0
        for _ in range(40):
            for _ in range(10):
                await sender.request((two.id, None), b"fill")
            await sender.barrier()
        while not sender.inbox.empty():
            text = (await sender.receive()).error.message
            assert text in (
                "destination queue is full",
                "sender's share of the destination queue is full",
            )
            told += 1
        kept = _length(relay, f"stream:{two.id}")
        assert kept + told == 400
        assert kept < 200  # the bound, plus one interval between checks
    async with session(relay.url, two) as receiver:
        assert len(await receiver.receive_many(kept)) == kept


async def test_the_oldest_is_dropped_where_the_operator_wants_it(start_relay) -> None:
    relay = start_relay(settings={"queue.max_messages": "100", "queue.overflow": "drop_oldest"})
    one, two = fresh_twins(2)
    async with session(relay.url, one) as sender:
        for number in range(400):
            await sender.request((two.id, None), b"%d" % number)
            if number % 10 == 9:
                await sender.barrier()
        assert sender.inbox.empty()
    got = []
    async with session(relay.url, two) as receiver:
        while 399 not in got:
            got.append(int((await receiver.receive()).plain))
    assert got == sorted(set(got)) and len(got) < 400
    await eventually(
        lambda: relay.counted("relay_messages_total", reason="queue_full") == 400 - len(got)
    )


async def test_a_full_queue_that_another_program_has_overwritten_is_refused_alone(
    start_relay,
) -> None:
    """Other messages of the batch are stored, and the sender is notified of the refused one."""
    relay = start_relay(settings={"queue.max_messages": "4", "queue.overflow": "drop_oldest"})
    one, two, three = fresh_twins(3)
    async with session(relay.url, one) as sender:
        for _ in range(6):
            await sender.request((two.id, None), b"kept")
            await sender.barrier()
        relay.redis.run("SET", f"stream:{two.id}", "overwritten")
        await sender.request((two.id, None), b"nowhere")
        await sender.request((three.id, None), b"stored")
        await sender.barrier()
        assert (await sender.receive()).error.message
    assert _length(relay, f"stream:{three.id}") == 1
    assert "Traceback" not in relay.log()


async def test_two_connections_of_one_twin_do_not_share_a_replacement(relay: RelayProcess) -> None:
    (twin,) = fresh_twins(1)
    first = await connect(relay.url, twin, "one")
    second = await connect(relay.url, twin, "two")
    replacing = await connect(relay.url, twin, "one")
    assert await first.closed() == (4001, "replaced")
    await second.barrier()
    await replacing.barrier()
    for client in (second, replacing):
        await client.abort()
