"""Results of the jobs as pages, REST and reports show them: what is small enough for the database.

A model for each table that the catalogue (`relay.analytics.spark.catalogue`) wants here; the fields
are the columns of its job's SCHEMA, in their order, and mean what the job's docstring says. Rows
are written by publishing only, all of a period at once: nothing changes one.

Times are whole numbers as the jobs count them: an `hour` in hours since 1970 (UTC), `_us` in
microseconds.
"""

from __future__ import annotations

from datetime import UTC, datetime

from django.db import models

MAX_NAME_CHARS = 255
"""Of a domain or a session id."""

HOUR_S = 3600


class Result(models.Model):
    """What all have in common: the day (YYYY-MM-DD) or month (YYYY-MM) a row belongs to."""

    period = models.CharField(max_length=10, help_text="The day, YYYY-MM-DD in UTC.")

    class Meta:
        abstract = True
        default_permissions = ()


class HourResult(Result):
    """Of one hour."""

    hour = models.BigIntegerField(help_text="Hours since 1970, UTC.")

    class Meta(Result.Meta):
        abstract = True

    @property
    def at(self) -> datetime:
        """When the hour begins."""
        return datetime.fromtimestamp(self.hour * HOUR_S, UTC)


class RelayPairHour(HourResult):
    """Messages that one relay sent to another in an hour."""

    relay = models.CharField(max_length=MAX_NAME_CHARS, help_text="The relay that sent.")
    remote = models.CharField(max_length=MAX_NAME_CHARS, help_text="The relay they were for.")
    n = models.BigIntegerField(help_text="Tries to hand a message over.")
    bytes = models.BigIntegerField(help_text="Of their envelopes.")
    p50 = models.BigIntegerField(null=True, help_text="Median of the round trips, microseconds.")
    p95 = models.BigIntegerField(null=True, help_text="95th percentile of the round trips.")
    p99 = models.BigIntegerField(null=True, help_text="99th percentile of the round trips.")
    failed = models.BigIntegerField(help_text="Tries that failed.")

    class Meta(Result.Meta):
        indexes = (models.Index(fields=("period",), name="analytics_pair_hour"),)

    def __str__(self) -> str:
        return f"{self.relay} to {self.remote} in {self.at:%Y-%m-%d %H}"


class TrafficMatrix(Result):
    """Messages by the relay that took them and the relay that delivered them."""

    origin = models.CharField(max_length=MAX_NAME_CHARS, help_text="The relay that accepted them.")
    final = models.CharField(max_length=MAX_NAME_CHARS, help_text="The relay that delivered them.")
    n = models.BigIntegerField(help_text="Messages.")
    bytes = models.BigIntegerField(help_text="Of their envelopes.")

    class Meta(Result.Meta):
        indexes = (models.Index(fields=("period",), name="analytics_matrix"),)
        permissions = (("view_analytics", "Can see analytics"),)

    def __str__(self) -> str:
        return f"{self.origin} to {self.final} on {self.period}"


class Storm(Result):
    """One session that opened again and again, with no pause longer than ten minutes."""

    twin = models.BigIntegerField(help_text="Whose session it is.")
    session = models.CharField(max_length=MAX_NAME_CHARS, blank=True, help_text="Its id.")
    first_us = models.BigIntegerField(help_text="The first opening, microseconds since 1970.")
    last_us = models.BigIntegerField(help_text="The last opening.")
    opens = models.BigIntegerField(help_text="Openings, five at least.")

    class Meta(Result.Meta):
        indexes = (models.Index(fields=("period",), name="analytics_storm"),)

    def __str__(self) -> str:
        return f"{self.twin}:{self.session} on {self.period}"


class Concurrency(HourResult):
    """Most sessions that were open at once on a relay in an hour."""

    relay = models.CharField(max_length=MAX_NAME_CHARS)
    peak = models.BigIntegerField(help_text="Most sessions at once.")

    class Meta(Result.Meta):
        indexes = (models.Index(fields=("period",), name="analytics_concurrency"),)

    def __str__(self) -> str:
        return f"{self.relay} in {self.at:%Y-%m-%d %H}"


class FederationSlo(HourResult):
    """How another relay answered in an hour."""

    remote = models.CharField(max_length=MAX_NAME_CHARS, help_text="The other relay.")
    attempts = models.BigIntegerField(help_text="Tries to hand a message over.")
    ok = models.BigIntegerField(help_text="Tries that succeeded.")
    permille = models.BigIntegerField(help_text="Tries that succeeded, of a thousand.")
    p95 = models.BigIntegerField(
        null=True, help_text="95th percentile of the round trips, microseconds."
    )

    class Meta(Result.Meta):
        indexes = (models.Index(fields=("period",), name="analytics_slo"),)

    def __str__(self) -> str:
        return f"{self.remote} in {self.at:%Y-%m-%d %H}"


class FederationRank(Result):
    """Order of other relays by their failures of a day; the latest weigh the most."""

    remote = models.CharField(max_length=MAX_NAME_CHARS, help_text="The other relay.")
    rank = models.BigIntegerField(
        help_text="Sum of 2^(23 - age in hours) over its failures: less is better."
    )

    class Meta(Result.Meta):
        indexes = (models.Index(fields=("period",), name="analytics_rank"),)

    def __str__(self) -> str:
        return f"{self.remote} on {self.period}"


class Anomaly(HourResult):
    """An hour in which a twin sent far more or far less than in the week before."""

    twin = models.BigIntegerField()
    x = models.BigIntegerField(help_text="Messages it sent in the hour.")
    med = models.BigIntegerField(help_text="Median of the 168 hours before.")
    mad = models.BigIntegerField(help_text="Median distance of those hours from their median.")

    class Meta(Result.Meta):
        verbose_name_plural = "anomalies"
        indexes = (models.Index(fields=("period",), name="analytics_anomaly"),)

    def __str__(self) -> str:
        return f"{self.twin} in {self.at:%Y-%m-%d %H}"


class TopTwin(Result):
    """One of the hundred twins that sent the most bytes on a day."""

    place = models.BigIntegerField(help_text="1 is the twin that sent the most.")
    twin = models.BigIntegerField()
    bytes = models.BigIntegerField(help_text="Of the messages it sent.")
    share_ppm = models.BigIntegerField(help_text="Of all bytes of the day, in millionths.")

    class Meta(Result.Meta):
        indexes = (models.Index(fields=("period",), name="analytics_top"),)

    def __str__(self) -> str:
        return f"{self.place} on {self.period}: {self.twin}"


class HotPair(Result):
    """One of the hundred pairs of twins with the most bytes from one to the other on a day."""

    place = models.BigIntegerField(help_text="1 is the pair with the most.")
    src = models.BigIntegerField(help_text="The twin that sent.")
    dst = models.BigIntegerField(help_text="The twin it sent to.")
    bytes = models.BigIntegerField(help_text="Of the messages from one to the other.")
    share_ppm = models.BigIntegerField(help_text="Of all bytes of the day, in millionths.")

    class Meta(Result.Meta):
        indexes = (models.Index(fields=("period",), name="analytics_pair"),)

    def __str__(self) -> str:
        return f"{self.place} on {self.period}: {self.src} to {self.dst}"


class Usage(Result):
    """What one twin used in a month."""

    twin = models.BigIntegerField()
    accepted = models.BigIntegerField(help_text="Messages of it that were taken.")
    accepted_bytes = models.BigIntegerField(help_text="Of these.")
    delivered = models.BigIntegerField(help_text="Messages of it that were delivered.")
    delivered_bytes = models.BigIntegerField(help_text="Of these.")
    dropped = models.BigIntegerField(help_text="Messages of it that were dropped.")
    session_s = models.BigIntegerField(help_text="Time its sessions were open in the month.")

    class Meta(Result.Meta):
        verbose_name_plural = "usage"
        indexes = (models.Index(fields=("period", "twin"), name="analytics_usage"),)

    def __str__(self) -> str:
        return f"{self.twin} in {self.period}"


class DeliveryAudit(Result):
    """What became of the messages that a relay took on a day."""

    relay = models.CharField(max_length=MAX_NAME_CHARS)
    uids = models.BigIntegerField(help_text="Messages.")
    accepted = models.BigIntegerField()
    delivered_once = models.BigIntegerField()
    duplicated = models.BigIntegerField(help_text="Messages that were delivered more than once.")
    extra_deliveries = models.BigIntegerField(help_text="Deliveries beyond the first.")
    late = models.BigIntegerField(help_text="First delivered after more than a minute.")
    dropped = models.BigIntegerField()
    expired = models.BigIntegerField()
    conflicting = models.BigIntegerField(help_text="Both delivered and dropped.")
    in_flight = models.BigIntegerField(help_text="Nothing yet, and younger than an hour.")
    unaccounted = models.BigIntegerField(help_text="Nothing, and older: must be 0.")

    class Meta(Result.Meta):
        indexes = (models.Index(fields=("period",), name="analytics_audit"),)

    def __str__(self) -> str:
        return f"{self.relay} on {self.period}"
