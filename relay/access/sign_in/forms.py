"""Throttled forms for passwords and codes, at a sign-in and before changes of an account."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from allauth.account.adapter import get_adapter
from allauth.account.forms import ReauthenticateForm
from allauth.core import context
from allauth.mfa.base.forms import AuthenticateForm
from allauth.mfa.base.forms import ReauthenticateForm as ReauthenticateByCodeForm
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.forms import ActivateTOTPForm
from allauth.mfa.totp.internal.auth import TOTP
from django import forms
from django.contrib.admin.forms import AdminAuthenticationForm, AdminPasswordChangeForm
from django.contrib.auth.models import User
from django.core import signing
from django.http import HttpRequest, HttpResponse
from django.utils.crypto import constant_time_compare, salted_hmac

from relay.access.actor import address_of
from relay.access.sign_in import events, throttle
from relay.access.sign_in.throttle import Key

COOKIE: Final = "rmb_browser"
COOKIE_S: Final = 90 * 86_400
_SALT: Final = "relay.access.browser"


class SignInForm(AdminAuthenticationForm):
    """Name and password. Its errors do not disclose whether an account exists."""

    keys: tuple[Key, ...] = ()

    def __init__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().__init__(request, *args, **kwargs)
        self.request: HttpRequest = request
        wrong = (
            "Please enter the correct username and password of an account that may use this site. "
            "Both are case-sensitive."
        )
        self.error_messages = {**self.error_messages, "invalid_login": wrong}

    def clean(self) -> Any:
        name = self.cleaned_data.get("username")
        if name is None or not self.cleaned_data.get("password"):
            return super().clean()
        self.keys = _keys(self.request, name)
        _wait(throttle.take(self.keys))
        try:
            found = super().clean()
        except forms.ValidationError:
            events.failed(self.request, name, "password")
            raise
        throttle.give_back(self.keys)
        return found


class OwnPasswordForm(AdminPasswordChangeForm):
    """A new password for the user's own account; it asks for the old one."""

    def clean_old_password(self) -> str:
        return _checked(self.user, super().clean_old_password)

    def clean_new_password1(self) -> str:
        """Refuse the old password: the owner who set a one-time password knows it."""
        new: str = self.cleaned_data["new_password1"]
        if self.user.check_password(new):
            raise forms.ValidationError("This is the old password; choose another one.")
        return new


class PasswordAgainForm(ReauthenticateForm):  # type: ignore[misc]
    """Password before a change of the second factor, for accounts that have none yet."""

    def clean_password(self) -> str:
        return _checked(self.user, self._check)

    def _check(self) -> str:
        # Not the library's check, which has a slower throttle of its own.
        password: str = self.cleaned_data["password"]
        if not self.user.check_password(password):
            raise get_adapter().validation_error("incorrect_password")
        return password


class _Throttled:
    user: Any
    fields: dict[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        widget = forms.TextInput(
            attrs={"autocomplete": "one-time-code", "autofocus": True, "inputmode": "numeric"}
        )
        self.fields["code"].widget = widget

    def clean_code(self) -> str:
        keys = [throttle.key(throttle.CODE, str(self.user.pk))]
        _wait(throttle.take(keys))
        code: str = super().clean_code()  # type: ignore[misc]
        throttle.give_back(keys)
        return code

    def _emit_authentication_failed(self, authenticator: Any) -> None:
        events.failed(context.request, self.user.get_username(), "code")
        super()._emit_authentication_failed(authenticator)  # type: ignore[misc]


class CodeForm(_Throttled, AuthenticateForm):  # type: ignore[misc]
    """Code at the second step of a sign-in."""


class CodeAgainForm(_Throttled, ReauthenticateByCodeForm):  # type: ignore[misc]
    """Code before a change of the second factor."""


class ActivateForm(_Throttled, ActivateTOTPForm):  # type: ignore[misc]
    """First code of a new authenticator."""

    def clean_code(self) -> str:
        code = super().clean_code()
        # The library would accept this code for a sign-in too, also from anyone who saw it.
        TOTP(Authenticator(user=self.user))._mark_code_used(code)
        return code


def remember_browser(request: HttpRequest, response: HttpResponse, name: str) -> None:
    """Set a cookie, so that failures of others do not slow down this browser's sign-ins.

    All browsers of an account have the same cookie and one count, and a new password makes it
    void: an attacker who collected many cookies has no more tries than with one.
    """
    if _known(request, name):
        return
    value = signing.dumps([name, _password_mark(name)], salt=_SALT)
    response.set_cookie(
        COOKIE,
        value,
        max_age=COOKIE_S,
        httponly=True,
        samesite="Strict",
        secure=request.is_secure(),
    )


def _keys(request: HttpRequest, name: str) -> tuple[Key, ...]:
    if _known(request, name):  # failures of others at the account or from the address do not count
        return (throttle.key(throttle.BROWSER, name),)
    address = throttle.address_key(address_of(request))
    return (address, throttle.key(throttle.ACCOUNT, name.casefold()))


def _known(request: HttpRequest, name: str) -> bool:
    try:
        of, mark = signing.loads(request.COOKIES.get(COOKIE, ""), salt=_SALT, max_age=COOKIE_S)
    except (signing.BadSignature, ValueError, TypeError):
        return False
    return of == name and constant_time_compare(str(mark), _password_mark(name))


def _password_mark(name: str) -> str:
    """Return a keyed hash for the present password of an account, which does not disclose it."""
    user = User.objects.filter(username=name).first()
    return salted_hmac(_SALT, user.get_session_auth_hash()).hexdigest() if user else ""


def _checked(user: User, check: Callable[[], str]) -> str:
    """Check a password that is entered again; throttle tries, and audit failures."""
    keys = [throttle.key(throttle.AGAIN, str(user.pk))]
    _wait(throttle.take(keys))
    try:
        password = check()
    except forms.ValidationError:
        events.failed(context.request, user.get_username(), "password")
        raise
    throttle.give_back(keys)
    return password


def _wait(wait_s: int) -> None:
    if wait_s:
        raise forms.ValidationError(f"Too many failures: try again in {wait_s} s.", code="wait")
