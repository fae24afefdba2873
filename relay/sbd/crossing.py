"""Connects the workers of one Redis: which worker holds which key, and packets between them.

`sbd:keys` contains the worker of each key. The entry is written when a client has proved its key. A
worker that has looked one up caches it until `sbd:news` announces that the key has moved. All
packets for one worker in one turn of the loop are sent as one message on its channel
`sbd:to:<boot id>`. Redis does not store them: packets that are published while a worker is
unavailable are lost, and counted if that can be known.

While Redis is unavailable, packets between clients of one worker are still delivered; others are
dropped and counted. When Redis is back, every worker enters its keys again, except those that were
proved elsewhere later.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import hiredis

from proto.sbd.bounds import HEADER_BYTES, KEY_BYTES, MAX_MESSAGE_BYTES
from redispipe import resp, scripts
from redispipe.address import Connect
from redispipe.errors import LinkLost
from redispipe.pipe import RedisPipe
from relay.queues.keys import SBD_KEYS
from relay.sbd.options import EndReason, LossReason
from relay.sbd.sharing import CHANNEL, Sharing
from relay.sessions.hub import Hub

if TYPE_CHECKING:
    from relay.sbd.connection import Connection
    from relay.sbd.switch import Switch

log = logging.getLogger(__name__)

NEWS: Final = b"sbd:news"
MAX_KNOWN: Final = 100_000
"""Maximum number of cached keys on other workers; the one that was looked up first is evicted."""
MAX_FLYING_BYTES: Final = 16 << 20
"""Maximum number of bytes of packets that wait for a reply of Redis, about themselves or about
their key; further packets are dropped."""
MAX_ASKING: Final = 256
"""Maximum number of packets for one key that wait for its look-up."""
ENTER_AGAIN_S: Final = 5.0
"""Seconds until keys are entered again after Redis refused one, as when it is out of memory."""

BURIED_AT_ONCE: Final = 500

FOLDER: Final = Path(__file__).with_name("lua")
PACKETS: Final = b"P"
REPLACED: Final = b"R"
MAX_GROUP: Final = 0xFFFF
_GROUP: Final = struct.Struct(">32sH")  # destination, number of packets
_SIZE: Final = struct.Struct(">H")


def channel(boot_id: str) -> str:
    """Return the channel on which a worker receives packets, and notices of moved keys."""
    return f"sbd:to:{boot_id}"


def held(boot_id: str) -> str:
    """Return the name of the set of a worker's keys, by which they are removed when it is gone."""
    return f"sbd:held:{boot_id}"


def bury(boot_id: str) -> bytes:
    """Return the command that removes some keys of a dead worker; it replies how many are left."""
    source = scripts.source(FOLDER, "bury")
    return resp.command("EVAL", source, 2, SBD_KEYS, held(boot_id), boot_id, BURIED_AT_ONCE)


def encode(groups: list[tuple[bytes, list[bytes]]]) -> bytes:
    """Encode packets for one worker, by destination.

    Args:
        groups: destination, and packets with the source first.
    """
    parts = [PACKETS]
    for destination, packets in groups:
        for start in range(0, len(packets), MAX_GROUP):
            some = packets[start : start + MAX_GROUP]
            parts.append(_GROUP.pack(destination, len(some)))
            for packet in some:
                parts += (_SIZE.pack(len(packet)), packet)
    return b"".join(parts)


def decode(data: bytes) -> list[tuple[bytes, list[bytes]]]:
    """Decode packets that `encode` encoded.

    Raises:
        ValueError: the data is malformed.
    """
    groups = []
    position = len(PACKETS)
    try:
        while position < len(data):
            destination, count = _GROUP.unpack_from(data, position)
            position += _GROUP.size
            packets = []
            for _ in range(count):
                (size,) = _SIZE.unpack_from(data, position)
                position += _SIZE.size
                packet = data[position : position + size]
                if not HEADER_BYTES <= len(packet) == size <= MAX_MESSAGE_BYTES:
                    raise ValueError("a packet of a wrong size")
                packets.append(packet)
                position += size
            groups.append((destination, packets))
    except struct.error:
        raise ValueError("packets that are cut off") from None
    return groups


class Crossing:
    """A worker's connections to Redis for SBD.

    Attributes:
        sharing: exchange of figures about addresses between workers.
    """

    def __init__(
        self, boot_id: str, connect: Connect, opening: list[tuple[str | int, ...]]
    ) -> None:
        self._boot_id = boot_id
        self._switch: Switch
        self.sharing: Sharing
        self._pipe = RedisPipe(connect, opening, on_usable=self._enter_all, quiet=True)
        self._hub = Hub(connect, opening, self)
        self._entered: dict[Connection, int] = {}  # those to enter in Redis; when they signed (ns)
        self._claiming: set[Connection] = set()  # those without an epoch whose claim is on its way
        self._overtaken: dict[bytes, int] = {}  # epoch since which a key is held elsewhere
        self._known: dict[bytes, str] = {}  # key -> boot id of another worker
        self._asking: dict[bytes, list[bytes]] = {}  # packets that wait for a look-up
        self._out: dict[str, dict[bytes, list[bytes]]] = {}  # worker -> packets of this turn
        self._flying_bytes = 0
        self._loop = asyncio.get_running_loop()
        self._again: asyncio.TimerHandle | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def usable(self) -> bool:
        """Whether Redis answers."""
        return self._pipe.usable

    def start(self, switch: Switch) -> None:
        """Connect to Redis, and subscribe to the channels."""
        self._switch = switch
        self.sharing = Sharing(self._boot_id, switch.places, self._tell)
        self._pipe.start()
        self._hub.pipe.start()
        subscribe = self._hub.subscribe
        self._tasks = [
            self._loop.create_task(subscribe(channel(self._boot_id).encode(), self._received)),
            self._loop.create_task(subscribe(NEWS, self._moved)),
            self._loop.create_task(subscribe(CHANNEL, self.sharing.heard)),
        ]

    async def stop(self) -> None:
        """Stop the tasks, and close the connections to Redis."""
        if self._again is not None:
            self._again.cancel()
        self.sharing.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._hub.pipe.close()
        await self._pipe.close()

    async def ask(self, *arguments: resp.Argument) -> Any:
        """Send a command, and return its reply.

        Raises:
            LinkLost: Redis is unavailable, or refuses the command.
        """
        try:
            return await self._pipe.ask(*arguments)
        except hiredis.ReplyError as error:
            raise LinkLost(str(error)) from error

    # --- the directory of keys --------------------------------------------------------------------

    def claim(self, connection: Connection, then: Callable[[Connection], None]) -> None:
        """Enter a connection under its key, then call `then`; at once if Redis is unavailable."""
        self._entered[connection] = time.monotonic_ns()

        def entered(reply: Any) -> None:
            self._claimed(connection, reply)
            self._arrive(connection, then)

        if self._pipe.usable:
            self._claim(connection, entered)
        else:
            self._arrive(connection, then)

    def _arrive(self, connection: Connection, then: Callable[[Connection], None]) -> None:
        """Call `then`, and deliver packets that waited for the key's look-up, before later ones."""
        then(connection)
        if connection.key in self._asking and not connection.ended:
            waiting, self._asking[connection.key] = self._asking[connection.key], []
            self._flying_bytes -= sum(map(len, waiting))
            self._switch.arrived(connection.key, waiting)

    def release(self, connection: Connection) -> None:
        """Remove a connection's entry, if the entry is still its own."""
        if connection in self._entered:
            del self._entered[connection]
            if connection.epoch:  # otherwise the reply to its claim releases it
                self._release(connection.key, f"{self._boot_id} {connection.epoch}")

    def resubscribed(self) -> None:
        """Enter all keys again: news may have been missed, such as keys that have moved."""
        self._enter_all()

    def _enter_all(self) -> None:
        """Enter all keys again, and remove those of ended connections.

        Called when Redis is back, which may have lost entries, or still have outdated ones.
        """
        self._known.clear()
        if not self._pipe.usable:
            return
        self._pipe.submit(resp.command("SMEMBERS", held(self._boot_id)), self._release_ended)
        for connection, signed_ns in self._entered.items():
            if connection not in self._claiming:
                age_us = max(1, (time.monotonic_ns() - signed_ns) // 1_000)
                self._claim(connection, partial(self._claimed, connection), age_us)

    def _release_ended(self, reply: Any) -> None:
        if not isinstance(reply, Exception):
            for key in set(reply) - {connection.key for connection in self._entered}:
                self._release(key, self._boot_id)

    def _claim(
        self, connection: Connection, answered: Callable[[Any], None], age_us: int = 0
    ) -> None:
        if not connection.epoch:
            self._claiming.add(connection)
        command = self._script("claim", connection.key, self._boot_id, connection.epoch, age_us)
        self._pipe.submit(command, answered)

    def _claimed(self, connection: Connection, reply: Any) -> None:
        self._claiming.discard(connection)
        overtaken = self._overtaken.get(connection.key, 0)
        if overtaken and connection.key not in {each.key for each in self._claiming}:
            del self._overtaken[connection.key]
        if isinstance(reply, Exception):
            self._enter_later()
            return
        epoch, first = int(reply), not connection.epoch
        if epoch < max(1, overtaken):
            connection.end(EndReason.REPLACED)  # while Redis was unavailable, or before it answered
            return
        connection.epoch = epoch
        if connection not in self._entered:  # the connection has ended meanwhile
            self._release(connection.key, f"{self._boot_id} {epoch}")
        elif first:
            self._switch.claimed(connection)

    def _enter_later(self) -> None:
        if self._again is None:
            self._again = self._loop.call_later(ENTER_AGAIN_S, self._enter_again)

    def _enter_again(self) -> None:
        self._again = None
        self._enter_all()

    def _release(self, key: bytes, entry: str) -> None:
        if self._pipe.usable:
            self._pipe.submit(self._script("release", key, entry), _ignore)

    def _script(self, name: str, *arguments: resp.Argument) -> bytes:
        source = scripts.source(FOLDER, name)
        return resp.command("EVAL", source, 2, SBD_KEYS, held(self._boot_id), *arguments)

    # --- packets ----------------------------------------------------------------------------------

    def send(self, destination: bytes, packets: list[bytes]) -> None:
        """Send packets, source first, for a key that is not at this worker."""
        boot = self._known.get(destination)
        if boot is not None:
            self._put(boot, destination, packets)
        elif not self._pipe.usable:
            self._switch.lose(LossReason.REDIS_AWAY, packets, destination)
        elif self._flying_bytes >= MAX_FLYING_BYTES:
            self._switch.lose(LossReason.CROSSING_FULL, packets, destination)
        elif destination in self._asking:
            waiting = self._asking[destination]
            room = max(0, MAX_ASKING - len(waiting))
            waiting += packets[:room]
            self._flying_bytes += sum(map(len, packets[:room]))
            self._switch.lose(LossReason.CROSSING_FULL, packets[room:], destination)
        else:
            self._asking[destination] = list(packets)
            self._flying_bytes += sum(map(len, packets))
            command = resp.command("HGET", SBD_KEYS, destination)
            self._pipe.submit(command, lambda reply: self._found(destination, reply))

    def _found(self, destination: bytes, reply: Any) -> None:
        packets = self._asking.pop(destination)
        if not packets:  # the key has arrived here meanwhile
            return
        self._flying_bytes -= sum(map(len, packets))
        boot = reply.partition(b" ")[0].decode() if isinstance(reply, bytes) else ""
        if isinstance(reply, Exception):
            self._switch.lose(LossReason.REDIS_AWAY, packets, destination)
        elif not boot or boot == self._boot_id:
            self._switch.lose(LossReason.ABSENT, packets, destination)
        else:
            if len(self._known) >= MAX_KNOWN:
                del self._known[next(iter(self._known))]
            self._known[destination] = boot
            self._put(boot, destination, packets)

    def _put(self, boot: str, destination: bytes, packets: list[bytes]) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.setdefault(boot, {}).setdefault(destination, []).extend(packets)

    def _flush(self) -> None:
        out, self._out = self._out, {}
        for boot, groups in out.items():
            count = sum(map(len, groups.values()))
            if self._flying_bytes >= MAX_FLYING_BYTES:
                self._lose(LossReason.CROSSING_FULL, groups.items())
                continue
            self._publish(boot, encode(list(groups.items())), count)

    def _publish(self, boot: str, payload: bytes, count: int) -> None:
        self._flying_bytes += len(payload)

        def answered(reply: Any) -> None:
            self._flying_bytes -= len(payload)
            if isinstance(reply, Exception):
                self._lose(LossReason.REDIS_AWAY, decode(payload))
            elif reply == 0:  # no subscriber: the worker is gone
                self._lose(LossReason.ABSENT, decode(payload))
                gone = [key for key, worker in self._known.items() if worker == boot]
                for key in gone:
                    del self._known[key]
            else:
                self._switch.counts.crossed += count

        self._pipe.submit(resp.command("PUBLISH", channel(boot), payload), answered)

    def _tell(self, name: bytes, data: bytes) -> None:
        if self._pipe.usable:
            self._pipe.submit(resp.command("PUBLISH", name, data), _ignore)

    def _lose(self, reason: LossReason, groups: Iterable[tuple[bytes, list[bytes]]]) -> None:
        for destination, packets in groups:
            self._switch.lose(reason, packets, destination)

    def _received(self, data: bytes) -> None:
        if data[:1] == PACKETS:
            for destination, packets in decode(data):
                self._switch.arrived(destination, packets)
        elif data[:1] == REPLACED:
            self._replaced(data[1 : 1 + KEY_BYTES], int(data[1 + KEY_BYTES :]))
        else:
            raise ValueError("neither packets nor a key that has moved")

    def _replaced(self, key: bytes, epoch: int) -> None:
        """End the connection of a key that a newer connection, here or elsewhere, has proved."""
        connection = self._switch.keys.get(key)
        if connection is not None and 0 < connection.epoch < epoch:
            connection.end(EndReason.REPLACED)
        if any(each.key == key for each in self._claiming):
            self._overtaken[key] = epoch

    def _moved(self, key: bytes) -> None:
        self._known.pop(key, None)


def _ignore(reply: Any) -> None:
    """Ignore a reply: only the command's effect matters."""
