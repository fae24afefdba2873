"""The sign-in page: Django's form in the console's look, then further steps of the account."""

from __future__ import annotations

from typing import Any

from allauth.account.internal.flows.login import perform_password_login
from allauth.account.models import Login
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth.views import LoginView, PasswordChangeView
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse

from relay.access import faces
from relay.access.sign_in import oidc
from relay.access.sign_in.adapters import SESSION_HASH
from relay.access.sign_in.forms import OwnPasswordForm, SignInForm, remember_browser
from relay.access.sign_in.use import must_replace_password
from relay.audit import services as audit


class SignInView(LoginView):
    """Sign-in with a password; allauth asks for a code if the account has a second factor."""

    form_class = SignInForm
    authentication_form = SignInForm
    template_name = "relay_access/sign_in.html"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if admin.site.has_permission(request):
            return HttpResponseRedirect(self.get_success_url())
        return super().get(request, *args, **kwargs)

    def form_valid(self, form: Any) -> HttpResponse:
        user = form.get_user()
        login = Login(user=user, email_verification="none", redirect_url=self.get_success_url())
        login.state[SESSION_HASH] = user.get_session_auth_hash()
        answer: HttpResponse = perform_password_login(
            self.request, {"username": user.get_username()}, login
        )
        remember_browser(self.request, answer, user.get_username())
        return answer

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        oidc_url = ""
        if settings.RMB.oidc.issuer:
            oidc_url = reverse("openid_connect_login", kwargs={"provider_id": oidc.PROVIDER})
        return {
            **context,
            **admin.site.each_context(self.request),
            "title": "Sign in",
            "app_path": self.request.get_full_path(),
            "username": self.request.user.get_username(),
            "oidc_url": oidc_url,
            "oidc_name": settings.RMB.oidc.name,
            "next": self.get_redirect_url(),
        }


def own_password(request: HttpRequest) -> HttpResponseBase:
    """Answer with the page for changing the account's password; changes are audited."""
    context = {**admin.site.each_context(request), "title": "Your account"}
    if must_replace_password(request.user):  # until then all other pages redirect here
        context["sidebar_navigation"] = []
    change = PasswordChangeView.as_view(
        form_class=OwnPasswordForm,
        template_name="relay_access/own_password.html",
        success_url=reverse("console:access_own"),
        extra_context=context,
    )
    if request.method != "POST":
        return change(request)
    with audit.exclusive():
        answer = change(request)
        if answer.status_code == 302:
            who = faces.operator(request)
            audit.record(who, "account.change", target=who.name, after={"password": "changed"})
            messages.success(request, "Your password is changed")
    return answer


def closed(request: HttpRequest, **_: Any) -> HttpResponse:
    """Redirect from pages of the library that this site does not have, such as signing up."""
    return redirect("admin:login")
