"""A supervisor with simple children, for tests that kill it: `trivial_parent FILE ACT`."""

from __future__ import annotations

import asyncio
import sys

from relay.server.child import ChildSpec
from relay.server.supervisor import Supervisor

CHILD_MODULE = "tests.relay.server.trivial_child"


async def main(file: str, act: str) -> None:
    """Run two workers until the supervisor is stopped."""
    supervisor = Supervisor()

    def worker(slot: int) -> ChildSpec:
        return ChildSpec(f"worker {slot}", CHILD_MODULE, (file, act, str(slot)), stop_grace_s=5)

    async with supervisor.handling_signals():
        await supervisor.start_workers(2, worker)
        print("ready", flush=True)
        await supervisor.stopped()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
