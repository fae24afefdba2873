"""Settings that can be changed at run time: the pace of blocks, and simulated faults.

`dev_setKnobs` sets any of them by name; `dev_knobs` shows all. They do not survive a restart.
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
"""Name that stands for every method in `held` and `failing`."""


@dataclass(slots=True)
class Knobs:
    """All knobs with their default values."""

    block_time_s: float = 6.0
    """Seconds between blocks; 0 for no regular blocks."""

    instant: bool = False
    """Whether a block is made at once for every transaction."""

    stalled: bool = False
    """Whether no blocks are made except by `dev_newBlocks`, `dev_fork` and `dev_putTwins`."""

    finality_lag: int = 0
    """Number of later blocks after which a block is final. `dev_fork` can retract final blocks."""

    finality_delay_s: float = 0.1
    """Additional seconds until a block is final. Clients that look a block up when it is announced
    (polkadot-js) miss the notification that a transaction is in it if it becomes final at the same
    moment."""

    states_kept: int = 0
    """Number of newest blocks whose state can be read (256 on nodes without archive); 0: all."""

    mute_heads: bool = False
    """Whether heads, best or final, are not announced; when switched off, the next one is again."""

    announce_every: int = 1
    """Only every n-th best head is announced."""

    held: tuple[str, ...] = ()
    """Methods whose requests are executed, but whose answers are held until the name is removed
    again."""

    failing: tuple[str, ...] = ()
    """Methods that answer with an internal error."""

    delay_s: float = 0.0
    """Seconds by which every answer and every notification is delayed."""

    refuse_connections: bool = False
    """Whether new connections are refused with status 503."""

    def to_json(self) -> dict[str, Any]:
        """Return all knobs by name."""
        return asdict(self)

    def set(self, values: Mapping[str, Any]) -> None:
        """Set some knobs: all of them, or none if a value is wrong.

        Raises:
            KnobError: a name or value is wrong; the message names the knob and what it accepts.
        """
        taken = {name: _taken(name, value) for name, value in values.items()}
        for name, value in taken.items():
            setattr(self, name, value)


def applies(names: tuple[str, ...], method: str) -> bool:
    """Return whether a method is among those of `held` or `failing`."""
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
