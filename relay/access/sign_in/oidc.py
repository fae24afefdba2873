"""Sign-in by OpenID Connect: the groups that the provider names decide on entry and role.

allauth implements the protocol (state, PKCE, the exchange of the code). This module also verifies
the signature of the identity token, although it is received over a connection of ours, and checks
that it has the same subject as the user information. Each sign-in sets the account's role from its
groups, and the role ends if the last sign-in was too long ago. Accounts that were created by hand
are never taken over: each subject has an account of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlencode

from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.internal import jwtkit
from allauth.socialaccount.models import SocialAccount
from allauth.socialaccount.providers.base import AuthProcess
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView, OAuth2LoginView
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import Group, User
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Max
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import reverse
from django.utils import timezone
from requests import RequestException

from relay.access.actor import SYSTEM, address_of
from relay.access.matrix import Role
from relay.access.sign_in import events, throttle
from relay.audit import services as audit
from relay.ops.printable import shown

PROVIDER: Final = "sso"
MAX_GROUPS: Final = 1000
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384")
MAX_REASON_CHARS: Final = 300
UNREADABLE: Final = (LookupError, TypeError, ValueError, AttributeError, ImproperlyConfigured)
"""Exceptions of the library if the provider sends something unexpected."""

logger = logging.getLogger(__name__)


class VerifyingAdapter(OpenIDConnectOAuth2Adapter):  # type: ignore[misc]
    """Adapter that verifies signatures; the library's adapter trusts the connection instead."""

    def complete_login(self, request: HttpRequest, app: Any, token: Any, **kwargs: Any) -> Any:
        login = super().complete_login(request, app, token, **kwargs)
        data = login.account.extra_data
        identity, info = data.get("id_token"), data.get("userinfo") or {}
        if not identity:
            raise OAuth2Error("the provider gave no identity token")
        if not info.get("sub") or info["sub"] != identity.get("sub"):
            raise OAuth2Error("identity token and user information are about different subjects")
        _check_issuer(login.account.uid, identity["iss"])
        # Addresses identify no account here, and providers mark verified ones in different ways.
        login.email_addresses = []
        return login

    def _decode_id_token(self, app: Any, id_token: str) -> dict[str, Any]:
        import jwt

        try:
            algorithm = jwt.get_unverified_header(id_token).get("alg")
        except jwt.PyJWTError as error:
            raise OAuth2Error("the identity token is malformed") from error
        if algorithm not in ALGORITHMS:
            raise OAuth2Error("the identity token is signed in a way that is not accepted")
        found: dict[str, Any] = jwtkit.verify_and_decode(
            credential=id_token,
            keys_url=self.openid_config["jwks_uri"],
            issuer=settings.RMB.oidc.issuer,
            audience=app.client_id,
            lookup_kid=jwtkit.lookup_kid_jwk,
        )
        return found


def _check_issuer(subject: str, issuer: str) -> None:
    """Check that a known subject has the same issuer: another may use it for a different user.

    Raises:
        OAuth2Error: the subject signed in from another issuer before.
    """
    known = SocialAccount.objects.filter(provider=PROVIDER, uid=subject).first()
    if known is None:
        return
    before = (known.extra_data.get("id_token") or {}).get("iss")
    if before != issuer:
        raise OAuth2Error(
            f"subject {subject} is account {known.user.get_username()} since it came from {before}:"
            " remove that account to let it come from another issuer"
        )


class SocialAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc]
    """Adapter that decides which subjects may sign in, and with which role."""

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        return role_of(sociallogin.account.extra_data) is not None

    def is_auto_signup_allowed(self, request: HttpRequest, sociallogin: Any) -> bool:
        return True

    def pre_social_login(self, request: HttpRequest, sociallogin: Any) -> None:
        if sociallogin.state.get("process") != AuthProcess.LOGIN:
            # A request may name another process: to connect a subject with the signed-in account.
            raise ImmediateHttpResponse(HttpResponseRedirect(reverse("admin:login")))
        role = role_of(sociallogin.account.extra_data)
        if sociallogin.is_existing:
            _give(sociallogin.user, role)
        if role is None:
            name = sociallogin.user.get_username() if sociallogin.is_existing else ""
            events.failed(request, name, "no group of the provider has a role here")
            messages.error(request, "None of your groups may sign in here.")
            raise ImmediateHttpResponse(HttpResponseRedirect(reverse("admin:login")))

    def populate_user(self, request: HttpRequest, sociallogin: Any, data: Mapping[str, Any]) -> Any:
        user = super().populate_user(request, sociallogin, data)
        user.is_staff = True
        return user

    def save_user(self, request: HttpRequest, sociallogin: Any, form: Any = None) -> Any:
        with audit.change(SYSTEM, "account.add") as change:
            user = super().save_user(request, sociallogin, form)
            change.target = user.get_username()
            change.after = {"subject": str(sociallogin.account.uid)[:200]}
            _give(user, role_of(sociallogin.account.extra_data))
        return user

    def on_authentication_error(
        self, request: HttpRequest, provider: Any, exception: Any = None, **kwargs: Any
    ) -> None:
        raise ImmediateHttpResponse(_failed(request, exception))


def login(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Redirect to the provider."""
    # The library would pass parameters of a link to the provider, such as another scope or client.
    request.GET = QueryDict(urlencode({"next": request.GET.get("next", "")}))
    return _view(OAuth2LoginView, request, provider_id)


def callback(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Handle the redirect back from the provider."""
    return _view(OAuth2CallbackView, request, provider_id)


def _view(kind: Any, request: HttpRequest, provider_id: str) -> HttpResponse:
    if provider_id != PROVIDER:
        raise Http404
    try:
        answer: HttpResponse = kind.adapter_view(VerifyingAdapter(request, provider_id))(request)
    except (OAuth2Error, RequestException, *UNREADABLE) as error:
        return _failed(request, error)
    return answer


def _failed(request: HttpRequest, error: Exception | None) -> HttpResponse:
    """Redirect to the sign-in page; the log has the reason."""
    reason = "nobody was sent there, or the provider refused"
    if error is not None:
        cause = f" ({error.__cause__})" if error.__cause__ else ""
        reason = f"{type(error).__name__}: {error}{cause}"
    trace = error if isinstance(error, UNREADABLE) else None  # it may be a bug of ours
    told = shown(reason, MAX_REASON_CHARS)
    logger.warning("a sign-in by OpenID Connect failed: %s", told, exc_info=trace)
    # Any client can request the callback, any number of times, so bound the audit entries.
    if not throttle.take([throttle.address_key(address_of(request), throttle.PROVIDER)]):
        events.failed(request, "", "the provider, or what it said")
    messages.error(request, "Signing in there did not work. Try again, or use a password.")
    return HttpResponseRedirect(reverse("admin:login"))


def role_of(data: Mapping[str, Any]) -> Role | None:
    """Return the highest role that a subject's groups have here; None if it may not sign in."""
    wanted = settings.RMB.oidc
    groups = {
        group
        for part in ("userinfo", "id_token")
        for group in _groups((data.get(part) or {}).get(wanted.group_claim))
    }
    for role, names in (
        (Role.OWNER, wanted.owner_groups),
        (Role.OPERATOR, wanted.operator_groups),
        (Role.VIEWER, wanted.viewer_groups),
    ):
        if groups.intersection(names):
            return role
    return None


def end_roles() -> None:
    """Remove the roles of accounts that have not signed in from the provider for too long.

    Raises:
        django.db.Error: the database does not answer.
    """
    hours = settings.RMB.oidc.role_hours
    if not hours:
        return
    late = timezone.now() - timedelta(hours=hours)
    users = User.objects.filter(groups__name__in=set(Role), socialaccount__provider=PROVIDER)
    # An account has one subject; with several the latest sign-in counts.
    for user in users.annotate(came=Max("socialaccount__last_login")).filter(came__lt=late):
        logger.info("%s has not signed in for %d hours: its role ends", user, hours)
        _give(user, None)


def _groups(claim: Any) -> Iterable[str]:
    if isinstance(claim, str):
        return (claim,)
    if isinstance(claim, list):
        return (each for each in claim[:MAX_GROUPS] if isinstance(each, str))
    return ()


def _give(user: Any, role: Role | None) -> None:
    """Make a role the only role of an account; its other groups stay, as no provider sets them."""
    before = set(user.groups.filter(name__in=set(Role)).values_list("name", flat=True))
    after = {role.value} if role else set()
    if before == after:
        return
    with audit.change(SYSTEM, "account.change", target=user.get_username()) as change:
        change.before, change.after = {"groups": sorted(before)}, {"groups": sorted(after)}
        user.groups.remove(*Group.objects.filter(name__in=before - after))
        user.groups.add(*Group.objects.filter(name__in=after - before))
