"""The contents of one MULTI of the gateway, and what is removed from one that Redis refuses."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Final

Then = Callable[[], None]

TEMPORARY: Final = (
    *("OOM", "LOADING", "READONLY", "MISCONF", "BUSY", "TRYAGAIN"),
    *("NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN"),
)
"""Prefixes of Redis errors that do not depend on what is written, and are temporary."""


class Why(enum.Enum):
    """Reason why entries of a list are not written."""

    FORBIDDEN = enum.auto()
    """Redis refuses this list permanently: its user may not write there, or it is not a list."""
    NO_ROOM = enum.auto()
    """Redis had no memory for too long."""


class Push:
    """Commands that add entries to a list whose name others have chosen.

    Args:
        queue: the list.
        commands: the encoded commands.
        patient: whether the push waits for room without a time limit.
        give_up: called when the push is removed from the batch.
    """

    __slots__ = ("commands", "give_up", "patient", "queue")

    def __init__(
        self,
        queue: bytes,
        commands: tuple[bytes, ...],
        patient: bool,
        give_up: Callable[[Why], None],
    ) -> None:
        self.queue = queue
        self.commands = commands
        self.patient = patient
        self.give_up = give_up


class Limited:
    """A record that is written before a certain time, or not at all.

    Args:
        until: Unix time in seconds until which it may be written.
        payload: encoded HSET command.
        written: called when the kernel has the command.
        give_up: called instead when the record is removed from the batch.
    """

    __slots__ = ("give_up", "payload", "until", "written")

    def __init__(self, until: float, payload: bytes, written: Then, give_up: Then) -> None:
        self.until = until
        self.payload = payload
        self.written = written
        self.give_up = give_up


class Batch:
    """Commands of one MULTI, and the callbacks for when they are written and applied."""

    __slots__ = (
        *("commands", "limited", "no_room_since", "pushes", "put_first"),
        *("recorded", "size_bytes", "then", "written"),
    )

    def __init__(self) -> None:
        self.commands: list[bytes] = []
        self.limited: list[Limited] = []
        self.pushes: list[Push] = []
        self.put_first = 0  # number of limited commands of earlier batches, at the front
        self.written: list[Then] = []
        self.then: list[Then] = []
        self.size_bytes = 0
        self.recorded = False  # Redis has what was written early, although it refused the batch
        self.no_room_since: float | None = None  # loop time

    def written_early(self) -> list[bytes]:
        """Return the limited commands whose `written` was called."""
        unwritten = self._unwritten()
        return [each.payload for each in self.limited if id(each.written) not in unwritten]

    def without_late(self, now: float) -> list[Then]:
        """Remove commands whose time is over; return the callbacks that give them up."""
        late = [each for each in self.limited if each.until <= now]
        if not late:
            return []
        unwritten = self._unwritten()
        self._take_out(late)
        return [each.give_up for each in late if id(each.written) in unwritten]

    def halve(self) -> list[Limited]:
        """Remove the later half of the limited commands that the kernel never had, and return them.

        A command that depends on one of the others may be in progress, and must not be written
        before it.
        """
        unwritten = self._unwritten()
        waiting = [each for each in self.limited if id(each.written) in unwritten]
        found = waiting[len(waiting) // 2 :]
        self._take_out(found)
        return found

    def put(self, found: list[Limited]) -> None:
        """Insert commands removed from the previous batch, behind those inserted before."""
        at = self.put_first
        self.limited[at:at] = found
        self.commands[at:at] = [each.payload for each in found]
        self.written += [each.written for each in found]
        self.size_bytes += sum(len(each.payload) for each in found)
        self.put_first += len(found)

    def without_impatient(self) -> list[Push]:
        """Remove the pushes that do not wait for room, and return them."""
        found = [push for push in self.pushes if not push.patient]
        self._take_out_pushes(found)
        return found

    def without_forbidden(self, errors: Mapping[int, Exception]) -> list[Push]:
        """Remove the pushes that are refused permanently, if only pushes are, and return them.

        Args:
            errors: errors of Redis for commands of the batch, by the ids of the commands.
        """
        forbidden = {each for each, error in errors.items() if not str(error).startswith(TEMPORARY)}
        found = [
            push for push in self.pushes if any(id(each) in forbidden for each in push.commands)
        ]
        if forbidden - {id(each) for push in found for each in push.commands}:
            return []  # the gateway's own keys are refused too: the lists are not the cause
        self._take_out_pushes(found)
        return found

    def _unwritten(self) -> set[int]:
        return set(map(id, self.written))  # called ones are removed: the kernel has their commands

    def _take_out(self, found: list[Limited]) -> None:
        out = {id(part) for each in found for part in (each, each.payload, each.written)}
        self.limited = [each for each in self.limited if id(each) not in out]
        self.commands = [each for each in self.commands if id(each) not in out]
        self.written = [each for each in self.written if id(each) not in out]
        self.size_bytes -= sum(len(each.payload) for each in found)

    def _take_out_pushes(self, found: list[Push]) -> None:
        out = {id(each): len(each) for push in found for each in push.commands}
        gone = set(map(id, found))
        self.pushes = [each for each in self.pushes if id(each) not in gone]
        self.commands = [each for each in self.commands if id(each) not in out]
        self.size_bytes -= sum(out.values())
