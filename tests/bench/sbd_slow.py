"""SBD clients that do not read: `python -m tests.bench.sbd_slow JSON`, until stdin ends.

One sender sends packets to each at a steady rate until the relay drops it; then it reconnects. The
program prints `ready` after a second, in which the clients connect, and figures at the end.
"""

from __future__ import annotations

import asyncio
import json
import sys

from proto.sbd import frames
from proto.websocket.frames import masked_frame
from tests.bench.sbd_clients import stay
from tests.proto.sbd.pairs import Identity

FIRST_TWIN = 800_000
READERS = 10
PACKET_BYTES = 16 * 1024
PAUSE_S = 0.02
"""Seconds between packets: at some 0.8 MB a second for each reader, more than may wait in the relay
arrives within a few seconds."""
KEEP_ALIVE = masked_frame(frames.KEEP_ALIVE, b"mask")


class SlowReaders:
    """One run of this program."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.dropped = self.sent = 0

    async def read_nothing(self, twin: int) -> None:
        """Stay connected without reading, and reconnect; writes detect the connection's end."""
        identity = Identity(twin)
        while True:
            member = await stay(self._url, identity, twin, signs=True, slow=True)
            member.transport.pause_reading()
            while not member.ended:
                member.transport.write(KEEP_ALIVE)
                await asyncio.sleep(PAUSE_S)
            self.dropped += 1

    async def send(self, twins: range) -> None:
        """Send packets to all readers."""
        sender = FIRST_TWIN - 1
        member = await stay(self._url, Identity(sender), sender, signs=True)
        packets = [
            masked_frame(frames.forward(Identity(twin).key, bytes(PACKET_BYTES)), b"mask")
            for twin in twins
        ]
        while not member.ended:
            for packet in packets:
                member.transport.write(packet)
                self.sent += 1
            await asyncio.sleep(PAUSE_S)
        raise ConnectionError("the relay ended the sender")


async def main(url: str) -> None:
    slow = SlowReaders(url)
    twins = range(FIRST_TWIN, FIRST_TWIN + READERS)
    tasks = [asyncio.ensure_future(slow.read_nothing(twin)) for twin in twins]
    tasks.append(asyncio.ensure_future(slow.send(twins)))
    await asyncio.sleep(1.0)
    print("ready", flush=True)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    ending = asyncio.ensure_future(reader.read())
    await asyncio.wait([*tasks, ending], return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if task.done():
            task.result()
    print(json.dumps({"dropped": slow.dropped, "sent": slow.sent}), flush=True)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main(**json.loads(sys.argv[1])))
