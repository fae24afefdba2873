"""Policies of operators for calls between twins and a lattice."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from proto.lattice.policy import (
    DEFAULT_TIMEOUT_MS,
    MAX_BYTES,
    MAX_NAME_CHARS,
    MAX_PATTERN_CHARS,
    MAX_PATTERNS,
    MAX_RATE_PER_S,
    MAX_TIMEOUT_MS,
    Direction,
    PolicyError,
    read_policy,
)

MAX_LIST_CHARS = MAX_PATTERNS * (MAX_PATTERN_CHARS + 2)
MAX_NOTE_CHARS = 2000
DIRECTIONS = (
    (Direction.TO_TWIN.value, "actors call twins"),
    (Direction.TO_LATTICE.value, "twins call the lattice"),
)
POLICY_FIELDS = (
    "name", "direction", "twins", "entities", "names", "per_s", "max_bytes", "timeout_ms",
)  # fmt: skip
"""Fields of `proto.lattice.policy.Policy`, which the bridge receives."""


class LatticePolicy(models.Model):
    """A policy for calls over the bridge. Enabled policies are tried in the order of names."""

    name = models.CharField(
        max_length=MAX_NAME_CHARS,
        primary_key=True,
        help_text="Policies are tried in the order of their names.",
    )
    direction = models.CharField(max_length=16, choices=DIRECTIONS)
    twins = models.TextField(
        max_length=MAX_LIST_CHARS, help_text="Twin ids and ranges, such as 7, 10-19; *: all twins."
    )
    entities = models.TextField(
        "actors and providers",
        max_length=MAX_LIST_CHARS,
        help_text="Public keys, or call aliases of actors that twins call, with commas; * stands "
        "for any characters.",
    )
    names = models.TextField(
        "commands or operations",
        max_length=MAX_LIST_CHARS,
        help_text="Commands that actors send to twins, or operations that twins call, with commas; "
        "* stands for any characters.",
    )
    per_s = models.FloatField(
        "calls a second",
        default=0.0,
        validators=[MinValueValidator(0), MaxValueValidator(MAX_RATE_PER_S)],
        help_text="For each pair of a twin and an actor or provider; 0: no limit.",
    )
    max_bytes = models.PositiveBigIntegerField(
        "bytes",
        default=MAX_BYTES,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_BYTES)],
        help_text="Maximum size of the payload of a call and of its answer.",
    )
    timeout_ms = models.PositiveIntegerField(
        "time-out in ms",
        default=DEFAULT_TIMEOUT_MS,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_TIMEOUT_MS)],
        help_text="Maximum time that the bridge waits for an answer.",
    )
    enabled = models.BooleanField(default=True, help_text="The bridge ignores disabled policies.")
    note = models.TextField(
        max_length=MAX_NOTE_CHARS, blank=True, default="", help_text="Note for operators."
    )
    updated = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("name",)
        verbose_name = "lattice policy"
        verbose_name_plural = "lattice policies"
        default_permissions = ("change", "delete", "view")
        permissions = (
            ("view_lattice", "Can view the lattice"),
            ("link_lattice", "Can put and delete links of the lattice"),
            ("call_lattice", "Can call the lattice"),
        )

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        try:
            read_policy(self.told())
        except PolicyError as error:
            raise ValidationError({error.field: f"{error.text}."}) from None

    def told(self) -> dict[str, object]:
        """Return the fields that the bridge receives."""
        return {name: getattr(self, name) for name in POLICY_FIELDS}


class FindingsRead(models.Model):
    """Position up to which findings were read for the audit log, and counts that wait; one row."""

    ONLY = 1

    position = models.CharField(max_length=64, default="0-0", help_text="Id in the stream.")
    began = models.FloatField(default=0.0, help_text="Unix time of the first that waits.")
    waiting = models.JSONField(default=dict, help_text="Counts by reason and origin.")

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return self.position
