"""`rmb_analytics status`: what is computed, and the latest runs."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any, Final

from django.core.management.base import OutputWrapper

from relay.analytics.models import Run

SUMMARY: Final = "what is computed, what is missing or outdated, the latest runs"
RUNS: Final = 10


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON document")


def handle(out: OutputWrapper, options: dict[str, Any]) -> None:
    runs = [
        {
            "run": run.name,
            "job": run.job,
            "state": run.state,
            "periods": run.periods,
            "error": run.error,
        }
        for run in Run.objects.all()[:RUNS]
    ]
    if options["json"]:
        out.write(json.dumps({"runs": runs}, indent=2))
        return
    for each in runs:
        out.write("{run}  {job:<12} {state:<10} {periods:>4} periods  {error}".format(**each))
    if not runs:
        out.write("no job has run yet")
