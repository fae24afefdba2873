"""`rmb_analytics takeover`: the results in the database are of this lake from now on."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any, Final

from django.core.management.base import OutputWrapper

from relay.analytics.errors import AnalyticsError
from relay.analytics.lake import Lake

SUMMARY: Final = "compute into this database from this lake, though it was another one before"

DESCRIPTION: Final = """\
Let the present lake (analytics.dir) replace the one whose results are in the database.

A database holds the results of one lake, the first that results were computed from. Jobs on other
lakes are refused, because two lakes would replace each other's results. When a lake is lost and
another one takes its place, run this command; from then on the former lake is refused. Former
results stay for days without events in this lake and are replaced for all others.

A lake that was moved, or copied with its file lake.id, is still the same lake and does not need
this. All hosts of a relay must share analytics.dir: two lakes cannot take turns.
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON document")


def handle(out: OutputWrapper, options: dict[str, Any]) -> None:
    from relay.analytics import origin

    lake = Lake.configured()
    try:
        before = origin.take_over(lake)
    except OSError as error:
        raise AnalyticsError(f"{error.filename or lake.root}: {error.strerror or error}") from None
    if options["json"]:
        was = str(before) if before is not None else None
        out.write(json.dumps({"lake": str(lake.root), "before": was}, indent=2))
    elif before is None:
        out.write(f"the results are of {lake.root}, and of no other lake before")
    else:
        out.write(f"the results are of {lake.root} from now on; before of {before}")
