"""Errors of the analytics, reported to an operator.

AnalyticsError         one line that says what is wrong and what to do
    MissingPackages    Spark, Arrow or DuckDB are not installed
    NoEngine           Spark does not start
    Busy               another process does the same; a later attempt works
    AnotherLake        the results in the database are of another lake (`relay.analytics.origin`)
    Interrupted        by Ctrl-C or SIGTERM
"""

from __future__ import annotations


class AnalyticsError(Exception):
    """Error whose text is for an operator; a command prints it and ends with exit code 1."""


class NoEngine(AnalyticsError):
    """Spark does not start, so no job can run."""


class Busy(AnalyticsError):
    """Another process does the same work; this is not a failure."""


class Interrupted(AnalyticsError):
    """The operator stopped the command; no further work is started."""


class MissingPackages(AnalyticsError):
    """A library of the analytics extra is not installed."""

    def __init__(self, library: str) -> None:
        super().__init__(
            f"{library} is not installed: make setup-analytics "
            "(or pip install 'rmb-relay-platform[analytics]')"
        )
