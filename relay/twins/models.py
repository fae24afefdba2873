"""Twins of this site: those of the registry, written by `relay.twins.services` and
`relay.twins.csv_io` only, and those mirrored from the chain, written by `relay.twins.mirror` only.
"""

from __future__ import annotations

from typing import Final

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from proto.identity import ss58
from proto.identity.bounds import ACCOUNT_BYTES, MAX_TWIN, PUBLIC_KEY_BYTES
from relay.twins.bounds import MAX_RELAYS_BYTES
from relay.twins.source import TwinRecord, relay_names

RECORD_FIELDS: Final = ("id", "account", "encryption_key", "relays", "version", "height")
"""Fields whose values are the arguments of `record_of`."""


def record_of(
    twin: int, account: bytes, pk: bytes | None, relays: str, version: int, height: int | None
) -> TwinRecord:
    """Return the record of a row."""
    return TwinRecord(
        id=twin,
        account=bytes(account),
        pk=bytes(pk) if pk else None,
        relays=relay_names(relays),
        version=version if height is None else height,
    )


class Twin(models.Model):
    """A twin: its account (identity), its key for encryption (pk), and the relays that reach it."""

    class Source(models.TextChoices):
        REGISTRY = "registry"
        CHAIN = "chain"

    id = models.PositiveBigIntegerField(
        "twin id",
        primary_key=True,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_TWIN)],
    )
    account = models.BinaryField(
        max_length=ACCOUNT_BYTES,
        db_index=True,
        help_text="Public key of 32 bytes that verifies signatures.",
    )
    # Django reserves the name `pk`, which other programs use, for the primary key.
    encryption_key = models.BinaryField(
        "encryption key (pk)",
        db_column="pk",
        max_length=PUBLIC_KEY_BYTES,
        null=True,
        help_text="Compressed secp256k1 key of 33 bytes for end-to-end encryption.",
    )
    relays = models.CharField(
        max_length=MAX_RELAYS_BYTES,
        blank=True,
        default="",
        help_text="Relays the twin is reached through, joined by an underscore.",
    )
    source = models.CharField(max_length=16, choices=Source, default=Source.REGISTRY)
    updated = models.DateTimeField(auto_now=True)
    version = models.PositiveBigIntegerField(
        default=1, help_text="Number that grows with every change."
    )
    height = models.PositiveBigIntegerField(
        "block height",
        null=True,
        help_text="Height of the block the twin was read at; empty: not from the chain.",
    )
    stale_since = models.PositiveBigIntegerField(
        null=True,
        help_text="Height of the block after which a change may have been missed; empty: up to "
        "date.",
    )

    class Meta:
        ordering = ("id",)
        constraints = (
            models.CheckConstraint(
                condition=models.Q(id__gte=1, id__lte=MAX_TWIN), name="twin_id_in_range"
            ),
        )

    def __str__(self) -> str:
        return f"twin {self.id}"

    @property
    def address(self) -> str:
        """The account as an ss58 address, as all tools of the chain show it."""
        return ss58.encode(bytes(self.account))

    def record(self) -> TwinRecord:
        """Return the record of the twin."""
        return record_of(*(getattr(self, name) for name in RECORD_FIELDS))


class Chain(models.Model):
    """The chain as this relay sees it, for permissions. Its state is in Redis; no row is stored."""

    url = models.CharField(max_length=200, primary_key=True)

    class Meta:
        managed = False
        default_permissions = ("view",)
        permissions = (("import_chain", "Can have all twins of the chain imported"),)

    def __str__(self) -> str:
        return f"chain at {self.url}"
