"""Gaps: times in which a recorder lost events, or may have lost some; one small JSON file each.

The delivery audit counts messages in a gap separately. A gap is written to a draft that is renamed,
so readers see complete files only. The name of the file is made of the gap's relay, worker, start
and reason: the same gap written twice is one file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from relay.analytics.places import DRAFT, Places
from relay.analytics.segments import file_name, sync_folder


class Why(StrEnum):
    """Why events are missing."""

    KILLED = "killed"
    PRESSURE = "pressure"
    TORN = "torn"
    DISK = "disk"


@dataclasses.dataclass(frozen=True, slots=True)
class Gap:
    """Time in which rows of one process are missing, or may be missing.

    Attributes:
        relay, worker: process that lost the rows.
        from_us, to_us: start and end in microseconds since 1970, both included.
        lost: number of lost rows; None if it is not known.
        why: reason of the loss.
        estimated: estimate of the lost rows if `lost` is `None`; None if there is no estimate.
        at_most: upper bound of the lost rows if `lost` is `None`; None if there is no bound.
    """

    relay: str
    worker: str
    from_us: int
    to_us: int
    lost: int | None
    why: Why
    estimated: int | None = None
    at_most: int | None = None


class Cost(NamedTuple):
    """Rows lost in some gaps.

    Attributes:
        gaps: number of gaps in which rows were lost, or may have been.
        known: counted rows.
        estimated: counted and estimated rows.
        at_most: the same with the bound of each gap in place of its estimate.
        unknown: gaps without a count or an estimate.
    """

    gaps: int
    known: int
    estimated: int
    at_most: int
    unknown: int

    def __str__(self) -> str:
        if self.unknown == self.gaps > 0:
            return "an unknown number of events"
        text = f"about {self.estimated:,} events, at most {self.at_most:,}"
        return text + (f"; unknown in {self.unknown:,} gaps" if self.unknown else "")


def cost(found: Iterable[Gap]) -> Cost:
    """Return the sums of the rows lost in some gaps."""
    real = [gap for gap in found if gap.lost != 0]
    guessed = [gap for gap in real if gap.lost is None]
    known = sum(gap.lost or 0 for gap in real)
    return Cost(
        gaps=len(real),
        known=known,
        estimated=known + sum(gap.estimated or 0 for gap in guessed),
        at_most=known + sum(gap.at_most or 0 for gap in guessed),
        unknown=sum(gap.estimated is None for gap in guessed),
    )


def write(lake: Path, gap: Gap) -> Path:
    """Write a gap to its file.

    Args:
        lake: root folder of the analytics.
    """
    folder = Places(lake).gaps
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{file_name(gap.relay, gap.worker, gap.from_us, gap.why)}.json"
    beside = folder / f"{DRAFT}{path.name}"
    with beside.open("w") as file:
        json.dump(dataclasses.asdict(gap), file)
        file.flush()
        os.fsync(file.fileno())
    beside.rename(path)
    sync_folder(folder)
    return path


def lost_since(lake: Path, why: Why, since: float) -> int:
    """Return the number of events lost in gaps written since a time, at least one for each gap.

    Args:
        lake: root folder of the analytics.
        why: reason of the loss.
        since: seconds since 1970.

    Raises:
        OSError: the folder cannot be read.
    """
    lost = 0
    with contextlib.suppress(FileNotFoundError), os.scandir(Places(lake).gaps) as entries:
        for entry in entries:
            if not entry.name.endswith(f"-{why}.json") or entry.name.startswith(DRAFT):
                continue
            with contextlib.suppress(FileNotFoundError):
                if entry.stat().st_mtime >= since:
                    lost += _cost(Path(entry.path)) or 1
    return lost


def _cost(path: Path) -> int:
    try:
        return cost([_read(path)]).estimated
    except ValueError:
        return 0  # readers that need the gap report it


def read(lake: Path) -> list[Gap]:
    """Return all gaps in the order of time.

    Raises:
        ValueError: a file is not a gap; the text names it.
    """
    found = []
    for path in sorted(Places(lake).gaps.glob("*.json")):
        if path.name.startswith(DRAFT):
            continue
        found.append(_read(path))
    return sorted(found, key=lambda gap: (gap.from_us, gap.relay, gap.worker))


def _read(path: Path) -> Gap:
    try:
        fields = json.loads(path.read_text())
        return Gap(**{**fields, "why": Why(fields["why"])})
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: not a gap ({error})") from error
