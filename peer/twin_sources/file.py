"""Source of twins in a CSV file, as `rmb-manage rmb_twin export` of a relay writes it.

The file is read completely, and again when it has changed. If a new version is invalid, the error
is logged and the former version stays in use: the file may be incomplete while it is written.
"""

from __future__ import annotations

import csv
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from peer.errors import TwinsAwayError
from peer.twin_sources.fields import parse_twin
from peer.twins import Twin

logger = logging.getLogger(__name__)

HEADER: Final = ("id", "account", "pk", "relays")
RELAY_SEPARATOR: Final = "_"

MAX_FILE_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of the file, in bytes: about 400,000 twins. All of them are in memory; use a relay's
registry for more."""

LOOK_S: Final = 1.0
"""Minimum interval between checks whether the file has changed, in seconds."""

_Version: TypeAlias = tuple[int, int, int]


class FileTwins:
    """A `TwinSource` that reads one file.

    Args:
        path: path of a CSV file with the header `id,account,pk,relays`.
        clock: monotonic clock, in seconds.

    Raises:
        TwinsAwayError: the file cannot be read, or is invalid.
    """

    def __init__(
        self, path: str | os.PathLike[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = Path(path)
        self._clock = clock
        self._looked_at = clock()
        self._version = self._look()
        self._read()

    async def by_id(self, twin_id: int) -> Twin | None:
        """Return the twin with an id, None if it does not exist."""
        self._refresh()
        return self._by_id.get(twin_id)

    async def by_account(self, account: bytes) -> Twin | None:
        """Return the twin of an account, None if the account has none."""
        self._refresh()
        return self._by_account.get(account)

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""

    def _refresh(self) -> None:
        now = self._clock()
        if now < self._looked_at + LOOK_S:
            return
        self._looked_at = now
        try:
            version = self._look()
            if version != self._version:
                self._version = version
                self._read()
        except TwinsAwayError as error:
            logger.warning("using the twins that were read before: %s", error)

    def _look(self) -> _Version:
        try:
            found = self._path.stat()
        except OSError as error:
            raise TwinsAwayError(f"twins file {self._path}: {error.strerror}") from None
        if found.st_size > MAX_FILE_BYTES:
            raise TwinsAwayError(f"twins file {self._path}: more than {MAX_FILE_BYTES} bytes")
        return found.st_ino, found.st_size, found.st_mtime_ns

    def _read(self) -> None:
        by_id: dict[int, Twin] = {}
        try:
            with self._path.open(encoding="utf-8", newline="") as file:
                rows = csv.reader(file, strict=True)
                if tuple(each.strip().lower() for each in next(rows, [])) != HEADER:
                    raise ValueError(f"the header must be {','.join(HEADER)}")
                for row in rows:
                    if row:
                        twin = _parse(row, rows.line_num)
                        by_id[twin.id] = twin
        except OSError as error:
            raise TwinsAwayError(f"twins file {self._path}: {error.strerror}") from None
        except (ValueError, csv.Error) as error:  # a UnicodeDecodeError is a ValueError
            raise TwinsAwayError(f"twins file {self._path}: {error}") from None
        self._by_id = by_id
        self._by_account = {twin.account: twin for twin in by_id.values()}


def _parse(row: list[str], line: int) -> Twin:
    if len(row) != len(HEADER):
        raise ValueError(f"line {line}: {len(row)} fields, not {len(HEADER)}")
    twin, account, pk, relays = (each.strip() for each in row)
    try:
        return parse_twin(twin, account, pk, relays.split(RELAY_SEPARATOR))
    except ValueError as error:
        raise ValueError(f"line {line}: {error}") from None
