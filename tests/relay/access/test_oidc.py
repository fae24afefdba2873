"""OpenID Connect against a real provider on loopback: which accounts sign in, with which role."""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from allauth.socialaccount.models import SocialAccount
from allauth.socialaccount.providers import registry
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import clear_url_caches
from django.utils import timezone

from relay.access import services as access
from relay.access import tasks, tokens
from relay.access.actor import of_command
from relay.access.sign_in import events, throttle
from relay.audit.models import AuditEntry
from rmbsite import sections
from tests.relay.access import test_sign_in
from tests.support import oidc_provider
from tests.support.oidc_provider import OidcProvider

pytestmark = pytest.mark.django_db

stopped_clock = test_sign_in.stopped_clock

LOGIN = "/admin/account/oidc/sso/login/"


@pytest.fixture(scope="module")
def running() -> Iterator[OidcProvider]:
    """Run one provider for the module."""
    found = OidcProvider()
    try:
        yield found
    finally:
        found.close()


@pytest.fixture
def provider(running: OidcProvider, settings: Any) -> Iterator[OidcProvider]:
    """Configure the site for the provider."""
    running.claims = {"sub": "1", "preferred_username": "olga", "groups": ["ops"]}
    running.info, running.identity, running.forge, running.instead = {}, {}, False, {}
    oidc = sections.OidcConfig(
        issuer=running.issuer,
        client_id=oidc_provider.CLIENT_ID,
        client_secret=oidc_provider.CLIENT_SECRET,
        viewer_groups=("staff",),
        operator_groups=("ops",),
        owner_groups=("boss",),
    )
    settings.RMB = dataclasses.replace(settings.RMB, oidc=oidc)
    app = {
        "provider_id": "sso",
        "name": oidc.name,
        "client_id": oidc.client_id,
        "secret": oidc.client_secret,
        "settings": {"server_url": oidc.issuer},
    }
    settings.SOCIALACCOUNT_PROVIDERS = {
        "openid_connect": {"OAUTH_PKCE_ENABLED": True, "APPS": [app]}
    }
    # The provider's application does this; settings install it only if a provider is set up.
    registry.register(OpenIDConnectProvider)
    _reload_urls()
    yield running
    settings.RMB = dataclasses.replace(settings.RMB, oidc=sections.OidcConfig())
    del registry.provider_map[OpenIDConnectProvider.id]
    _reload_urls()


def _reload_urls() -> None:
    """Reload the URLs: paths of the provider exist only if one is configured."""
    for name in ("relay.access.sign_in.urls", "rmbsite.urls"):
        importlib.reload(importlib.import_module(name))
    clear_url_caches()


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def way_back(client: Client, **extra: Any) -> str:
    """Start at the sign-in button; return where the provider redirects the browser."""
    away = client.post(LOGIN, extra)
    assert away.status_code == 302, away.content
    try:
        urllib.request.build_opener(_Stay).open(away["Location"])
    except urllib.error.HTTPError as answer:
        with answer:  # closes the connection
            back = urlsplit(answer.headers["Location"])
        return f"{back.path}?{back.query}"
    raise AssertionError("the provider did not send the browser back")


def come_in(client: Client, **extra: Any) -> Any:
    """Sign in as a browser does: the button, the provider, and back."""
    return client.get(way_back(client, **extra))


def stays_out(client: Client, answer: Any, why: str, caplog: pytest.LogCaptureFixture) -> None:
    """Check that the browser is back at the password page, and that the log has the reason."""
    assert (answer.status_code, answer["Location"]) == (302, "/admin/login/")
    assert "Signing in there did not work" in client.get("/admin/login/").content.decode()
    assert "_auth_user_id" not in client.session and not User.objects.exists()
    assert AuditEntry.objects.get().action == "account.sign_in_failed"
    assert why in caplog.text


def last_in(hours_ago: float) -> None:
    came = timezone.now() - timedelta(hours=hours_ago)
    SocialAccount.objects.update(last_login=came)


def groups(name: str = "olga") -> set[str]:
    return set(User.objects.get(username=name).groups.values_list("name", flat=True))


def test_coming_in(provider: OidcProvider, client: Client) -> None:
    page = client.get("/admin/login/").content.decode()
    assert re.search(rf'action="{LOGIN}', page) and "Sign in with single sign-on" in page
    answer = come_in(client)
    assert (answer.status_code, answer["Location"]) == (302, "/console/")
    assert client.get("/console/access/own/").status_code == 200
    user = User.objects.get(username="olga")
    assert user.is_staff and not user.is_superuser and not user.has_usable_password()
    assert groups() == {"operator"}
    actions = [entry.action for entry in AuditEntry.objects.order_by("number")]
    assert "account.add" in actions and actions[-1] == "account.sign_in"


def test_roles_follow_the_groups(provider: OidcProvider, client: Client) -> None:
    for named, role in ((["staff"], "viewer"), (["boss", "staff"], "owner"), ("ops", "operator")):
        provider.claims["groups"] = named
        assert come_in(client)["Location"] == "/console/"
        assert groups() == {role}
    assert User.objects.count() == 1
    changes = AuditEntry.objects.filter(action="account.change").order_by("number")
    assert changes[0].after == {"groups": ["viewer"]}


def test_an_account_that_is_there_is_not_joined_with_a_subject(
    provider: OidcProvider, client: Client
) -> None:
    boss = User.objects.create_superuser("boss")
    client.force_login(boss)
    answer = come_in(client, process="connect")
    assert (answer.status_code, answer["Location"]) == (302, "/admin/login/")
    assert not SocialAccount.objects.filter(user=boss).exists()


def test_settings_with_a_provider() -> None:
    """The settings contain the provider's application, and a session cookie that is not strict.

    Browsers do not send a strict cookie with requests that another site started.
    """
    program = (
        "from django.conf import settings; print(settings.SESSION_COOKIE_SAMESITE,"
        " 'allauth.socialaccount.providers.openid_connect' in settings.INSTALLED_APPS,"
        " *(app['settings']['server_url']"
        " for app in settings.SOCIALACCOUNT_PROVIDERS['openid_connect']['APPS']))"
    )
    oidc = {
        "ISSUER": "https://id.example/ops/",
        "CLIENT_ID": "relay",
        "CLIENT_SECRET": "of a test",
        "OWNER_GROUPS": "x",
    }
    named = {f"RMB_OIDC__{name}": value for name, value in oidc.items()}
    for given, expected in (
        (named, "Lax True https://id.example/ops"),
        ({}, "Strict False"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "DJANGO_SETTINGS_MODULE": "rmbsite.settings", **given},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.stdout.strip() == expected, done.stderr


@pytest.mark.parametrize("named", [[], ["others"], None, {"ops": 1}, [["ops"]], 5])
def test_without_a_group_nobody_comes_in(
    provider: OidcProvider, client: Client, named: Any
) -> None:
    provider.claims["groups"] = named
    answer = come_in(client)
    assert answer["Location"] == "/admin/login/"
    assert "None of your groups" in client.get("/admin/login/").content.decode()
    assert "_auth_user_id" not in client.session and not User.objects.exists()


def test_who_lost_the_groups_lost_the_role(provider: OidcProvider, client: Client) -> None:
    come_in(client)
    client.post("/admin/logout/")
    provider.claims["groups"] = []
    come_in(client)
    assert "_auth_user_id" not in client.session and groups() == set()


def test_an_account_made_by_hand_is_not_taken_over(provider: OidcProvider, client: Client) -> None:
    boss = User.objects.create_superuser("olga", email="olga@example.com")
    provider.claims.update(email="olga@example.com", email_verified=True)
    come_in(client)
    assert int(client.session["_auth_user_id"]) != boss.pk
    assert User.objects.count() == 2


def test_a_subject_of_another_issuer_is_somebody_else(
    provider: OidcProvider, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """The same subject of another issuer is another account, as subjects are unique per issuer."""
    come_in(client)
    client.post("/admin/logout/")
    account = SocialAccount.objects.get()
    account.extra_data["id_token"]["iss"] = "https://former.example"
    account.save()
    come_in(client)
    assert "_auth_user_id" not in client.session
    assert "https://former.example" in caplog.text and "olga" in caplog.text
    assert SocialAccount.objects.get().extra_data["id_token"]["iss"] == "https://former.example"


def test_a_deactivated_account_stays_out(provider: OidcProvider, client: Client) -> None:
    come_in(client)
    client.post("/admin/logout/")
    User.objects.update(is_active=False)
    come_in(client)
    assert "_auth_user_id" not in client.session


@pytest.mark.parametrize(
    "fault",
    [
        {"forge": True},
        {"identity": {"aud": "another-site"}},
        {"identity": {"iss": "https://evil.example"}},
        {"identity": {"exp": 1}},
        {"identity": {"sub": "2"}},
        {"info": {"sub": None}},
    ],
)
def test_what_the_provider_must_not_say(
    provider: OidcProvider, client: Client, fault: dict[str, Any]
) -> None:
    for name, value in fault.items():
        setattr(provider, name, value)
    answer = come_in(client)
    assert (answer.status_code, answer["Location"]) == (302, "/admin/login/")
    assert "_auth_user_id" not in client.session and not User.objects.exists()
    assert AuditEntry.objects.get().action == "account.sign_in_failed"


@pytest.mark.parametrize("there", [True, False])
def test_a_provider_that_is_away(
    provider: OidcProvider,
    client: Client,
    settings: Any,
    caplog: pytest.LogCaptureFixture,
    there: bool,
) -> None:
    back = way_back(client) if there else ""
    app = settings.SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"][0]
    app["settings"] = {"server_url": "http://127.0.0.1:1"}
    answer = client.get(back) if there else client.post(LOGIN)
    stays_out(client, answer, "ConnectionError", caplog)


@pytest.mark.parametrize(
    ("path", "said", "why"),
    [
        ("/.well-known/openid-configuration", {}, "KeyError: 'token_endpoint'"),
        ("/.well-known/openid-configuration", [], "AttributeError"),
        ("/keys", {}, "KeyError: 'keys'"),
        ("/keys", {"keys": [{"kty": "RSA"}]}, "KeyError: 'kid'"),
        ("/token", {"error": "invalid_client"}, "invalid_client"),
        ("/userinfo", ["1"], "TypeError"),
        ("/userinfo", {"sub": "1" * 255}, "UID_MAX_LENGTH"),
    ],
)
def test_a_provider_that_says_what_nobody_expects(
    provider: OidcProvider,
    client: Client,
    caplog: pytest.LogCaptureFixture,
    path: str,
    said: Any,
    why: str,
) -> None:
    provider.instead[path] = said
    discovered = path.startswith("/.well-known")
    answer = client.post(LOGIN) if discovered else come_in(client)
    stays_out(client, answer, why, caplog)


@pytest.mark.parametrize("verified", [True, "true", "false", None])
def test_a_provider_with_words_for_a_verified_address(
    provider: OidcProvider, client: Client, verified: Any
) -> None:
    """An `email_verified` claim that is a text, like Cognito's, is accepted."""
    provider.claims.update(email="olga@example.com", email_verified=verified)
    assert come_in(client)["Location"] == "/console/"
    assert User.objects.get().email == "olga@example.com"


def test_a_link_does_not_say_what_the_provider_is_asked(
    provider: OidcProvider, client: Client
) -> None:
    query = {"scope": "offline_access", "auth_params": "client_id=x&redirect_uri=https://evil"}
    query |= {"next": "/console/"}
    away = client.post(f"{LOGIN}?{urlencode(query)}")["Location"]
    asked = parse_qs(urlsplit(away).query)
    assert asked["client_id"] == [oidc_provider.CLIENT_ID]
    assert asked["redirect_uri"] == ["http://testserver/admin/account/oidc/sso/callback/"]
    assert set(asked["scope"][0].split()) == {"openid", "profile", "email"}


def test_a_role_ends_when_nobody_came_in_for_too_long(
    provider: OidcProvider, client: Client, settings: Any
) -> None:
    come_in(client)
    user = User.objects.get(username="olga")
    token = access.create_token("olga", "program", role="operator", actor=of_command()).text
    by_hand = User.objects.create_user("otto", last_login=timezone.now() - timedelta(days=900))
    by_hand.groups.add(Group.objects.get(name="owner"))
    hours = settings.RMB.oidc.role_hours
    last_in(hours - 1)
    tasks.end_roles()
    assert groups() == {"operator"}
    last_in(hours + 1)
    user.last_login = timezone.now()  # signed in with a password, without the provider
    user.save()
    tasks.end_roles()
    assert (groups(), groups("otto")) == (set(), {"owner"})
    assert AuditEntry.objects.get(number=AuditEntry.objects.count()).action == "account.change"
    found = tokens.authenticate(token, "")
    assert found is not None and not found.permissions
    assert client.get("/console/sessions/").status_code == 403
    come_in(client)
    assert groups() == {"operator"}, "it came in again"
    settings.RMB = dataclasses.replace(
        settings.RMB, oidc=dataclasses.replace(settings.RMB.oidc, role_hours=0)
    )
    last_in(100_000)
    tasks.end_roles()
    assert groups() == {"operator"}


@pytest.mark.parametrize(
    ("wanted", "found"),
    [("/console/", "/console/"), ("https://evil.example/", "/console/"), ("//evil", "/console/")],
)
def test_the_page_after_it(provider: OidcProvider, client: Client, wanted: str, found: str) -> None:
    assert come_in(client, next=wanted)["Location"] == found


def test_another_browser_cannot_come_back(provider: OidcProvider, client: Client) -> None:
    back, other = way_back(client), Client()
    assert other.get(f"{back}&_redir=")["Location"] == "/admin/login/"
    assert "_auth_user_id" not in other.session
    assert client.get(back)["Location"] == "/console/", "the code was not spent"


@pytest.mark.parametrize("query", ["", "code=x", "state=x&code=y", "error=access_denied"])
def test_a_return_nobody_asked_for(provider: OidcProvider, client: Client, query: str) -> None:
    path = f"/admin/account/oidc/sso/callback/?{query}"
    # Another site started this request: the page reloads itself so that the cookie is sent.
    assert "_redir" in client.get(path).content.decode()
    answer = client.get(f"{path}&_redir=y")
    assert answer.status_code == 302 and answer["Location"] == "/admin/login/"
    assert "_auth_user_id" not in client.session


def test_returns_nobody_asked_for_do_not_fill_the_log(
    provider: OidcProvider, client: Client
) -> None:
    """The log accepts a limited number of failures a minute, so that one address cannot fill it."""
    for number in range(throttle.PROVIDER.free + 5):
        client.get(f"/admin/account/oidc/sso/callback/?state={number}&code=y&_redir=")
    assert AuditEntry.objects.filter(action=events.FAILED).count() == throttle.PROVIDER.free
    assert come_in(client)["Location"] == "/console/", "it holds nobody up"


def test_an_unknown_provider(provider: OidcProvider, client: Client) -> None:
    assert client.post("/admin/account/oidc/other/login/").status_code == 404


def test_it_is_off_by_default(client: Client) -> None:
    assert client.post(LOGIN).status_code in (302, 404)
    assert "single sign-on" not in client.get("/admin/login/").content.decode()
