"""Operators' decisions about partner relays, written by `relay.federation.services` only.

The state of a relay (rank, back-off, traffic) is not in these rows: drainers and workers keep it in
Redis, and `relay.federation.live` reads it for the pages.
"""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.db import models

from proto.federation import domains

MAX_NOTE_CHARS = 2000


def check_domain(domain: str) -> None:
    """Check that a text can be the domain of a relay, in any spelling.

    Raises:
        ValidationError: it cannot.
    """
    try:
        domains.canonical(domain)
    except domains.DomainError as error:
        raise ValidationError(str(error).removeprefix("domain: ")) from None


class RelayNode(models.Model):
    """A partner relay, by the domain that twins list."""

    domain = models.CharField(
        primary_key=True, max_length=domains.MAX_DOMAIN_BYTES, validators=[check_domain]
    )
    trusted = models.BooleanField(
        default=False,
        help_text="The relay accepts its messages without checking the senders' signatures.",
    )
    paused = models.BooleanField(
        default=False,
        help_text="The relay sends nothing to it; its messages wait until they expire.",
    )
    blocked = models.BooleanField(
        default=False, help_text="The relay sends nothing to it and accepts nothing from it."
    )
    note = models.TextField(
        max_length=MAX_NOTE_CHARS, blank=True, default="", help_text="Note for operators."
    )
    updated = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("domain",)
        verbose_name = "relay"

    def __str__(self) -> str:
        return self.domain

    @property
    def flags(self) -> tuple[str, ...]:
        """Names of the decisions that apply, as drainers and workers read them."""
        return tuple(name for name in ("trusted", "paused", "blocked") if getattr(self, name))


class DeadLetter(models.Model):
    """A message that failed for good. Its page reads Redis; no row is ever stored."""

    entry = models.CharField(max_length=40, primary_key=True)

    class Meta:
        managed = False
        default_permissions = ("view", "change", "delete")
        verbose_name = "dead letter"

    def __str__(self) -> str:
        return f"dead letter {self.entry}"
