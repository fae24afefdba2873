"""Results about the lattice; like those of `relay.analytics.models.results`."""

from __future__ import annotations

from django.db import models

from relay.analytics.models.results import HOUR_HELP, Result

MAX_TEXT_CHARS = 128
"""Maximum length of a key, a name or an operation, as processes of the lattice record them."""

KIND_HELP = "lattice_out: calls of twins; lattice_in: calls of actors; lattice_seen: the monitor."


class LatticeHour(Result):
    """Invocations of an operation of the lattice in an hour, and how they ended."""

    hour = models.DateTimeField(help_text=HOUR_HELP)
    kind = models.CharField(max_length=16, help_text=KIND_HELP)
    link = models.CharField(
        max_length=MAX_TEXT_CHARS, blank=True, help_text="Name of the link; empty for actors."
    )
    contract = models.CharField(
        max_length=MAX_TEXT_CHARS, blank=True, help_text="Contract of the provider."
    )
    operation = models.CharField(
        max_length=MAX_TEXT_CHARS,
        blank=True,
        help_text="Operation of the target; empty for refused calls and flagged invocations.",
    )
    calls = models.BigIntegerField(help_text="Invocations.")
    ok = models.BigIntegerField(help_text="Invocations that succeeded, or are not flagged.")
    refused = models.BigIntegerField(help_text="Calls that the bridge refused.")
    timed_out = models.BigIntegerField(help_text="Calls without an answer in time.")
    failed = models.BigIntegerField(help_text="Calls that failed for another reason.")
    flagged = models.BigIntegerField(help_text="Invocations that the monitor flagged.")
    bytes = models.BigIntegerField(help_text="Bytes of the payloads.")
    answer_bytes = models.BigIntegerField(help_text="Bytes of the results.")
    p50_us = models.BigIntegerField(null=True, help_text="Median duration of a call, microseconds.")
    p95_us = models.BigIntegerField(null=True, help_text="95th percentile of the durations.")
    max_us = models.BigIntegerField(null=True, help_text="Longest duration.")

    class Meta(Result.Meta):
        verbose_name_plural = "lattice hours"
        indexes = (models.Index(fields=("period",), name="analytics_lattice_calls"),)

    def __str__(self) -> str:
        return f"{self.operation} in {self.hour:%Y-%m-%d %H}"


class LatticeSlow(Result):
    """One of the hundred operations of the lattice that failed most often or were slow on a day."""

    place = models.BigIntegerField(help_text="Rank; 1 is the operation with the most failures.")
    kind = models.CharField(max_length=16, help_text=KIND_HELP)
    target = models.CharField(
        max_length=MAX_TEXT_CHARS, blank=True, help_text="Public key of the actor or provider."
    )
    link = models.CharField(
        max_length=MAX_TEXT_CHARS, blank=True, help_text="Name of the link; empty for actors."
    )
    operation = models.CharField(
        max_length=MAX_TEXT_CHARS, blank=True, help_text="Operation of the target."
    )
    calls = models.BigIntegerField(help_text="Calls that the bridge passed on.")
    failed = models.BigIntegerField(help_text="Calls that failed, timed out or were not delivered.")
    reason = models.CharField(
        max_length=MAX_TEXT_CHARS, blank=True, help_text="Most frequent reason of the failures."
    )
    p50_us = models.BigIntegerField(null=True, help_text="Median duration of a call, microseconds.")
    p95_us = models.BigIntegerField(null=True, help_text="95th percentile of the durations.")
    max_us = models.BigIntegerField(null=True, help_text="Longest duration.")

    class Meta(Result.Meta):
        verbose_name_plural = "lattice slow operations"
        indexes = (models.Index(fields=("period",), name="analytics_lattice_slow"),)

    def __str__(self) -> str:
        return f"{self.place} on {self.period}: {self.operation}"


class LatticeForged(Result):
    """Invocations of an origin that the monitor flagged on a day, for one reason."""

    place = models.BigIntegerField(help_text="Rank; 1 is the row with the most invocations.")
    origin = models.CharField(
        max_length=MAX_TEXT_CHARS, blank=True, help_text="Public key of the caller, as claimed."
    )
    host_id = models.CharField(
        max_length=MAX_TEXT_CHARS, blank=True, help_text="Host that the invocations name."
    )
    reason = models.CharField(
        max_length=MAX_TEXT_CHARS, help_text="What is wrong, such as replay or signature."
    )
    invocations = models.BigIntegerField(help_text="Flagged invocations.")
    targets = models.BigIntegerField(help_text="Different actors and providers they called.")
    bytes = models.BigIntegerField(help_text="Bytes of the messages.")
    first_us = models.BigIntegerField(help_text="First of them, in microseconds since 1970.")
    last_us = models.BigIntegerField(help_text="Last of them, in microseconds since 1970.")

    class Meta(Result.Meta):
        verbose_name_plural = "lattice forgeries"
        indexes = (models.Index(fields=("period",), name="analytics_forged"),)

    def __str__(self) -> str:
        return f"{self.reason} of {self.origin} on {self.period}"
