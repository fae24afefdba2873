"""Tiles of the overview: a live number, its last hour, and comparisons with earlier values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from django.utils.safestring import SafeString

from relay.dashboard.changes import HOUR_AGO, WEEK_AGO, Better, Change, change
from relay.dashboard.figures import Kind
from relay.dashboard.kinds import kind_of
from relay.dashboard.sparks import spark
from relay.history import reading
from relay.history.reading import Compared
from relay.history.series import BY_KEY

_UP, _DOWN, _NEITHER = Better


class Tile(NamedTuple):
    """Definition of a tile.

    Attributes:
        parts: (series, label) of its numbers; the last one has the sparkline and the comparisons.
        better: direction in which it improves.
        chart: name of the page's chart with details.
    """

    title: str
    parts: tuple[tuple[str, str], ...]
    better: Better
    chart: str


TILES: Final = (
    Tile("Messages in", (("messages_in", ""),), _NEITHER, "messages"),
    Tile("Messages out", (("messages_out", ""),), _NEITHER, "messages"),
    Tile("Bytes in", (("bytes_in", ""),), _NEITHER, "bytes"),
    Tile("Bytes out", (("bytes_out", ""),), _NEITHER, "bytes"),
    Tile("Sessions", (("sessions", ""),), _NEITHER, "sessions"),
    Tile("Queued", (("waiting", ""),), _DOWN, "waiting"),
    Tile("Commit latency", (("commit_p50", "p50"), ("commit_p99", "p99")), _DOWN, "commit"),
    Tile("Delivery latency", (("delivery_p50", "p50"), ("delivery_p99", "p99")), _DOWN, "delivery"),
    Tile("Federation success", (("federation_success", ""),), _UP, "success"),
    Tile("Drops", (("drops", ""),), _DOWN, "drops"),
    Tile("Limit hits", (("limit_hits", ""),), _DOWN, "limits"),
)
CHAIN: Final = Tile("Chain lag", (("chain_lag", "blocks"),), _DOWN, "chain")
OUTBOX: Final = Tile("Outbox", (("outbox", ""),), _DOWN, "waiting")
"""Replaces `CHAIN` if the relay follows no chain."""


class Number(NamedTuple):
    """One number of a tile, updated each second under the key of its series."""

    series: str
    label: str
    kind: Kind
    value: float | None


class Drawn(NamedTuple):
    """A tile with its current contents."""

    tile: Tile
    hint: str
    numbers: Sequence[Number]
    spark: SafeString
    changes: Sequence[Change]


def read(follows_chain: bool) -> list[Drawn]:
    """Return all tiles.

    Raises:
        Away: a store does not answer.
    """
    shown = [*TILES, CHAIN if follows_chain else OUTBOX]
    drawn = [each.parts[-1][0] for each in shown]
    latest, compared = reading.latest().values, reading.compare(drawn)
    lines = reading.sparklines(drawn)
    return [_draw(tile, latest, compared, lines) for tile in shown]


def _draw(
    tile: Tile,
    latest: Mapping[str, float | None],
    compared: Mapping[str, Compared],
    lines: Mapping[str, Any],
) -> Drawn:
    key = tile.parts[-1][0]
    kind, past = kind_of(key), compared[key]
    return Drawn(
        tile,
        BY_KEY[key].help,
        [Number(each, label, kind_of(each), latest[each]) for each, label in tile.parts],
        spark(lines[key]),
        [
            change(HOUR_AGO, past.hour_ago, past.now, kind, tile.better),
            change(WEEK_AGO, past.week_ago, past.now, kind, tile.better),
        ],
    )
