"""Results of the jobs for pages, REST and reports: those that are small enough for the database.

There is a model for each table that the catalogue (`relay.analytics.spark.catalogue`) keeps in the
database. Its fields are the columns of the job's SCHEMA, in their order, with the meaning that the
job's docstring gives. Only publishing writes rows, all rows of a period at once; rows are never
changed.

Names end in their unit: `_us` are microseconds; for a time, microseconds since 1970. All days and
hours are UTC.
"""

from __future__ import annotations

from django.db import models

from relay.analytics.spark.protocols import RMB

MAX_NAME_CHARS = 255
"""Maximum length of a domain."""

MAX_SESSION_CHARS = 1024
"""Maximum length of a session id, the largest that `relay.max_sid_bytes` allows."""

MAX_KEY_CHARS = 43
"""Length of a public key of 32 bytes in base64url without padding."""


class Result(models.Model):
    """Base of all results, with the day (YYYY-MM-DD) or month (YYYY-MM) of a row."""

    period = models.CharField(max_length=10, help_text="The day, YYYY-MM-DD in UTC.")

    class Meta:
        abstract = True
        default_permissions = ()


HOUR_HELP = "Start of the hour."
PROTOCOL_HELP = "Protocol: rmb or sbd."


class RelayPairHour(Result):
    """Messages that a relay sent to a partner relay in an hour."""

    hour = models.DateTimeField(help_text=HOUR_HELP)
    relay = models.CharField(max_length=MAX_NAME_CHARS, help_text="The relay that sent.")
    remote = models.CharField(
        max_length=MAX_NAME_CHARS, help_text="The partner relay that they were sent to."
    )
    attempts = models.BigIntegerField(help_text="Attempts to send a message.")
    bytes = models.BigIntegerField(help_text="Bytes of their envelopes.")
    p50_us = models.BigIntegerField(null=True, help_text="Median of the round trips, microseconds.")
    p95_us = models.BigIntegerField(null=True, help_text="95th percentile of the round trips.")
    p99_us = models.BigIntegerField(null=True, help_text="99th percentile of the round trips.")
    failed = models.BigIntegerField(help_text="Failed attempts.")

    class Meta(Result.Meta):
        indexes = (models.Index(fields=("period",), name="analytics_pair_hour"),)

    def __str__(self) -> str:
        return f"{self.relay} to {self.remote} in {self.hour:%Y-%m-%d %H}"


class ProtocolHour(Result):
    """Sessions and messages of a relay in an hour, for one protocol."""

    hour = models.DateTimeField(help_text=HOUR_HELP)
    relay = models.CharField(max_length=MAX_NAME_CHARS, help_text="The relay.")
    protocol = models.CharField(max_length=8, help_text=PROTOCOL_HELP)
    opened = models.BigIntegerField(help_text="Sessions that began.")
    closed = models.BigIntegerField(help_text="Sessions that ended.")
    accepted = models.BigIntegerField(help_text="Messages (SBD: packets) accepted from clients.")
    accepted_bytes = models.BigIntegerField(help_text="Bytes of the accepted messages.")
    delivered = models.BigIntegerField(help_text="Messages written to clients; 0 for SBD.")
    delivered_bytes = models.BigIntegerField(help_text="Bytes of the delivered messages.")
    dropped = models.BigIntegerField(help_text="Messages (SBD: packets) that were dropped.")
    dropped_bytes = models.BigIntegerField(help_text="Bytes of the dropped messages.")

    class Meta(Result.Meta):
        indexes = (models.Index(fields=("period",), name="analytics_protocol"),)

    def __str__(self) -> str:
        return f"{self.protocol} at {self.relay} in {self.hour:%Y-%m-%d %H}"


class TrafficMatrix(Result):
    """Messages by the relay that accepted them and the relay that delivered them."""

    origin = models.CharField(max_length=MAX_NAME_CHARS, help_text="The relay that accepted them.")
    final = models.CharField(max_length=MAX_NAME_CHARS, help_text="The relay that delivered them.")
    messages = models.BigIntegerField(help_text="Messages.")
    bytes = models.BigIntegerField(help_text="Bytes of their envelopes.")

    class Meta(Result.Meta):
        indexes = (models.Index(fields=("period",), name="analytics_matrix"),)
        permissions = (("view_analytics", "Can see analytics"),)

    def __str__(self) -> str:
        return f"{self.origin} to {self.final} on {self.period}"


class Storm(Result):
    """A session that reconnected repeatedly, without a pause of more than ten minutes."""

    twin = models.BigIntegerField(help_text="Twin of the session; 0 for SBD.")
    session = models.CharField(
        max_length=MAX_SESSION_CHARS, blank=True, help_text="Session id; for SBD the client's key."
    )
    first_us = models.BigIntegerField(help_text="First connection, in microseconds since 1970.")
    last_us = models.BigIntegerField(help_text="Last connection, in microseconds since 1970.")
    opens = models.BigIntegerField(help_text="Number of connections, at least five.")
    protocol = models.CharField(max_length=8, default=RMB, help_text=PROTOCOL_HELP)

    class Meta(Result.Meta):
        indexes = (models.Index(fields=("period",), name="analytics_storm"),)

    def __str__(self) -> str:
        return f"{self.twin}:{self.session} on {self.period}"


class Concurrency(Result):
    """Highest number of sessions open at the same time on a relay in an hour."""

    relay = models.CharField(max_length=MAX_NAME_CHARS)
    hour = models.DateTimeField(help_text=HOUR_HELP)
    peak = models.BigIntegerField(help_text="Highest number of sessions open at the same time.")
    protocol = models.CharField(max_length=8, default=RMB, help_text=PROTOCOL_HELP)

    class Meta(Result.Meta):
        indexes = (models.Index(fields=("period",), name="analytics_concurrency"),)

    def __str__(self) -> str:
        return f"{self.relay} in {self.hour:%Y-%m-%d %H}"


class FederationSlo(Result):
    """Attempts to send messages to a partner relay in an hour, and their round trips."""

    hour = models.DateTimeField(help_text=HOUR_HELP)
    remote = models.CharField(max_length=MAX_NAME_CHARS, help_text="The partner relay.")
    attempts = models.BigIntegerField(help_text="Attempts to send a message.")
    ok = models.BigIntegerField(help_text="Successful attempts.")
    permille = models.BigIntegerField(help_text="Successful attempts per thousand.")
    p95_us = models.BigIntegerField(
        null=True, help_text="95th percentile of the round trips, microseconds."
    )

    class Meta(Result.Meta):
        indexes = (models.Index(fields=("period",), name="analytics_slo"),)

    def __str__(self) -> str:
        return f"{self.remote} in {self.hour:%Y-%m-%d %H}"


class FederationRank(Result):
    """Partner relays by their failures on a day; recent failures count more."""

    place = models.BigIntegerField(help_text="Rank; 1 is the relay with the lowest score.")
    remote = models.CharField(max_length=MAX_NAME_CHARS, help_text="The partner relay.")
    failures = models.BigIntegerField(help_text="Failed attempts.")
    score = models.BigIntegerField(
        help_text="Sum of 2^(23 - age in hours at the end of the day) over its failures."
    )

    class Meta(Result.Meta):
        indexes = (models.Index(fields=("period",), name="analytics_rank"),)

    def __str__(self) -> str:
        return f"{self.remote} on {self.period}"


class Anomaly(Result):
    """An hour in which a twin, or SBD, sent far more or far less than in the week before."""

    hour = models.DateTimeField(help_text=HOUR_HELP)
    twin = models.BigIntegerField(help_text="The sender; 0 for all clients of SBD together.")
    accepted = models.BigIntegerField(help_text="Messages it sent in the hour.")
    median = models.BigIntegerField(help_text="Median of the 168 hours before.")
    deviation = models.BigIntegerField(
        help_text="Median absolute deviation of those hours from their median."
    )
    protocol = models.CharField(max_length=8, default=RMB, help_text=PROTOCOL_HELP)

    class Meta(Result.Meta):
        verbose_name_plural = "anomalies"
        indexes = (models.Index(fields=("period",), name="analytics_anomaly"),)

    def __str__(self) -> str:
        return f"{self.twin} in {self.hour:%Y-%m-%d %H}"


class TopTwin(Result):
    """One of the hundred twins that sent the most bytes on a day."""

    place = models.BigIntegerField(help_text="Rank; 1 is the twin that sent most bytes.")
    twin = models.BigIntegerField()
    messages = models.BigIntegerField(help_text="Accepted messages that the twin sent.")
    bytes = models.BigIntegerField(help_text="Bytes of these messages.")
    share_ppm = models.BigIntegerField(help_text="Share of all bytes of the day, in millionths.")

    class Meta(Result.Meta):
        indexes = (models.Index(fields=("period",), name="analytics_top"),)

    def __str__(self) -> str:
        return f"{self.place} on {self.period}: {self.twin}"


class HotPair(Result):
    """One of the hundred pairs of twins with the most bytes sent from one to the other in a day."""

    place = models.BigIntegerField(help_text="Rank; 1 is the pair with the most bytes.")
    src_twin = models.BigIntegerField(help_text="The twin that sent.")
    dst_twin = models.BigIntegerField(help_text="The twin it sent to.")
    messages = models.BigIntegerField(help_text="Messages from one to the other.")
    bytes = models.BigIntegerField(help_text="Bytes of these messages.")
    share_ppm = models.BigIntegerField(help_text="Share of all bytes of the day, in millionths.")

    class Meta(Result.Meta):
        indexes = (models.Index(fields=("period",), name="analytics_pair"),)

    def __str__(self) -> str:
        return f"{self.place} on {self.period}: {self.src_twin} to {self.dst_twin}"


class TopKey(Result):
    """One of the hundred SBD keys that sent the most bytes on a day."""

    place = models.BigIntegerField(help_text="Rank; 1 is the key that sent most bytes.")
    key = models.CharField(
        max_length=MAX_KEY_CHARS, blank=True, help_text="The client's public key, base64url."
    )
    messages = models.BigIntegerField(help_text="Packets that the client sent.")
    bytes = models.BigIntegerField(help_text="Bytes of these messages.")
    share_ppm = models.BigIntegerField(
        help_text="Share of all SBD bytes of the day, in millionths."
    )

    class Meta(Result.Meta):
        indexes = (models.Index(fields=("period",), name="analytics_top_key"),)

    def __str__(self) -> str:
        return f"{self.place} on {self.period}: {self.key}"


class Usage(Result):
    """What one twin used in a month."""

    period = models.CharField(max_length=7, help_text="The month, YYYY-MM in UTC.")
    twin = models.BigIntegerField()
    accepted = models.BigIntegerField(help_text="Accepted messages that the twin sent.")
    accepted_bytes = models.BigIntegerField(help_text="Bytes of the accepted messages.")
    delivered = models.BigIntegerField(help_text="Delivered messages that the twin sent.")
    delivered_bytes = models.BigIntegerField(help_text="Bytes of the delivered messages.")
    dropped = models.BigIntegerField(help_text="Dropped messages that the twin sent.")
    session_seconds = models.BigIntegerField(
        help_text="Seconds that sessions of the twin were open in the month."
    )

    class Meta(Result.Meta):
        verbose_name_plural = "usage"
        indexes = (models.Index(fields=("period", "twin"), name="analytics_usage"),)

    def __str__(self) -> str:
        return f"{self.twin} in {self.period}"


class DeliveryAudit(Result):
    """Fate of the messages that a relay accepted on a day."""

    relay = models.CharField(  # noqa: DJ001 - "" is a relay that rows do not name, null is none
        max_length=MAX_NAME_CHARS,
        null=True,
        help_text="The relay that accepted them; null: messages without an acceptance.",
    )
    uids = models.BigIntegerField(help_text="Number of messages.")
    accepted = models.BigIntegerField(help_text="Events of acceptance.")
    delivered_once = models.BigIntegerField(help_text="Messages with one delivery.")
    duplicated = models.BigIntegerField(help_text="Messages with more than one delivery.")
    extra_deliveries = models.BigIntegerField(
        help_text="Deliveries after the first one of a message."
    )
    late = models.BigIntegerField(
        help_text="Messages delivered more than a minute after acceptance."
    )
    dropped = models.BigIntegerField(help_text="Messages that were dropped.")
    expired = models.BigIntegerField(help_text="Messages that expired; part of `dropped`.")
    conflicting = models.BigIntegerField(help_text="Messages both delivered and dropped.")
    handed_over = models.BigIntegerField(
        help_text="Messages handed over to a relay that does not record events here."
    )
    in_flight = models.BigIntegerField(
        help_text="Messages without an outcome yet, younger than twice the retention of queues."
    )
    in_gap = models.BigIntegerField(
        help_text="Messages without an outcome, from a time in which a recorder lost events."
    )
    unaccounted = models.BigIntegerField(
        help_text="Messages without an outcome for any other reason; must be 0."
    )
    gaps = models.BigIntegerField(
        help_text="Number of gaps: times in which a recorder lost events, or may have lost some."
    )
    gap_events = models.BigIntegerField(help_text="Events known to be lost in the gaps.")
    gap_estimate = models.BigIntegerField(
        null=True,
        help_text="Estimate of the events lost in the gaps; null: computed by an earlier release.",
    )
    gap_at_most = models.BigIntegerField(
        null=True, help_text="Upper bound of the events lost in the gaps."
    )
    gaps_unknown = models.BigIntegerField(null=True, help_text="Gaps without an estimate.")

    class Meta(Result.Meta):
        indexes = (models.Index(fields=("period",), name="analytics_audit"),)

    def __str__(self) -> str:
        return f"{self.relay} on {self.period}"
