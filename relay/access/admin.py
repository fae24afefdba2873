"""What the admin has of access: forms of accounts and groups. The rest is in the console."""

from __future__ import annotations

from allauth.account import admin as _account_pages  # noqa: F401 - they register themselves
from allauth.account.models import EmailAddress
from allauth.mfa import admin as _mfa_pages  # noqa: F401
from allauth.mfa.models import Authenticator
from allauth.socialaccount import admin as _social_pages  # noqa: F401
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from django.contrib import admin

from relay.access import accounts_admin as accounts_admin

# The sign-in's library has pages of its own: of what this site does not use, and of secrets.
for _model in (EmailAddress, SocialAccount, SocialApp, SocialToken, Authenticator):
    if admin.site.is_registered(_model):
        admin.site.unregister(_model)
