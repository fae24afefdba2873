"""Adapters of allauth for this site: no sign-up, no e-mails, and secrets are stored encrypted."""

from __future__ import annotations

import base64
import hmac
from datetime import timedelta
from typing import Any, Final

from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.stages import LoginStage
from allauth.mfa.adapter import DefaultMFAAdapter
from cryptography.fernet import Fernet, MultiFernet
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from relay.access.actor import address_of

SESSION_HASH: Final = "session_hash"
"""Key in the state of a sign-in: hash that Django derives from the password that was given."""

ADDRESS: Final = "address"
"""Key in a session: address from which the browser signed in."""


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]
    """Adapter without sign-up: owners create accounts, or OpenID Connect does."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def get_login_stages(self) -> list[str]:
        return [*super().get_login_stages(), f"{__name__}.{PasswordStands.__name__}"]

    def login(self, request: HttpRequest, user: Any) -> None:
        """Set a fixed end of the session; by default Django would extend it with each write."""
        super().login(request, user)
        ends = timezone.now() + timedelta(seconds=settings.SESSION_COOKIE_AGE)
        request.session.set_expiry(ends)
        request.session[ADDRESS] = address_of(request)

    def get_client_ip(self, request: HttpRequest) -> str:
        """Return the address that the server reports, which may be no IP address: `unix`."""
        return address_of(request)

    def send_mail(self, *args: Any, **kwargs: Any) -> None:
        """Send nothing: the site has no e-mails about accounts."""

    def send_notification_mail(self, *args: Any, **kwargs: Any) -> None:
        """Send nothing: the audit log records these events."""

    def add_message(
        self, request: HttpRequest, level: int, message_template: str | None = None, *args: Any,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        if message_template != "account/messages/logged_in.txt":
            super().add_message(request, level, message_template, *args, **kwargs)


class PasswordStands(LoginStage):  # type: ignore[misc]
    """Last step of a sign-in, which must begin again if the password was changed meanwhile.

    Minutes may pass between the password and the code, in which the password may be changed because
    an attacker knows it.
    """

    key = "password_stands"

    def handle(self) -> tuple[Any, bool]:
        given = self.login.state.get(SESSION_HASH)
        if given is None or constant_time_compare(given, self.login.user.get_session_auth_hash()):
            return None, True
        messages.warning(self.request, "The password of this account was changed: sign in again.")
        return redirect("account_login"), False


class MfaAdapter(DefaultMFAAdapter):  # type: ignore[misc]
    """Adapter that encrypts authenticators' secrets, so that the database does not contain them."""

    def encrypt(self, text: str) -> str:
        return _fernet().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        return _fernet().decrypt(encrypted_text.encode()).decode()


def _fernet() -> MultiFernet:
    keys = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    return MultiFernet([Fernet(_key(str(key))) for key in keys])


def _key(secret: str) -> bytes:
    derived = hmac.digest(secret.encode(), b"rmb relay second factor 1", "sha256")
    return base64.urlsafe_b64encode(derived)
