"""Counts of the stream for each minute, and its state.

The jobs count whole days after they are over; these rows cover the hours before. Both count the
same events, so a minute that both have counted has the same numbers.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import models

from relay.analytics.models.results import MAX_NAME_CHARS

MAX_WORD_CHARS = 64
"""Maximum length of a kind or a reason."""

WATERMARK = timedelta(minutes=2)
"""How much out of order events may come, because many workers write files."""


class LiveMinute(models.Model):
    """Events of one minute with the same relay, kind, reason and remote."""

    minute = models.DateTimeField(help_text="Start of the minute.")
    relay = models.CharField(max_length=MAX_NAME_CHARS)
    kind = models.CharField(max_length=MAX_WORD_CHARS)
    reason = models.CharField(max_length=MAX_WORD_CHARS)
    remote = models.CharField(
        max_length=MAX_NAME_CHARS, help_text="Partner relay; empty: none took part."
    )
    n = models.BigIntegerField(help_text="Number of events.")
    size_bytes = models.BigIntegerField(help_text="Bytes of the envelopes.")
    latency_us = models.BigIntegerField(
        help_text="Sum of the latencies, in microseconds, of the events that have one."
    )
    late = models.BigIntegerField(
        help_text="Messages delivered more than a minute after acceptance."
    )

    class Meta:
        ordering = ("minute", "relay", "kind", "reason", "remote")
        default_permissions = ()
        constraints = (
            models.UniqueConstraint(
                fields=("minute", "relay", "kind", "reason", "remote"),
                name="analytics_live_minute_once",
            ),
        )

    def __str__(self) -> str:
        return f"{self.minute:%Y-%m-%d %H:%M} {self.relay} {self.kind} {self.n}"


class StreamState(models.Model):
    """State of the stream: one row, changed in the transaction that changes the minutes.

    Spark repeats a batch if it died before it recorded the batch as done. The state shows whether
    the rows of the batch are counted already.
    """

    checkpoint = models.CharField(max_length=64, help_text="Folder below checkpoints/.")
    batch = models.BigIntegerField(
        default=-1, help_text="Last batch of the checkpoint that is counted."
    )
    since = models.DateTimeField(help_text="First minute that is counted.")
    counts_from = models.DateTimeField(help_text="First hour whose files the checkpoint reads.")
    newest = models.DateTimeField(null=True, help_text="Time of the latest event.")
    events = models.BigIntegerField(
        default=0, help_text="Events counted since the checkpoint began."
    )
    began_at = models.DateTimeField(help_text="Time at which the checkpoint began.")
    updated_at = models.DateTimeField(
        help_text="Time of the last batch, or of the last look for one."
    )

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.checkpoint} {self.batch}"

    @property
    def watermark(self) -> datetime | None:
        """Time before which minutes are complete, except for stragglers, which are counted too."""
        return None if self.newest is None else self.newest - WATERMARK
