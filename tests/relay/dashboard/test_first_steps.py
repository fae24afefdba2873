"""First steps are checked, and the overview shows them until all are done or dismissed."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from django.contrib.auth.models import User
from django.test import RequestFactory

from relay.access.actor import SYSTEM
from relay.access.matrix import Role
from relay.alarms.models import Receiver
from relay.audit import services as audit
from relay.dashboard import first_steps
from relay.dashboard.first_steps import Step
from relay.ops.accounts import make_first_operator
from relay.twins.models import Twin
from tests.relay.dashboard.conftest import SignIn
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db


def look(user: User, host: str, **extra: Any) -> dict[str, Step]:
    request = RequestFactory().get("/console/first-steps/", headers={"host": host}, **extra)
    request.user = user
    return {step.title: step for step in first_steps.look(request)}


def to_do(user: User, host: str = "relay.example") -> set[str]:
    return {title for title, step in look(user, host).items() if step.missing}


@pytest.fixture
def operator() -> User:
    first = make_first_operator()
    assert first is not None
    return User.objects.get(username=first.name)


def test_an_empty_installation_lacks_all_of_it(operator: User, settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["relay.example", "localhost"]
    assert len(to_do(operator)) == 9
    assert len(to_do(operator, "localhost:8081")) == 8


@pytest.mark.parametrize(
    ("host", "secure", "proxies", "cert", "own", "site"),
    [
        ("localhost:8081", False, (), "", "to do", "optional"),
        ("localhost:8081", False, ("127.0.0.1",), "", "optional", "optional"),
        ("relay.example", False, ("127.0.0.1",), "", "optional", "to do"),
        ("relay.example", True, ("127.0.0.1",), "", "done", "done"),
        ("relay.example", True, (), "", "to do", "done"),
        ("relay.example", False, (), "relay.pem", "done", "to do"),
    ],
)
def test_tls_is_done_only_where_it_is_seen(
    operator: User,
    settings: Any,
    host: str,
    secure: bool,
    proxies: tuple[str, ...],
    cert: str,
    own: str,
    site: str,
) -> None:
    settings.ALLOWED_HOSTS = ["relay.example", "localhost"]
    relay = dataclasses.replace(settings.RMB.relay, trusted_proxies=proxies, tls_cert=cert)
    settings.RMB = dataclasses.replace(settings.RMB, relay=relay)
    steps = look(operator, host, secure=secure)

    def shown(title: str) -> str:
        step = steps[title]
        return "done" if step.done else "to do" if step.missing else "optional"

    assert shown("Encrypt what clients send") == own
    assert shown("Serve this site over TLS") == site


def test_steps_are_done_by_doing_them(operator: User, settings: Any) -> None:
    settings.RMB = dataclasses.replace(
        settings.RMB,
        relay=dataclasses.replace(
            settings.RMB.relay, domains=("relay.example",), trusted_proxies=("127.0.0.1",)
        ),
    )
    TOTP.activate(operator, generate_totp_secret())
    Twin.objects.create(id=7, account=bytes(32))
    Receiver.objects.create(name="phone", kind="email", target="a@b.example")
    audit.record(SYSTEM, "backup.make", target="backup.zip")
    audit.record(SYSTEM, "account.change", target=operator.username, after={"password": "changed"})
    assert to_do(operator, "localhost") == {"Connect a client"}


def test_a_closed_first_account_needs_no_password(operator: User) -> None:
    title = "Change the initial password"
    other = User.objects.create_superuser("ann")
    assert title in to_do(other, "localhost")
    operator.is_active = False
    operator.save()
    assert title not in to_do(other, "localhost")


def test_the_overview_reminds_until_it_is_told_not_to(
    sign_in: SignIn, site_redis: RedisServer
) -> None:
    owner, other = sign_in(Role.OWNER), sign_in(Role.OPERATOR)
    assert "Next: " in owner.get("/console/").content.decode()
    assert "Next: " not in other.get("/console/").content.decode()
    assert "For your account only" in owner.get("/console/first-steps/dismiss/").content.decode()
    answer = owner.post("/console/first-steps/dismiss/")
    assert answer.status_code == 302
    assert "Next: " not in owner.get("/console/").content.decode()
    assert "of 10 done" in owner.get("/console/first-steps/").content.decode()


def test_the_page_says_what_to_do(sign_in: SignIn) -> None:
    page = sign_in(Role.VIEWER).get("/console/first-steps/").content.decode()
    assert "manage.py rmb_backup" in page and 'href="/console/settings/?find=relay.t"' in page
