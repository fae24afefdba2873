"""`rmb_analytics report --month YYYY-MM`: write the report of a month as HTML and PDF."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any, Final

from django.core.management.base import OutputWrapper

from relay.access.errors import ServiceError
from relay.analytics.errors import AnalyticsError
from relay.dashboard.report import FORMS
from relay.ops import whole_file

SUMMARY: Final = "write the report of a month as HTML and PDF"

DESCRIPTION: Final = """\
Write the results of a month for people who do not use the console: traffic between relays, error
budgets, sessions, delivery, anomalies, usage. Each file is self-contained and lists the days that
are not computed.

  rmb_analytics report --month 2026-11                  report-2026-11.html and .pdf here
  rmb_analytics report --month 2026-11 --form html --output /var/www/reports
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--month", required=True, metavar="YYYY-MM", help="month (UTC)")
    parser.add_argument("--form", choices=FORMS, help="only this format (default: both)")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="folder for the files (default: here)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document")


def handle(out: OutputWrapper, options: dict[str, Any]) -> None:
    from relay.dashboard.report import content, html, pdf

    writers = {"html": html.write, "pdf": pdf.write}
    try:
        report = content.gather(options["month"])
    except ServiceError as error:
        raise AnalyticsError(error.detail) from None
    folder: Path = options["output"]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise AnalyticsError(f"{folder} is a file; --output must be a folder") from None
    except OSError as error:
        raise AnalyticsError(f"the folder {folder} cannot be created: {error.strerror}") from None
    files = []
    for form in [options["form"]] if options["form"] else FORMS:
        path = folder / f"report-{options['month']}.{form}"
        try:
            with whole_file.written(path) as file:
                file.write(writers[form](report))
        except OSError as error:
            raise AnalyticsError(f"{path} cannot be written: {error.strerror}") from None
        files.append(str(path))
    if options["json"]:
        out.write(json.dumps({"files": files, "missing": report.missing}, indent=2))
        return
    for each in files:
        out.write(each)
    for each in report.missing:
        out.write(f"incomplete: {each}")
