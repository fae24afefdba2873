"""What both sides of a call have in common: kinds, what is to be done with the stream, its gate."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum, auto


class Kind(Enum):
    """Of a call: how many messages its caller and its handler send."""

    UNARY = auto()
    SERVER_STREAM = auto()
    CLIENT_STREAM = auto()
    DUPLEX = auto()
    RAW = auto()
    """A header and its answer, then bytes both ways."""


@dataclass(frozen=True, slots=True)
class Write:
    """Write to the stream.

    Attributes:
        data: to write.
        is_alone: nothing more is done before the other side has read it; then `acknowledged` is to
            be called.
    """

    data: bytes
    is_alone: bool = False


@dataclass(frozen=True, slots=True)
class End:
    """End the writing half."""


@dataclass(frozen=True, slots=True)
class Abort:
    """Give the writing half up."""

    code: int = 0


@dataclass(frozen=True, slots=True)
class Cancel:
    """Give the reading half up."""

    code: int = 0


Action = Write | End | Abort | Cancel


class Outbox:
    """What is to be done with a stream, in order.

    The first message of a call goes alone (R1): a handler of the reference loses what comes
    together with it.
    """

    def __init__(self) -> None:
        self._actions: deque[Action] = deque()
        self._is_waiting = False  # for the first message to be read
        self._has_ended = False

    def write(self, data: bytes, is_alone: bool = False) -> None:
        """Write, unless the writing half has ended."""
        if not self._has_ended:
            self._actions.append(Write(data, is_alone))

    def end(self) -> None:
        """End the writing half."""
        if not self._has_ended:
            self._has_ended = True
            self._actions.append(End())

    def cancel(self) -> None:
        """Give the reading half up."""
        self._actions.append(Cancel())

    def give_up(self) -> None:
        """Give both halves up; what waits is not done."""
        self._actions.clear()
        self._actions += (Cancel(), Abort())
        self._has_ended = True
        self._is_waiting = False

    def stop(self) -> None:
        """The other side reads no more: nothing is written any more."""
        self._has_ended = True
        kept = [action for action in self._actions if isinstance(action, Cancel)]
        self._actions.clear()
        self._actions += kept
        self._is_waiting = False

    def acknowledged(self) -> None:
        """The other side has read what was written alone."""
        self._is_waiting = False

    def next(self) -> Action | None:
        """Take what is to be done next; None: nothing for now."""
        if self._is_waiting or not self._actions:
            return None
        action = self._actions.popleft()
        self._is_waiting = isinstance(action, Write) and action.is_alone
        return action
