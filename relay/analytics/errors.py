"""What can go wrong in analytics, told to an operator.

AnalyticsError         one line that says what is wrong and what to do
    MissingPackages    Spark, Arrow or DuckDB are not installed
    NoEngine           Spark does not start
    Busy               somebody else is doing it: later it works
    AnotherLake        the results in the database are of another lake (`relay.analytics.origin`)
    Interrupted        by Ctrl-C or SIGTERM
"""

from __future__ import annotations


class AnalyticsError(Exception):
    """Its text is for an operator; a command ends with it and exit code 1."""


class NoEngine(AnalyticsError):
    """Spark does not start: no job can be run."""


class Busy(AnalyticsError):
    """Another process is doing it; nothing is wrong."""


class Interrupted(AnalyticsError):
    """Somebody ended it: nothing further is begun."""


class MissingPackages(AnalyticsError):
    """A library of the analytics extra is not there."""

    def __init__(self, library: str) -> None:
        super().__init__(
            f"{library} is not installed: make setup-analytics "
            "(or pip install 'rmb-relay-platform[analytics]')"
        )
