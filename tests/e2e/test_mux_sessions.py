"""Sessions of twins on streams of one connection."""

from __future__ import annotations

from tests.support import stream_client
from tests.support.relay_process import RelayProcess
from tests.support.rmb_client import session
from tests.support.stream_client import connection
from tests.support.world import fresh_twins


async def test_sessions_on_streams_and_on_websockets_talk(any_relay: RelayProcess) -> None:
    one, two, three = fresh_twins(3)
    async with (
        connection(any_relay.url) as mux,
        stream_client.session(mux, one) as first,
        stream_client.session(mux, two, "phone") as second,
        session(any_relay.url, three) as third,
    ):
        clients = (first, second, third)
        for number in range(50):
            for source in clients:
                for target in clients:
                    if source is not target:
                        await source.request(target.key, b"%d" % number)
        for client in clients:
            got = [envelope.plain for envelope in await client.receive_many(100)]
            assert sorted(got) == sorted([b"%d" % number for number in range(50)] * 2)
