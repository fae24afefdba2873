"""What another relay is answered for the messages it brings, and what becomes of them."""

from __future__ import annotations

from proto.federation import batch
from tests.support.federation_client import federation, signed
from tests.support.relay_process import RelayProcess
from tests.support.rmb_client import session
from tests.support.world import (
    ELSEWHERE_TWIN,
    fresh_twins,
)


def record(number: int, envelope, *, retry: bool = False) -> batch.Record:
    return batch.Record(b"3-%d-0" % number, retry, envelope.SerializeToString())


async def test_a_message_of_the_reference_kind_is_delivered_202(any_relay: RelayProcess) -> None:
    """A POST of the bare envelope, without any header of ours."""
    (one,) = fresh_twins(1)
    async with session(any_relay.url, one, "s") as client, federation(any_relay.port) as other:
        await client.barrier()
        for number in range(20):
            sent = signed(ELSEWHERE_TWIN, client.key, b"%d" % number)
            answer = await other.post(sent)
            assert (answer.status, answer.body) == (202, b"")
            assert answer.headers["rmb-federation"] == "batch=1"
            assert await client.receive_bytes() == sent.SerializeToString()


async def test_a_message_waits_for_its_session(relay: RelayProcess) -> None:
    (one,) = fresh_twins(1)
    async with federation(relay.port) as other:
        for number in range(3):
            answer = await other.deliver(signed(ELSEWHERE_TWIN, (one.id, None), b"%d" % number))
            assert answer.status == 202
    async with session(relay.url, one) as client:
        assert [each.plain for each in await client.receive_many(3)] == [b"0", b"1", b"2"]
