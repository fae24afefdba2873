"""Tokens for programs, the use of accounts, and failed sign-ins.

Written by `relay.access.services`, `relay.access.tokens` and `relay.access.sign_in` only.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models

from relay.access.actor import MAX_ADDRESS_CHARS
from relay.access.matrix import Role

PUBLIC_ID_CHARS = 16
MAX_LABEL_CHARS = 80


class ApiToken(models.Model):
    """Token with which a program signs in for an account; only a hash of its text is stored."""

    public_id = models.CharField(
        "id",
        max_length=PUBLIC_ID_CHARS,
        unique=True,
        help_text="Public part of the token, which logs and secret scanners show.",
    )
    label = models.CharField(max_length=MAX_LABEL_CHARS, help_text="Purpose of the token.")
    account = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        related_name="api_tokens",
        help_text="Account that the token acts for; it never has more permissions than the "
        "account.",
    )
    role = models.CharField(
        max_length=16,
        blank=True,
        default="",
        choices=[(role.value, role.value) for role in Role],
        help_text="Role of the token; empty: the permissions below.",
    )
    permissions = models.JSONField(default=list, blank=True)
    secret_hash = models.CharField(max_length=64, editable=False)
    created = models.DateTimeField(auto_now_add=True)
    created_by = models.CharField(max_length=150, default="")
    expires = models.DateTimeField()
    last_used = models.DateTimeField(null=True, blank=True)
    last_address = models.CharField(max_length=MAX_ADDRESS_CHARS, blank=True, default="")
    revoked = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-created", "-id")
        verbose_name = "API token"
        default_permissions = ("add", "view")
        permissions = (("revoke_apitoken", "Can revoke an API token"),)

    def __str__(self) -> str:
        return f"rmb_{self.public_id}"


class AccountUse(models.Model):
    """What the site stores about an account in addition to Django's record of it."""

    account = models.OneToOneField(
        settings.AUTH_USER_MODEL, models.CASCADE, primary_key=True, related_name="use"
    )
    last_seen = models.DateTimeField(null=True)
    last_address = models.CharField(max_length=MAX_ADDRESS_CHARS, blank=True, default="")
    one_time = models.CharField(
        max_length=64,
        blank=True,
        default="",
        help_text="Mark of the one-time password, which the account must replace at its next "
        "sign-in.",
    )

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"use of account {self.account_id}"


class FailedTries(models.Model):
    """Number of failures under one key, such as an address: see `relay.access.sign_in.throttle`."""

    key = models.CharField(max_length=64, primary_key=True)
    failures = models.PositiveIntegerField()
    last = models.DateTimeField(db_index=True)

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.failures} failures"


class CacheEntry(models.Model):
    """Table of Django's cache, which stores used codes. Only the cache reads and writes it."""

    cache_key = models.CharField(max_length=255, primary_key=True)
    value = models.TextField()
    expires = models.DateTimeField(db_index=True)

    class Meta:
        db_table = "relay_access_cache"
        default_permissions = ()

    def __str__(self) -> str:
        return self.cache_key
