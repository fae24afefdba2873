"""Decisions of operators about twins, addresses and keys. Only the services here write them."""

from __future__ import annotations

from datetime import datetime

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils import timezone

from proto.identity.bounds import MAX_TWIN
from proto.limits.addresses import MAX_NETWORK_CHARS
from proto.sbd.rate import KBIT_NANOS

MAX_REASON_CHARS = 120
MAX_NOTE_CHARS = 2000
MAX_KBIT_PER_S = KBIT_NANOS
"""Highest limit: a byte then takes a nanosecond, so a higher one would be no limit."""
BOTH_OR_NEITHER = "Set both messages and bytes, or neither; 0 goes with 0."


# Needed in SQL: a comparison with NULL is not false, and a check passes unless it is false.
_both = models.Q(count__isnull=False, size__isnull=False)


class TwinLimit(models.Model):
    """Limits and ban of one twin. No foreign key, as the twin may be on the chain only."""

    twin = models.PositiveBigIntegerField(
        "twin id",
        primary_key=True,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_TWIN)],
    )
    count = models.PositiveBigIntegerField(
        "messages a minute",
        null=True,
        blank=True,
        help_text="0 together with 0 bytes: no limit. Empty: the limit of all twins.",
    )
    size = models.PositiveBigIntegerField(
        "bytes a minute",
        null=True,
        blank=True,
        help_text="Also the largest single message. Set both limits or neither.",
    )
    waiting_messages = models.PositiveBigIntegerField(
        "messages that may wait",
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Bound for messages to the twin, and again for messages from it. Empty: the "
        "relay's bound.",
    )
    waiting_bytes = models.PositiveBigIntegerField(
        "bytes that may wait",
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Bound for the same messages in bytes of Redis' memory. Empty: the relay's "
        "bound.",
    )
    waiting_queues = models.PositiveBigIntegerField(
        "queues that may have messages",
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Bound for queues of the twin, and again for queues with messages from it. "
        "Empty: the relay's bound.",
    )
    banned = models.BooleanField(
        default=False,
        help_text="The relay closes the twin's sessions and refuses new ones and its messages.",
    )
    ban_reason = models.CharField(max_length=MAX_REASON_CHARS, blank=True, default="")
    banned_until = models.DateTimeField(
        null=True,
        blank=True,
        help_text="Time at which the relay lifts the ban, within a minute. Empty: never.",
    )
    note = models.TextField(
        max_length=MAX_NOTE_CHARS, blank=True, default="", help_text="Note for operators."
    )
    updated = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("twin",)
        verbose_name = "limit or ban"
        verbose_name_plural = "limits and bans"
        constraints = (
            models.CheckConstraint(
                condition=models.Q(count__isnull=True, size__isnull=True)
                | models.Q(_both, count=0, size=0)
                | models.Q(_both, count__gt=0, size__gt=0),
                name="limit_both_or_neither",
                violation_error_message=BOTH_OR_NEITHER,
            ),
        )

    def __str__(self) -> str:
        return f"twin {self.twin}"

    def clean(self) -> None:
        if bool(self.count) != bool(self.size) or (self.count is None) != (self.size is None):
            # Name the field that must change; the constraint alone names no field.
            field = "count" if self.count is None or (self.size and not self.count) else "size"
            raise ValidationError({field: BOTH_OR_NEITHER})
        if self.banned_until and not self.banned:
            raise ValidationError({"banned_until": "Only a ban has an end."})

    @property
    def waiting(self) -> tuple[int | None, int | None, int | None]:
        """The twin's bounds for what waits: messages, bytes, queues; None for the relay's bound."""
        return self.waiting_messages, self.waiting_bytes, self.waiting_queues

    def ban_is_over(self, now: datetime | None = None) -> bool:
        """Check whether the time of the ban is over."""
        return bool(self.banned_until and self.banned_until <= (now or timezone.now()))

    def ban_holds(self, now: datetime | None = None) -> bool:
        """Check whether the twin is banned now."""
        return self.banned and not self.ban_is_over(now)


class AddressBan(models.Model):
    """Ban of an address or a network: workers refuse all requests from it."""

    network = models.CharField("address or network", max_length=MAX_NETWORK_CHARS, primary_key=True)
    reason = models.CharField(max_length=MAX_REASON_CHARS, blank=True, default="")
    until = models.DateTimeField(null=True, blank=True)
    updated = models.DateTimeField(auto_now=True)

    class Meta:
        default_permissions = ()  # those of the limits of twins hold
        ordering = ("network",)
        verbose_name = "banned address"
        verbose_name_plural = "banned addresses"

    def __str__(self) -> str:
        return self.network

    def is_over(self, now: datetime | None = None) -> bool:
        """Check whether the time of the ban is over."""
        return bool(self.until and self.until <= (now or timezone.now()))


class SbdLimit(models.Model):
    """SBD limit and ban of one key, or SBD limit of each address of a network.

    A ban of an address applies to all protocols: that is an `AddressBan`.
    """

    subject = models.CharField("key or network", max_length=MAX_NETWORK_CHARS, primary_key=True)
    kbit_per_s = models.PositiveIntegerField(
        "kilobits a second",
        null=True,
        blank=True,
        validators=[MaxValueValidator(MAX_KBIT_PER_S)],
    )
    banned = models.BooleanField(default=False)
    ban_reason = models.CharField(max_length=MAX_REASON_CHARS, blank=True, default="")
    banned_until = models.DateTimeField(null=True, blank=True)
    updated = models.DateTimeField(auto_now=True)

    class Meta:
        default_permissions = ()  # those of the limits of twins hold
        ordering = ("subject",)
        verbose_name = "SBD limit or ban"
        verbose_name_plural = "SBD limits and bans"

    def __str__(self) -> str:
        return self.subject

    @property
    def is_key(self) -> bool:
        """Whether the row is about a key: networks contain dots or colons."""
        return not {".", ":"} & set(self.subject)

    def ban_is_over(self, now: datetime | None = None) -> bool:
        """Check whether the time of the ban is over."""
        return bool(self.banned_until and self.banned_until <= (now or timezone.now()))


class DefaultLimit(models.Model):
    """The limit of every twin without one of its own, if an operator has set it; one row.

    Without the row, the relay's settings apply (`limits.count`, `limits.size`).
    """

    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    count = models.PositiveBigIntegerField("messages a minute")
    size = models.PositiveBigIntegerField("bytes a minute")
    updated = models.DateTimeField(auto_now=True)

    class Meta:
        default_permissions = ()  # those of the limits of twins hold
        verbose_name = "limit of all twins"
        constraints = (
            models.CheckConstraint(condition=models.Q(id=1), name="default_limit_one_row"),
            models.CheckConstraint(
                condition=models.Q(count=0, size=0) | models.Q(count__gt=0, size__gt=0),
                name="default_limit_both_or_neither",
            ),
        )

    def __str__(self) -> str:
        return f"{self.count} messages, {self.size} bytes"
