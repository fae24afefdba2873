"""Which files of events count.

They lie in folders of the hour of `event_time` in UTC. A file never changes. The compactor adds
`<segment>-<hour>.parquet`; merging adds `<fingerprint>.merged.parquet`, which names in its own
metadata the files it stands for. Both lie in the folder for a while, so that who has listed the old
ones can still read them: whoever reads asks `Lake.files`, never a bare pattern. That one rename
decides, and a listing made before or after it has every row once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import Final, Self

from relay.analytics import places
from relay.analytics.errors import AnalyticsError
from relay.analytics.places import DRAFT, Places

SUFFIX: Final = ".parquet"
MERGED_SUFFIX: Final = ".merged.parquet"
FRESH_GLOB: Final = "*[0-9]" + SUFFIX
"""Matches what the compactor adds and nothing that was merged: for a stream, which sees each file
once and so must not see its rows in a second one."""

LOCK: Final = "events.lock"

REPLACES_KEY: Final = b"rmb.replaces"
"""In the metadata of a merged file: a JSON list of names of its folder."""

_DATE: Final = re.compile(r"date=([0-9]{4}-[0-9]{2}-[0-9]{2})")
_HOUR: Final = re.compile(r"hour=([01][0-9]|2[0-3])")
_MODULUS: Final = 1 << 128


class LakeError(AnalyticsError):
    """A file of the lake cannot be read.

    Attributes:
        why: what is wrong with it.
        broken: whether it is the file's fault (`is_broken`).
    """

    def __init__(self, path: Path, why: str, *, broken: bool = True) -> None:
        remedy = "manage.py rmb_analytics check --rows --repair takes it out of the way"
        super().__init__(f"{path}: {why}: {remedy}" if broken else f"{path}: {why}")
        self.why = why
        self.broken = broken


def is_broken(error: Exception) -> bool:
    """Whether what was raised by reading a file is about what is in it.

    What the system refuses (no right to it, too many open files, no memory) has a number, and
    another try may do.
    """
    refused = isinstance(error, OSError) and error.errno is not None
    return not refused and not isinstance(error, MemoryError)


@dataclasses.dataclass(frozen=True, slots=True)
class LakeFile:
    """One file of events.

    Attributes:
        path: where it is.
        date: of its folder, UTC.
        hour: of its folder.
        size_bytes: its size.
    """

    path: Path
    date: date
    hour: int
    size_bytes: int

    @property
    def merged(self) -> bool:
        """Whether it stands for others."""
        return self.path.name.endswith(MERGED_SUFFIX)

    @property
    def fingerprint(self) -> int:
        """Tells its rows: that of a merged file is the sum of those it was made of."""
        if self.merged:
            return int(self.path.name.removesuffix(MERGED_SUFFIX), 16)
        told = f"{self.date} {self.hour} {self.path.name} {self.size_bytes}"
        return int.from_bytes(hashlib.blake2b(told.encode(), digest_size=16).digest())


def fingerprint(files: Iterable[LakeFile]) -> str:
    """Tells the rows of several files: merging some of them leaves it as it is."""
    return f"{sum(each.fingerprint for each in files) % _MODULUS:032x}"


@dataclasses.dataclass(frozen=True, slots=True)
class Lake(Places):
    """The folders of the analytics, and the files of events in them."""

    @classmethod
    def configured(cls) -> Self:
        """That of this installation."""
        return cls(places.configured().root)

    @property
    def bad(self) -> Path:
        """Files that could not be read, out of every reader's way."""
        return self.events / "_bad"

    def hour(self, day: date, hour: int) -> Path:
        """The folder of the events of one hour."""
        return self.events / f"date={day}" / f"hour={hour:02}"

    def days(self) -> list[date]:
        """The days that have a folder, in order; `date=2026-13-45` is no day, and not read."""
        found = []
        for day in _named(self.events, _DATE):
            with contextlib.suppress(ValueError):
                found.append(date.fromisoformat(day))
        return found

    def hours(self, day: date) -> list[int]:
        """The hours of a day that have a folder, in order."""
        return [int(hour) for hour in _named(self.events / f"date={day}", _HOUR)]

    def files(self, first_day: date, last_day: date) -> list[LakeFile]:
        """The files that hold each event of these days once, in order of time and name.

        They stay for at least `relay.analytics.merging.KEEP_S` after this, unless their day is
        beyond what is kept.

        Args:
            first_day: UTC.
            last_day: included.

        Raises:
            LakeError: a merged file does not tell what it stands for.
        """
        days = [day for day in self.days() if first_day <= day <= last_day]
        return [
            file for day in days for hour in self.hours(day) for file in self.files_of(day, hour)
        ]

    def files_of(self, day: date, hour: int) -> list[LakeFile]:
        """As `files`, of one hour."""
        present = self.present(day, hour)
        if len(present) == 1:
            return present  # a file is never older than one it stands for: nothing to look up
        gone = {name for file in present if file.merged for name in replaced_by(file.path)}
        return [file for file in present if file.path.name not in gone]

    def present(self, day: date, hour: int) -> list[LakeFile]:
        """Every file of an hour, also those another one stands for, by name."""
        folder = self.hour(day, hour)
        found = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if not entry.name.endswith(SUFFIX) or entry.name.startswith(DRAFT):
                        continue
                    with contextlib.suppress(FileNotFoundError):  # removed since it was listed
                        size = entry.stat().st_size
                        found.append(LakeFile(Path(entry.path), day, hour, size))
        except FileNotFoundError:
            return []
        return sorted(found, key=lambda file: file.path.name)

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Nobody else puts, moves or removes files of events meanwhile; waits for who does.

        Held for one step at a time. That a compactor is the only one is for longer, and another
        lock.
        """
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.root / LOCK).open("a") as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX)
            yield

    def whole_span(self) -> tuple[date, date] | None:
        """The first and the last day with events; None where there are none."""
        days = self.days()
        return (days[0], days[-1]) if days else None


def replaced_by(path: Path) -> list[str]:
    """The names a merged file stands for.

    Raises:
        LakeError: it cannot be read.
    """
    from pyarrow import ArrowException, parquet  # not of those who only ask for the folders

    try:
        told = parquet.read_metadata(path).metadata or {}
        return [str(name) for name in json.loads(told[REPLACES_KEY])]
    except (OSError, ArrowException, KeyError, ValueError) as error:
        why = f"cannot be read as a merged file ({error})"
        raise LakeError(path, why, broken=is_broken(error)) from None


def _named(folder: Path, pattern: re.Pattern[str]) -> list[str]:
    """What the pattern's group finds in the names of a folder, in order."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(found[1] for name in names if (found := pattern.fullmatch(name)))
