"""Which lake the results in the database are of.

All hosts share one database, but each host may have its own lake (`analytics.dir`). Two lakes that
compute into one database would replace each other's results with results from half of the events.
So a lake has an id in a file, and the first lake that computes results is recorded in the database.
Other lakes are refused until an operator runs `takeover`. A lake that is moved, or copied as a
whole, keeps its id.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import socket
from typing import Final

from django.db import transaction
from django.utils import timezone

from relay.analytics.errors import AnalyticsError
from relay.analytics.models import Origin
from relay.analytics.places import Places
from relay.ops import whole_file

FILE: Final = "lake.id"

ONLY: Final = 1
"""Primary key of the only row."""

_ID: Final = re.compile(r"[0-9a-f]{32}")


class AnotherLake(AnalyticsError):
    """The results in the database are of another lake."""

    def __init__(self, lake: Places, origin: Origin) -> None:
        super().__init__(
            f"the results in the database are from another lake, {origin}, not from {lake.root}; "
            "let all hosts share one analytics.dir, or, if this lake replaces that one, run "
            "manage.py rmb_analytics takeover"
        )


def another(lake: Places) -> Origin | None:
    """Return the lake of the results if it is another one; None also if there are no results.

    Raises:
        AnalyticsError: the id of this lake cannot be read.
    """
    origin = Origin.objects.first()
    return None if origin is None or origin.lake == _read(lake) else origin


def assert_not_another(lake: Places) -> None:
    """Check that the results are not of another lake.

    Raises:
        AnotherLake: they are.
    """
    if (origin := another(lake)) is not None:
        raise AnotherLake(lake, origin)


def claim(lake: Places) -> None:
    """Record this lake as the lake of the results, unless another one is recorded.

    Raises:
        AnotherLake: the results are of another lake.
        OSError: the id cannot be written.
    """
    told = _told(lake)
    origin, _ = Origin.objects.get_or_create(pk=ONLY, defaults=told)
    if origin.lake != told["lake"]:
        raise AnotherLake(lake, origin)


def take_over(lake: Places) -> Origin | None:
    """Record this lake as the lake of the results, in place of any other.

    Returns:
        The lake that was recorded before; None for the first lake, or if it is this one.

    Raises:
        OSError: the id cannot be written.
    """
    told = _told(lake)
    with transaction.atomic():
        before = Origin.objects.select_for_update().first()
        if before is not None and before.lake == told["lake"]:
            return None
        Origin.objects.update_or_create(pk=ONLY, defaults=told)
    return before


def _told(lake: Places) -> dict[str, object]:
    """Return the fields that are recorded for a lake."""
    return {
        "lake": _read(lake) or _write(lake),
        "folder": str(lake.root),
        "host": socket.gethostname(),
        "since": timezone.now(),
    }


def _read(lake: Places) -> str:
    path = lake.root / FILE
    try:
        found = path.read_text().strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise AnalyticsError(f"{path} cannot be read: {error}") from None
    if not _ID.fullmatch(found):
        raise AnalyticsError(
            f"{path} has no id of a lake in it: remove it, then manage.py rmb_analytics takeover"
        )
    return found


def _write(lake: Places) -> str:
    """Write a new id for the lake unless it has one, and return its id.

    If several processes do so at the same time, all of them return the same id.
    """
    lake.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (
        contextlib.suppress(FileExistsError),
        whole_file.written_text(lake.root / FILE, new=True) as file,
    ):
        file.write(f"{secrets.token_hex(16)}\n")
    return _read(lake)
