"""`manage.py rmb_analytics run|backfill|status|...`: what happened, over months."""

from __future__ import annotations

import importlib
import os
import pkgutil
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from typing import Any, Final

from django.core.management.base import CommandError

from relay.analytics import commands
from relay.analytics.errors import AnalyticsError, Busy, MissingPackages
from relay.analytics.spark import signals
from relay.ops.command import RelayCommand

DESCRIPTION = """\
Compute results from months of recorded events, with Spark on this machine or on a cluster.

The recorder (analytics.record) writes an event for everything that happens to a message or a
session. Events are kept as Parquet files by day and hour (UTC). Jobs compute tables of results from
them, day by day. A ledger records which events each result was computed from: when you run a job
again, it computes only days whose events have changed.

  rmb_analytics generate --days 3 --out ...      generate a history, to try the jobs
  rmb_analytics run all --from 2026-11-01        run all jobs, from that day to yesterday
  rmb_analytics run rollup --from 7d --master spark://host:7077
  rmb_analytics status                           list computed, missing and outdated days
  rmb_analytics backfill                         compute all missing and outdated days

The relay's schedule runs all jobs each day at `analytics.daily_at`.

exit code: 0 done, 1 failed or interrupted, 2 usage, 75 another process does the same; retry later
"""

LIBRARIES: Final = ("duckdb", "numpy", "pandas", "py4j", "pyarrow", "pyspark", "pytz", "reportlab")


class Command(RelayCommand):
    """Command whose verbs are the modules of `relay.analytics.commands`."""

    help = "Analytics of recorded events: Spark jobs, results, queries."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.description = DESCRIPTION
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        for found in pkgutil.iter_modules(commands.__path__):
            module = importlib.import_module(f"{commands.__name__}.{found.name}")
            verb = verbs.add_parser(
                found.name,
                help=module.SUMMARY,
                description=getattr(module, "DESCRIPTION", module.SUMMARY),
                formatter_class=RawDescriptionHelpFormatter,
            )
            module.add_arguments(verb)

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        module = importlib.import_module(f"{commands.__name__}.{verb}")
        try:
            with signals.interrupting():
                module.handle(self.stdout, options)
        except KeyboardInterrupt:
            raise CommandError("interrupted") from None
        except ImportError as error:
            library = (error.name or "").partition(".")[0]
            if library not in LIBRARIES:
                raise
            raise CommandError(str(MissingPackages(library))) from None
        except Busy as error:
            raise CommandError(str(error), returncode=os.EX_TEMPFAIL) from None
        except AnalyticsError as error:
            raise CommandError(str(error)) from None
