"""The lake: which files of events count.

Files are in folders by the hour of `event_time` (UTC), and never change. The compactor adds
`<segment>-<hour>.parquet`. Merging adds `<fingerprint>.merged.parquet`, whose metadata lists the
files it replaces. The replaced files stay for a while, so that a process that has listed them can
still read them. Readers must therefore ask `Lake.files`, and never list files by a pattern. A
merged file appears by one rename: a listing made before or after it has every row once.
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
"""Pattern of the files that the compactor adds, and not of merged files. For a stream, which reads
each file once and must not read its rows again in a merged one."""

LOCK: Final = "events.lock"

REPLACES_KEY: Final = b"rmb.replaces"
"""Key in the metadata of a merged file: a JSON list of the names of the files it replaces."""

_DATE: Final = re.compile(r"date=([0-9]{4}-[0-9]{2}-[0-9]{2})")
_HOUR: Final = re.compile(r"hour=([01][0-9]|2[0-3])")
_MODULUS: Final = 1 << 128


class LakeError(AnalyticsError):
    """A file of the lake cannot be read.

    Attributes:
        why: what is wrong with it.
        broken: whether its contents are the cause (`is_broken`).
    """

    def __init__(self, path: Path, why: str, *, broken: bool = True) -> None:
        remedy = "manage.py rmb_analytics check --rows --repair takes it out of the way"
        super().__init__(f"{path}: {why}: {remedy}" if broken else f"{path}: {why}")
        self.why = why
        self.broken = broken


def is_broken(error: Exception) -> bool:
    """Check whether an error of reading a file is caused by its contents.

    Errors of the system (no permission, too many open files, no memory) have a number, and a retry
    may succeed.
    """
    refused = isinstance(error, OSError) and error.errno is not None
    return not refused and not isinstance(error, MemoryError)


@dataclasses.dataclass(frozen=True, slots=True)
class LakeFile:
    """One file of events.

    Attributes:
        path: path of the file.
        date: day of its folder, UTC.
        hour: hour of its folder.
        size_bytes: size of the file.
    """

    path: Path
    date: date
    hour: int
    size_bytes: int

    @property
    def merged(self) -> bool:
        """Whether it replaces other files."""
        return self.path.name.endswith(MERGED_SUFFIX)

    @property
    def fingerprint(self) -> int:
        """Number that identifies the rows; for a merged file, the sum of its parts' numbers."""
        if self.merged:
            return int(self.path.name.removesuffix(MERGED_SUFFIX), 16)
        told = f"{self.date} {self.hour} {self.path.name} {self.size_bytes}"
        return int.from_bytes(hashlib.blake2b(told.encode(), digest_size=16).digest())


def fingerprint(files: Iterable[LakeFile]) -> str:
    """Return the identity of the rows of several files; merging some of them does not change it."""
    return f"{sum(each.fingerprint for each in files) % _MODULUS:032x}"


@dataclasses.dataclass(frozen=True, slots=True)
class Lake(Places):
    """Folders of the analytics, and the files of events in them."""

    @classmethod
    def configured(cls) -> Self:
        """Return the lake of this installation."""
        return cls(places.configured().root)

    @property
    def bad(self) -> Path:
        """Folder of files that cannot be read, which readers do not open."""
        return self.events / "_bad"

    def hour(self, day: date, hour: int) -> Path:
        """Return the folder of the events of one hour."""
        return self.events / f"date={day}" / f"hour={hour:02}"

    def days(self) -> list[date]:
        """Return the days that have a folder, in order; skip names like `date=2026-13-45`."""
        found = []
        for day in _named(self.events, _DATE):
            with contextlib.suppress(ValueError):
                found.append(date.fromisoformat(day))
        return found

    def hours(self, day: date) -> list[int]:
        """Return the hours of a day that have a folder, in order."""
        return [int(hour) for hour in _named(self.events / f"date={day}", _HOUR)]

    def files(self, first_day: date, last_day: date) -> list[LakeFile]:
        """Return the files that have each event of these days once, in order of time and name.

        They stay for at least `relay.analytics.merging.KEEP_S` after this call, unless their day
        exceeds the retention period.

        Args:
            first_day: first day, UTC.
            last_day: last day, included.

        Raises:
            LakeError: a merged file does not list the files it replaces.
        """
        days = [day for day in self.days() if first_day <= day <= last_day]
        return [
            file for day in days for hour in self.hours(day) for file in self.files_of(day, hour)
        ]

    def files_of(self, day: date, hour: int) -> list[LakeFile]:
        """Return the files that have each event of one hour once; see `files`."""
        present = self.present(day, hour)
        if len(present) == 1:
            return present  # no other file can replace it: nothing to look up
        gone = {name for file in present if file.merged for name in replaced_by(file.path)}
        return [file for file in present if file.path.name not in gone]

    def present(self, day: date, hour: int) -> list[LakeFile]:
        """Return every file of an hour by name, including files that a merged one replaces."""
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
        """Hold the lock for adding, moving or removing files of events; wait until it is free.

        It is held for one step at a time. A compactor holds another lock for as long as it runs,
        which makes it the only one.
        """
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.root / LOCK).open("a") as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX)
            yield

    def whole_span(self) -> tuple[date, date] | None:
        """Return the first and the last day with events; None for an empty lake."""
        days = self.days()
        return (days[0], days[-1]) if days else None


def replaced_by(path: Path) -> list[str]:
    """Return the names of the files that a merged file replaces.

    Raises:
        LakeError: the merged file cannot be read.
    """
    from pyarrow import ArrowException, parquet  # not needed for folders alone

    try:
        told = parquet.read_metadata(path).metadata or {}
        return [str(name) for name in json.loads(told[REPLACES_KEY])]
    except (OSError, ArrowException, KeyError, ValueError) as error:
        why = f"cannot be read as a merged file ({error})"
        raise LakeError(path, why, broken=is_broken(error)) from None


def _named(folder: Path, pattern: re.Pattern[str]) -> list[str]:
    """Return what the pattern's group matches in the names of a folder, in order."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(found[1] for name in names if (found := pattern.fullmatch(name)))
