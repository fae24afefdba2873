"""Callers of the REST API: signed-in operators, and tokens."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from relay.access import tokens
from relay.access.models import ApiToken


def account(name: str, role: str) -> User:
    """Make an account of a role, without a password: hashing one takes longer than the test."""
    user = User.objects.create_user(name, is_staff=True)
    user.groups.add(Group.objects.get(name=role))
    return user


def token_of(user: User, **fields: Any) -> str:
    """Make a token of this account and return its text."""
    minted = tokens.mint()
    values = {"label": "test", "role": "owner", "expires": timezone.now() + timedelta(days=1)}
    ApiToken.objects.create(
        public_id=minted.public_id,
        secret_hash=minted.secret_hash,
        account=user,
        **{**values, **fields},
    )
    return minted.text


def bearer(text: str) -> Client:
    """Return a client that sends this token."""
    return Client(headers={"authorization": f"Bearer {text}"}, raise_request_exception=False)


def limit(settings: Any, **values: int) -> None:
    """Set limits on the requests that the site allows."""
    rest = dataclasses.replace(settings.RMB.rest, **values)
    settings.RMB = dataclasses.replace(settings.RMB, rest=rest)


@pytest.fixture
def owner(site_redis: Any, db: None) -> Client:
    """Return a client with the token of an owner."""
    return bearer(token_of(account("owner", "owner")))


@pytest.fixture
def operator(site_redis: Any, db: None) -> Client:
    """Return a client with the token of an operator."""
    return bearer(token_of(account("operator", "operator"), role="operator"))


@pytest.fixture
def viewer(site_redis: Any, db: None) -> Client:
    """Return a client with the token of a viewer."""
    return bearer(token_of(account("viewer", "viewer"), role="viewer"))
