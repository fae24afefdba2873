"""`rmb_analytics takeover`: make this lake the lake of the results in the database."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any, Final

from django.core.management.base import OutputWrapper

from relay.analytics.errors import AnalyticsError
from relay.analytics.lake import Lake

SUMMARY: Final = "let this lake replace the lake of the results in the database"

DESCRIPTION: Final = """\
Let the lake in analytics.dir replace the lake whose results are in the database.

A database contains the results of one lake: the first one from which results were computed. Jobs
refuse other lakes, because two lakes would overwrite each other's results. If the lake is lost and
you start a new one, run this command; from then on, jobs refuse the former lake. For days without
events in the new lake, the former results stay; for all other days, new results replace them.

A lake that was moved, or copied with its file lake.id, is still the same lake and does not need
this command. All hosts of a relay must share analytics.dir.
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
        out.write(f"the results were already from {lake.root}")
    else:
        out.write(f"results are from {lake.root} from now on, no longer from {before}")
