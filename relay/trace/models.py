"""Orders to trace, as operators gave them. Only `relay.trace.services` writes them."""

from __future__ import annotations

from datetime import datetime

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils import timezone

from proto.rmb import address
from proto.rmb.errors import RmbError
from relay.access.actor import MAX_NAME_CHARS
from relay.trace.bounds import EVENTS_PER_S, MAX_EVENTS_PER_S, MAX_TEXT_CHARS, MIN_SAMPLE
from relay.trace.orders import Kind, Order

ID_CHARS = 8


class TraceOrder(models.Model):
    """One order. Its events are in Redis, for an hour."""

    id = models.CharField(primary_key=True, max_length=ID_CHARS, editable=False)
    kind = models.CharField(
        "follow",
        max_length=8,
        choices=[
            (Kind.UID.value, "one message"),
            (Kind.TWIN.value, "all messages of a twin"),
            (Kind.SESSION.value, "all messages of a session"),
        ],
        default=Kind.TWIN.value,
    )
    subject = models.CharField(
        "of",
        max_length=MAX_TEXT_CHARS,
        help_text="Uid of the message, id of the twin, or <twin>:<session id>.",
    )
    sample = models.FloatField(
        "share",
        default=1.0,
        validators=[MinValueValidator(MIN_SAMPLE), MaxValueValidator(1.0)],
        help_text="Share of the messages, from 0.0001 to 1. All processes trace the same messages.",
    )
    events_per_s = models.PositiveIntegerField(
        "events a second",
        default=EVENTS_PER_S,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_EVENTS_PER_S)],
        help_text="Highest number of events a second in each process. Further messages are only "
        "counted.",
    )
    started = models.DateTimeField(db_index=True)
    until = models.DateTimeField("ends", db_index=True)
    started_by = models.CharField(max_length=MAX_NAME_CHARS)
    stopped = models.DateTimeField(null=True, blank=True)
    stopped_by = models.CharField(max_length=MAX_NAME_CHARS, blank=True, default="")

    class Meta:
        ordering = ("-started",)
        verbose_name = "trace"
        default_permissions = ("view",)
        permissions = (
            ("start_traceorder", "Can start a trace"),
            ("stop_traceorder", "Can stop a trace"),
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.subject}"

    def clean(self) -> None:
        if not MIN_SAMPLE <= self.sample <= 1:  # validators accept NaN
            raise ValidationError({"sample": f"From {MIN_SAMPLE} to 1."})
        if not self.subject.isprintable():
            raise ValidationError({"subject": "This is not what a message is named by."})
        if self.kind == Kind.UID:
            return
        try:
            key = address.parse(self.subject)
        except RmbError as error:
            raise ValidationError({"subject": f"{error}."}) from error
        if not key[0]:
            raise ValidationError({"subject": "There is no twin 0."})
        if self.kind == Kind.TWIN and key[1] is not None:
            raise ValidationError({"subject": "A twin's id; for one of its sessions: session."})

    def order(self) -> Order:
        """Return the order as workers read it."""
        return Order(
            self.id,
            Kind(self.kind),
            self.subject,
            self.until.timestamp(),
            self.sample,
            self.events_per_s,
        )

    def in_force(self, now: datetime | None = None) -> bool:
        """Check whether it has neither been stopped nor ended."""
        return self.stopped is None and self.until > (now or timezone.now())
