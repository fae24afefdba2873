"""What can be switched while the node runs: its pace, and the faults it plays.

`dev_setKnobs` takes any of them by name; `dev_knobs` shows all. None survives a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from chain.devchain.bounds import (
    MAX_BLOCK_TIME_S,
    MAX_BLOCKS,
    MAX_DELAY_S,
    MAX_METHOD_CHARS,
    MAX_NAMED_METHODS,
)
from chain.devchain.errors import KnobError

ALL: Final = "*"
"""In `held` and `failing`: every method."""


@dataclass(slots=True)
class Knobs:
    """All knobs with their values at rest."""

    block_time_s: float = 6.0
    """A block every so many seconds; 0: none by the clock."""

    instant: bool = False
    """A block for every transaction at once."""

    stalled: bool = False
    """No blocks but those of `dev_newBlocks`, `dev_fork` and `dev_putTwins`."""

    finality_lag: int = 0
    """A block is final when so many came after it. A fork below is played all the same."""

    finality_delay_s: float = 0.1
    """And so much later: clients that look a block up when they hear of it (polkadot-js) lose the
    word that a transaction is in it if it is final in the same moment."""

    states_kept: int = 0
    """The state of so many newest blocks can be asked (a node without archive has 256); 0: all."""

    mute_heads: bool = False
    """Subscribers are told of no head, best or final; the next one after that they are told."""

    announce_every: int = 1
    """They are told of every n-th best head only."""

    held: tuple[str, ...] = ()
    """Answers to these methods are worked out, but kept back until the name is taken out again."""

    failing: tuple[str, ...] = ()
    """These methods answer with an internal error."""

    delay_s: float = 0.0
    """Every answer and every notification comes so much later."""

    refuse_connections: bool = False
    """New connections are answered with status 503."""

    def to_json(self) -> dict[str, Any]:
        """All of them by name."""
        return asdict(self)

    def set(self, values: Mapping[str, Any]) -> None:
        """Set some of them: all, or none if one is wrong.

        Raises:
            KnobError: names the knob and what it takes.
        """
        taken = {name: _taken(name, value) for name, value in values.items()}
        for name, value in taken.items():
            setattr(self, name, value)


def applies(names: tuple[str, ...], method: str) -> bool:
    """Whether a method is among those of `held` or `failing`."""
    return method in names or ALL in names


def _taken(name: str, value: Any) -> Any:
    take = _TAKES.get(name)
    if take is None:
        raise KnobError(f"there is no knob {name[:MAX_METHOD_CHARS]!r}; see dev_knobs")
    try:
        return take(value)
    except ValueError as error:
        raise KnobError(f"{name}: {error}") from None


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _number(lowest: int, highest: int) -> Callable[[Any], int]:
    def take(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
            raise ValueError(f"must be a number from {lowest} to {highest}")
        return value

    return take


def _seconds(highest: float) -> Callable[[Any], float]:
    def take(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError("must be a number of seconds")
        if not 0 <= value <= highest:
            raise ValueError(f"must be from 0 to {highest:g} s")
        return float(value)

    return take


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or len(value) > MAX_NAMED_METHODS:
        raise ValueError(f"must be a list of at most {MAX_NAMED_METHODS} methods")
    if not all(isinstance(each, str) and len(each) <= MAX_METHOD_CHARS for each in value):
        raise ValueError(f"must be names of at most {MAX_METHOD_CHARS} characters")
    return tuple(value)


_TAKES: Final[dict[str, Callable[[Any], Any]]] = {
    "block_time_s": _seconds(MAX_BLOCK_TIME_S),
    "instant": _flag,
    "stalled": _flag,
    "finality_lag": _number(0, MAX_BLOCKS),
    "finality_delay_s": _seconds(MAX_DELAY_S),
    "states_kept": _number(0, MAX_BLOCKS),
    "mute_heads": _flag,
    "announce_every": _number(1, MAX_BLOCKS),
    "held": _names,
    "failing": _names,
    "delay_s": _seconds(MAX_DELAY_S),
    "refuse_connections": _flag,
}
assert set(_TAKES) == {each.name for each in fields(Knobs)}
