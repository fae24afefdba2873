"""Signed-in clients with an account of each role."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

SignIn = Callable[[str], Client]


@pytest.fixture
def sign_in() -> SignIn:
    """Return a function: `sign_in("viewer")` makes a client with an account in that group."""

    def make(role: str) -> Client:
        user = User.objects.create_user(f"a {role}", is_staff=True)
        user.groups.add(Group.objects.get(name=role))
        client = Client()
        client.force_login(user)
        return client

    return make
