"""A gateway killed with many entries in progress: what its lists gave it arrives, exactly once.

`test_kills` kills at every step by changing methods; compiled ones cannot be changed.
"""

from __future__ import annotations

from collections import Counter

from tests.peer.gateway.conftest import StartGateway
from tests.peer.gateway.test_kills import until_settled
from tests.support.gateway_process import Program, Service, payload_of
from tests.support.waiting import eventually

MESSAGES = 500
KILLS = (10, 150, 300)
"""Numbers of arrived requests at which the gateway is killed; all others are in progress."""


async def test_a_sender_that_is_killed_again_and_again(start_gateway: StartGateway) -> None:
    here, there = start_gateway(), start_gateway()
    await here.connected()
    await there.connected()
    program = Program(here.redis)
    for number in range(MESSAGES):
        program.ask("kill.test", [there.twin], b"%d" % number, exp=300)
    async with Service(there.redis, "kill.test", echo=False) as service:
        for count in KILLS:
            await eventually(lambda count=count: len(service.taken) >= count)
            here.kill()
            here.start()
        await eventually(lambda: len(service.taken) >= MESSAGES)
        await until_settled(here)
    assert Counter(map(payload_of, service.taken)) == {b"%d" % n: 1 for n in range(MESSAGES)}
