"""Django settings, derived from :mod:`rmbsite.config`; no decisions are made here."""

from __future__ import annotations

import os
import sys

from django.templatetags.static import static

from rmbsite import config, database, menu
from rmbsite import logging as site_logging

_RESOLVED = config.resolve()
RMB = _RESOLVED.config
# For pages that explain the configuration: the declared settings, and the origin of each value.
RMB_OPTIONS = config.all_options()
RMB_ORIGINS = _RESOLVED.origins

SECRET_KEY = config.secret_key(RMB)
SECRET_KEY_FALLBACKS = list(RMB.site.secret_key_fallbacks)
DEBUG = False
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]", *RMB.admin.hosts]
CSRF_TRUSTED_ORIGINS = [f"https://{host}" for host in RMB.admin.hosts]

# daphne installs a Twisted reactor when its app is loaded. Only `runserver` needs it; relay workers
# and commands must not pay for it.
_DEVELOPMENT_SERVER = ["daphne"] if sys.argv[1:2] == ["runserver"] else []

# Apps that only the operator site and commands need. Loading the admin imports the pages of all
# applications, and with them the sign-in and its libraries, which a relay worker does not need.
_RELAY_WORKER = os.environ.get("RMB_ROLE") == "worker"
_SITE_ONLY = [
    "unfold",
    "django.contrib.admin.apps.SimpleAdminConfig",  # its pages are imported with the URLs
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    # It imports an HTTP client, which takes a tenth of the start-up time.
    *(["allauth.socialaccount.providers.openid_connect"] if RMB.oidc.issuer else []),
]

INSTALLED_APPS = [
    *_DEVELOPMENT_SERVER,
    # The templates of these apps take precedence over those of the theme and of the sign-in.
    "rmbsite",
    "relay.access",
    *([] if _RELAY_WORKER else ["relay.dashboard"]),
    *([] if _RELAY_WORKER else _SITE_ONLY),
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "channels",
    "relay.audit",
    "relay.twins",
    "relay.limits",
    "relay.sessions",
    "relay.sbd",
    "relay.lattice",
    "relay.federation",
    "relay.trace",
    "relay.ops",
    "relay.rest",
    "relay.alarms",
    *([] if _RELAY_WORKER else ["relay.history", "relay.analytics"]),
]

MIDDLEWARE = [
    "rmbsite.streaming.in_parts",
    "django.middleware.security.SecurityMiddleware",
    "relay.dashboard.security.browser_bounds",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "rmbsite.addresses.without_nul",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "relay.access.sign_in.required.second_factor",
    "relay.access.sign_in.use.account_use",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "rmbsite.urls"
ASGI_APPLICATION = "rmbsite.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "relay.access.sign_in.frame.admin_frame",
            ]
        },
    }
]

DATABASES = {"default": database.settings_of(RMB.database.url, RMB.make_data_dir())}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# The core layer reads with a block time of 5 s, which is also redis-py's default time-out: without
# None, an idle reader would time out.
_CHANNEL_HOSTS = [{"address": RMB.redis.url, "socket_timeout": None}]
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.core.RedisChannelLayer",
        "CONFIG": {"hosts": _CHANNEL_HOSTS, "prefix": "relay:channels"},
    },
    # Only the newest live numbers matter, and none must be sent to a process that has ended.
    "console": {
        "BACKEND": "channels_redis.core.RedisChannelLayer",
        "CONFIG": {
            "hosts": _CHANNEL_HOSTS,
            "prefix": "relay:console",
            "expiry": 5,
            "capacity": 3,
            "group_expiry": 60,
        },
    },
}

AUTH_PASSWORD_VALIDATORS = [
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 12},
    },
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

# `/admin/login/` without a next page would end on Django's missing /accounts/profile/.
LOGIN_URL = "admin:login"
LOGIN_REDIRECT_URL = "/console/"

SESSION_COOKIE_NAME = "rmb_operator"
SESSION_COOKIE_AGE = RMB.access.session_hours * 3600
# A browser redirected from another site sends no strict cookie, and the provider's answer could not
# be assigned to a session.
SESSION_COOKIE_SAMESITE = "Lax" if RMB.oidc.issuer else "Strict"
CSRF_COOKIE_SAMESITE = "Strict"
CSRF_FAILURE_VIEW = "rmbsite.refusals.foreign_form"

# In the database, not in Redis: sign-in works while Redis is unavailable, and no code works twice.
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.db.DatabaseCache",
        "LOCATION": "relay_access_cache",
    }
}

ACCOUNT_ADAPTER = "relay.access.sign_in.adapters.AccountAdapter"
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_FORMS = {"reauthenticate": "relay.access.sign_in.forms.PasswordAgainForm"}
ACCOUNT_LOGIN_METHODS = {"username"}
ACCOUNT_SIGNUP_FIELDS = ["username*"]
ACCOUNT_UNIQUE_EMAIL = False
MFA_ADAPTER = "relay.access.sign_in.adapters.MfaAdapter"
MFA_SUPPORTED_TYPES = ["totp", "recovery_codes"]
MFA_TOTP_ISSUER = ", ".join(RMB.relay.domains) or "RMB relay"
MFA_FORMS = {
    "authenticate": "relay.access.sign_in.forms.CodeForm",
    "reauthenticate": "relay.access.sign_in.forms.CodeAgainForm",
    "activate_totp": "relay.access.sign_in.forms.ActivateForm",
}
SOCIALACCOUNT_ADAPTER = "relay.access.sign_in.oidc.SocialAdapter"
SOCIALACCOUNT_PROVIDERS = {
    "openid_connect": {
        "OAUTH_PKCE_ENABLED": True,
        "APPS": [
            {
                "provider_id": "sso",
                "name": RMB.oidc.name,
                "client_id": RMB.oidc.client_id,
                "secret": RMB.oidc.client_secret,
                # The provider's documents are below its URL, even if that ends with a slash.
                "settings": {"server_url": RMB.oidc.issuer.rstrip("/")},
            }
        ]
        if RMB.oidc.issuer
        else [],
    }
}

LANGUAGE_CODE = "en-us"
USE_I18N = False
USE_TZ = True
TIME_ZONE = "UTC"
FORMAT_MODULE_PATH = "rmbsite.formats"

STATIC_URL = "/static/"
# Static files are served from the installed packages: no collect step, nothing to deploy twice.
WHITENOISE_USE_FINDERS = True

EMAIL_HOST = RMB.email.host
EMAIL_PORT = RMB.email.port
EMAIL_HOST_USER = RMB.email.user
EMAIL_HOST_PASSWORD = RMB.email.password
EMAIL_USE_TLS = RMB.email.tls == "starttls"
EMAIL_USE_SSL = RMB.email.tls == "tls"
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = RMB.email.sender or "relay@localhost"

LOGGING = site_logging.settings_of(RMB.log.level, RMB.log.format)

UNFOLD = {
    "SITE_TITLE": "RMB relay",
    "SITE_HEADER": "RMB relay",
    "SITE_SUBHEADER": ", ".join(RMB.relay.domains) or "operator site",
    "SITE_SYMBOL": "hub",
    "SITE_URL": None,  # there is no other site to return to
    "SITE_FAVICONS": [
        {
            "rel": "icon",
            "type": "image/svg+xml",
            "href": lambda request: static("relay_ops/icon.svg"),
        }
    ],
    "STYLES": [
        lambda request: static("relay_dashboard/console.css"),
        lambda request: static("relay_dashboard/palette.css"),
    ],
    "SCRIPTS": [
        lambda request: static("relay_dashboard/theme.js"),
        lambda request: static("relay_dashboard/expressions.js"),
        lambda request: static("relay_dashboard/palette.js"),
    ],
    "ACCOUNT": {"navigation": menu.account_links},
    "SIDEBAR": {
        "show_all_applications": False,
        "navigation": menu.NAVIGATION,
    },
}
