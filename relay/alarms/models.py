"""Alarms and their receivers. Only modules of this package write them.

The rows of `Alarm` contain the state of the state machine (`machine.Track`), so that any process
can do the next evaluation. Times that the machine uses are unix seconds, as in `machine`.
"""

from __future__ import annotations

from django.core.validators import MinValueValidator
from django.db import models

from relay.alarms import bounds
from relay.alarms.machine import Phase, Track
from relay.alarms.rules import BY_KEY, Rule, Severity

MAX_KEY_CHARS = 40
MAX_URL_CHARS = 500
MAX_SECRET_CHARS = 200
MAX_NAME_CHARS = 64


class State(models.TextChoices):
    """State of an alarm that an operator sees."""

    PENDING = "pending"
    FIRING = "firing"
    ACKNOWLEDGED = "acknowledged"
    SILENCED = "silenced"
    RESOLVED = "resolved"


class Alarm(models.Model):
    """State of one subject of one rule: pending, firing or resolved.

    `state` follows from the other fields; it is stored for filters.
    """

    rule = models.CharField(max_length=MAX_KEY_CHARS)
    subject = models.CharField(max_length=bounds.MAX_SUBJECT_CHARS, blank=True, default="")
    severity = models.CharField(max_length=10, choices=[(each, each) for each in Severity])
    state = models.CharField(max_length=12, choices=State.choices, db_index=True)
    since = models.DateTimeField(help_text="Time at which the alarm entered this state.")
    fired_at = models.DateTimeField(null=True)
    value = models.FloatField(null=True, help_text="Last reading; empty: unknown.")
    detail = models.CharField(max_length=bounds.MAX_DETAIL_CHARS, blank=True, default="")
    acknowledged_by = models.CharField(max_length=bounds.MAX_ACTOR_CHARS, blank=True, default="")
    acknowledged_at = models.DateTimeField(null=True)
    note = models.CharField(max_length=bounds.MAX_NOTE_CHARS, blank=True, default="")
    silenced_until = models.DateTimeField(null=True)
    phase = models.CharField(max_length=10, default=Phase.QUIET)
    counted_s = models.FloatField(default=0.0)
    looked_at = models.FloatField(default=0.0)
    track_since = models.FloatField(default=0.0)
    repeats = models.PositiveSmallIntegerField(default=0)
    told = models.BooleanField(default=False)

    class Meta:
        ordering = ("-since", "-pk")
        permissions = (
            ("acknowledge_alarm", "Can acknowledge alarms"),
            ("silence_alarm", "Can silence alarms"),
        )
        default_permissions = ("view",)
        constraints = (models.UniqueConstraint(fields=("rule", "subject"), name="alarm_subject"),)

    def __str__(self) -> str:
        return f"{self.title} ({self.subject})" if self.subject else self.title

    @property
    def definition(self) -> Rule | None:
        """Rule of the alarm; None if this release does not have it."""
        return BY_KEY.get(self.rule)

    @property
    def title(self) -> str:
        """Title of the rule, or its key if this release does not have it."""
        return self.definition.title if self.definition else self.rule

    @property
    def active(self) -> bool:
        """Whether the alarm fires, even if acknowledged or silenced."""
        return self.track.active

    @property
    def track(self) -> Track:
        """State of the state machine, kept between steps."""
        return Track(
            Phase(self.phase),
            self.counted_s,
            self.looked_at,
            self.track_since,
            self.repeats,
            self.told,
        )

    @track.setter
    def track(self, track: Track) -> None:
        self.phase = track.phase
        self.counted_s = track.counted_s
        self.looked_at = track.looked_at
        self.track_since = track.since
        self.repeats = track.repeats
        self.told = track.told


class Kind(models.TextChoices):
    """Kind of an event of the history."""

    FIRED = "fired"
    RESOLVED = "resolved"
    ACKNOWLEDGED = "acknowledged"
    UNACKNOWLEDGED = "unacknowledged"
    SILENCED = "silenced"
    UNSILENCED = "unsilenced"


class AlarmEvent(models.Model):
    """Event of an alarm. It is kept when the alarm's row is deleted."""

    at = models.DateTimeField(db_index=True)
    kind = models.CharField(max_length=16, choices=Kind.choices)
    rule = models.CharField(max_length=MAX_KEY_CHARS)
    subject = models.CharField(max_length=bounds.MAX_SUBJECT_CHARS, blank=True, default="")
    severity = models.CharField(max_length=10)
    value = models.FloatField(null=True)
    detail = models.CharField(max_length=bounds.MAX_DETAIL_CHARS, blank=True, default="")
    by = models.CharField(max_length=bounds.MAX_ACTOR_CHARS, blank=True, default="")

    class Meta:
        ordering = ("-pk",)
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.rule} {self.kind}"


class Silence(models.Model):
    """Time during which receivers get no notices of matching alarms."""

    rule = models.CharField(
        max_length=MAX_KEY_CHARS, help_text="Key of a rule; * and ? stand for any.", default="*"
    )
    subject = models.CharField(
        max_length=bounds.MAX_SUBJECT_CHARS,
        default="*",
        help_text="Subject; * and ? stand for any.",
    )
    until = models.DateTimeField()
    note = models.CharField(max_length=bounds.MAX_NOTE_CHARS, blank=True, default="")
    by = models.CharField(max_length=bounds.MAX_ACTOR_CHARS, blank=True, default="")
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("until",)
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.rule} {self.subject}"


class RuleOverride(models.Model):
    """Changes of an operator to a rule; empty fields keep their defaults."""

    rule = models.CharField(max_length=MAX_KEY_CHARS, primary_key=True)
    threshold = models.FloatField(null=True, blank=True)
    clear = models.FloatField(null=True, blank=True)
    hold_s = models.FloatField(null=True, blank=True, validators=[MinValueValidator(0)])
    enabled = models.BooleanField(default=True)
    updated = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("rule",)
        default_permissions = ("view", "change")
        verbose_name = "alarm rule"

    def __str__(self) -> str:
        return self.rule


class ReceiverKind(models.TextChoices):
    """Kind of a receiver."""

    WEBHOOK = "webhook"
    EMAIL = "email"


class Receiver(models.Model):
    """Receiver of alarms: a webhook or an e-mail address."""

    name = models.CharField(max_length=MAX_NAME_CHARS, unique=True)
    kind = models.CharField(max_length=10, choices=ReceiverKind.choices)
    target = models.CharField(
        max_length=MAX_URL_CHARS, help_text="https://… of a webhook, or an e-mail address."
    )
    secret = models.CharField(
        max_length=MAX_SECRET_CHARS,
        blank=True,
        default="",
        help_text="Key that signs webhooks. Empty: the relay generates one and shows it once.",
    )
    min_severity = models.CharField(
        max_length=10, choices=[(each, each) for each in Severity], default=Severity.WARNING
    )
    enabled = models.BooleanField(default=True)
    failures = models.PositiveIntegerField(default=0, editable=False)
    retry_at = models.FloatField(default=0.0, editable=False)
    last_error = models.CharField(max_length=bounds.MAX_ERROR_CHARS, default="", editable=False)
    last_success = models.DateTimeField(null=True, editable=False)
    busy_until = models.FloatField(default=0.0, editable=False)
    sequence = models.PositiveBigIntegerField(default=0, editable=False)

    class Meta:
        ordering = ("name",)
        permissions = (("test_receiver", "Can send a test to a receiver"),)

    def __str__(self) -> str:
        return self.name


class Outcome(models.TextChoices):
    """State of a delivery."""

    WAITING = "waiting"
    SENT = "sent"
    GIVEN_UP = "given up"


class Delivery(models.Model):
    """One notice for one receiver, with its outcome: a row of the outbox."""

    receiver = models.ForeignKey(Receiver, models.CASCADE, related_name="deliveries")
    event_id = models.CharField(max_length=40)
    body = models.JSONField()
    created = models.DateTimeField()
    outcome = models.CharField(max_length=10, choices=Outcome.choices, default=Outcome.WAITING)
    tries = models.PositiveIntegerField(default=0)
    error = models.CharField(max_length=bounds.MAX_ERROR_CHARS, blank=True, default="")
    ended = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-pk",)
        default_permissions = ("view",)
        verbose_name_plural = "deliveries"
        indexes = (models.Index(fields=("receiver", "outcome", "id"), name="alarm_outbox"),)

    def __str__(self) -> str:
        return f"{self.event_id} for {self.receiver_id}"


class Evaluation(models.Model):
    """The only row: which process evaluates, when the last evaluation ended, and its memory."""

    ONLY = 1

    token = models.CharField(max_length=40, default="")
    until = models.FloatField(default=0.0)
    done = models.FloatField(default=0.0)
    by = models.CharField(max_length=100, default="")
    took_s = models.FloatField(default=0.0)
    memory = models.JSONField(default=dict)
    unknown = models.JSONField(default=dict)
    readings = models.JSONField(default=dict)

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"evaluated by {self.by}"
