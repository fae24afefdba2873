"""What operators see of connections whose streams carry sessions, and how they kick them."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.e2e.conftest import StartRelay
from tests.e2e.test_recorder import RECORD
from tests.support import rmb_client
from tests.support.operator_site import OperatorSite
from tests.support.recorded import rows
from tests.support.stream_client import connection, session, sign_in
from tests.support.waiting import eventually
from tests.support.world import fresh_twins


async def test_what_operators_see_and_do(start_relay: StartRelay) -> None:
    relay = start_relay(operator_site=True, settings=RECORD)
    site = OperatorSite(relay)

    def items(path: str) -> list[dict[str, Any]]:
        answer = site.ask("GET", path)
        assert answer.status == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["items"]
        return found

    def ended() -> dict[str, str]:
        found = items("/sessions/history?carrier=streams&open=false")
        return {each["key"]: each["close_reason"] for each in found}

    one, two, three, four = fresh_twins(4)
    async with (
        connection(relay.url) as mux,
        connection(relay.url) as other,
        session(other, three) as neighbour,
        rmb_client.session(relay.url, four) as own,
    ):
        first, second = await sign_in(mux, one, "phone"), await sign_in(mux, two)
        silent = await mux.open_stream()  # it does not sign in

        # The list, one connection, its streams.
        await eventually(
            lambda: [each["streams"] for each in items("/connections")] == [3, 1], 10
        )  # fmt: skip
        shown = items("/connections")[0]
        path = f"/connections/{shown['worker']}/{shown['number']}"
        assert (shown["sessions"], shown["queued_bytes"], shown["unsent_bytes"]) == (2, 0, 0)
        assert site.ask("GET", path).json()["address"] == shown["address"]
        streams = {each["session"]: each for each in items(f"{path}/streams")}
        keys = {f"{one.id}:phone", str(two.id)}
        assert streams.keys() == {*keys, None}
        assert streams[None]["state"] == "signing_in" and streams[None]["id"] == silent.id
        assert streams[str(two.id)]["state"] == "open" and streams[str(two.id)]["credit"] > 0

        # Its sessions name their carrier.
        await eventually(lambda: len(items("/sessions")) == 4)
        carried = {each["key"]: each for each in items("/sessions?carrier=streams")}
        assert carried.keys() == {*keys, str(three.id)}
        for key in keys:
            assert carried[key]["connection"] == shown["number"]
            assert carried[key]["stream"] == streams[key]["id"]
            assert carried[key]["address"] == shown["address"]
        assert [each["key"] for each in items("/sessions?carrier=websocket")] == [str(four.id)]

        # A session that does not read falls behind; the figures of its stream show it.
        second.stop_reading()
        payload = bytes(20_000)
        for _ in range(30):
            await own.request(second.key, payload)
        await own.barrier()
        await eventually(
            lambda: items(f"{path}/streams")[0]["session"] == str(two.id)
            and items(f"{path}/streams")[0]["queued_bytes"] > 0,
            10,
        )  # fmt: skip
        (worst,) = items("/connections?order=-queued_bytes&limit=1")
        assert worst["id"] == shown["id"] and worst["stalls"] > 0

        # The kick of one session does not affect the others of its connection.
        kicked = {"key": f"{one.id}:phone", "reason": "noise"}
        assert site.ask("POST", "/sessions/kick", kicked).status == 200
        assert await first.closed() == (4003, "kicked")
        await neighbour.request(second.key, b"another")
        third = await sign_in(mux, one, "again")
        await third.barrier()

        # The kick of a connection ends all of its sessions and nothing else.
        assert site.ask("POST", f"{path}/kick", {"reason": "noise"}).status == 200
        assert await third.closed() == (4003, "kicked")
        async with asyncio.timeout(60):
            await mux.ended.wait()
        await neighbour.barrier()
        await own.barrier()
        await eventually(
            lambda: (
                ended()
                == {
                    f"{one.id}:phone": "kicked",
                    f"{one.id}:again": "kicked",
                    str(two.id): "kicked",
                }
            ),
            10,
        )
        targets = [each["target"] for each in items("/audit?action=session.kick")]
        assert targets == [shown["id"], f"{one.id}:phone"]
    assert relay.stop() == 0

    # The lake records their starts and ends, as those of websockets.
    found = rows(relay.folder / "data" / "analytics")
    opened = {row.uid: row for row in found if row.kind == "session_open"}
    closed = {row.uid: row for row in found if row.kind == "session_close"}
    assert opened.keys() == closed.keys() and len(opened) == 5
    reasons = [closed[uid].reason for uid, row in opened.items() if row.source == one.id]
    assert reasons == ["kicked", "kicked"]
