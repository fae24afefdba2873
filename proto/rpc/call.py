"""Parts that both sides of a call share: kinds of calls, and queued actions on its stream."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum, auto


class Kind(Enum):
    """Kind of a call: how many messages its caller and its handler send."""

    UNARY = auto()
    SERVER_STREAM = auto()
    CLIENT_STREAM = auto()
    DUPLEX = auto()
    RAW = auto()
    """A header and its answer, followed by bytes in both directions."""


@dataclass(frozen=True, slots=True)
class Write:
    """Write to the stream.

    Attributes:
        data: bytes to write.
        is_alone: whether to wait until the other side has read them before anything else is done;
            then `acknowledged` must be called.
    """

    data: bytes
    is_alone: bool = False


@dataclass(frozen=True, slots=True)
class End:
    """End the writing half."""


@dataclass(frozen=True, slots=True)
class Abort:
    """Abort the writing half."""

    code: int = 0


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel the reading half."""

    code: int = 0


Action = Write | End | Abort | Cancel


class Outbox:
    """Queue of actions on a stream.

    The first message of a call is sent alone (R1): a handler of the reference loses bytes that
    arrive together with it.
    """

    def __init__(self) -> None:
        self._actions: deque[Action] = deque()
        self._is_waiting = False  # until the other side has read the first message
        self._has_ended = False

    def write(self, data: bytes, is_alone: bool = False) -> None:
        """Queue a write, unless the writing half has ended."""
        if not self._has_ended:
            self._actions.append(Write(data, is_alone))

    def end(self) -> None:
        """Queue the end of the writing half."""
        if not self._has_ended:
            self._has_ended = True
            self._actions.append(End())

    def cancel(self) -> None:
        """Queue the cancellation of the reading half."""
        self._actions.append(Cancel())

    def give_up(self) -> None:
        """Cancel the reading half and abort the writing half; drop all queued actions."""
        self._actions.clear()
        self._actions += (Cancel(), Abort())
        self._has_ended = True
        self._is_waiting = False

    def stop(self) -> None:
        """Drop all writes, because the other side reads no more."""
        self._has_ended = True
        kept = [action for action in self._actions if isinstance(action, Cancel)]
        self._actions.clear()
        self._actions += kept
        self._is_waiting = False

    def acknowledged(self) -> None:
        """Record that the other side has read what was written alone."""
        self._is_waiting = False

    def next(self) -> Action | None:
        """Return the next action, or None if there is nothing to do for now."""
        if self._is_waiting or not self._actions:
            return None
        action = self._actions.popleft()
        self._is_waiting = isinstance(action, Write) and action.is_alone
        return action
