"""Row about what open pages of the console cost the clients that send messages."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from tests.bench.bench import Bench, as_json, described, faults, rate_ratio, remarks
from tests.bench.dashboards import SIGN_IN, Dashboards
from tests.bench.figures import Figure, Row
from tests.bench.measure import Sample, side_by_side, throughput
from tests.bench.rows.throughput import FIRST_ROW
from tests.bench.targets import Target

PAGES = 10


def dashboards(bench: Bench) -> Row:
    """Compare the first row with ten overviews open and without."""
    pages = Dashboards()
    prepared = replace(
        bench,
        options=replace(
            bench.options,
            prepare=(*bench.options.prepare, ("shell", "-v", "0", "-c", SIGN_IN)),
        ),
    )
    with (
        prepared.relay(FIRST_ROW.twins, pages.environment) as relay,
        bench.generators(2) as generators,
    ):
        watched = replace(relay, name="watched")
        alone = replace(relay, name="alone")

        def once(target: Target) -> Sample:
            opened = pages.open(relay, PAGES) if target is watched else contextlib.nullcontext()
            with opened:
                return throughput(target, generators, FIRST_ROW, bench.seconds)

        mine, theirs = side_by_side([watched, alone], bench.runs, once, bench.most_rounds)
    figures = [
        Figure("rate", rate_ratio(mine, theirs), "of that without", must=0.95),
        Figure("frames that came to the pages", pages.frames),
        Figure("parts of pages asked for again", pages.answers),
        Figure("pages that failed", len(pages.faults), must=0, lower_is_better=True),
        *described("watched", mine),
        *described("alone", theirs),
        faults([*mine, *theirs]),
    ]
    title = f"the first row with {PAGES} overviews of the console open, beside the same without"
    samples = as_json(watched=mine, alone=theirs)
    return Row("dashboards", title, figures, samples, [*remarks(mine, theirs), *pages.faults[:3]])
