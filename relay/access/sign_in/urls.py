"""URLs of the sign-in pages below `/admin/`: only those of the library that this site uses."""

from __future__ import annotations

from typing import Any

from allauth.account import views as account
from allauth.socialaccount import views as social
from django.conf import settings
from django.contrib import admin
from django.urls import include, path

from relay.access.sign_in import oidc
from relay.access.sign_in.views import SignInView, closed, own_password

_sign_in = SignInView.as_view()

urlpatterns: list[Any] = [
    path("login/", _sign_in, name="account_login"),
    path("logout/", admin.site.logout, name="account_logout"),
    path("password_change/", admin.site.admin_view(own_password, cacheable=True)),
    path("account/again/", account.reauthenticate, name="account_reauthenticate"),
    path("account/inactive/", closed, name="account_inactive"),
    path("account/sign-up/", closed, name="account_signup"),
    path("account/second-factor/", include("allauth.mfa.urls")),
]

if settings.RMB.oidc.issuer:
    _provider = "account/oidc/<str:provider_id>/"
    urlpatterns += [
        path(f"{_provider}login/", oidc.login, name="openid_connect_login"),
        path(f"{_provider}callback/", oidc.callback, name="openid_connect_callback"),
        path("account/oidc/cancelled/", closed, name="socialaccount_login_cancelled"),
        path("account/oidc/error/", social.login_error, name="socialaccount_login_error"),
        path("account/oidc/sign-up/", closed, name="socialaccount_signup"),
        path("account/oidc/", closed, name="socialaccount_connections"),
    ]
