"""Setup steps that a new installation still lacks; the state of each is looked up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from allauth.mfa.utils import is_mfa_enabled
from django.conf import settings
from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpRequest
from django.urls import reverse

from relay.alarms.models import Receiver
from relay.audit.models import AuditEntry
from relay.dashboard.models import FIRST_STEPS, Dismissal
from relay.dashboard.pages import may
from relay.federation.models import RelayNode
from relay.ops.accounts import OPERATOR_NAME
from relay.ops.doctor.certificates import host_of
from relay.sessions.models import Session
from relay.twins.models import Twin

_OWN_HOSTS: Final = ("localhost", "127.0.0.1", "::1")


class Step(NamedTuple):
    """One setup step.

    Attributes:
        why: reason for the step.
        how: instructions, in words.
        commands: commands to enter.
        url, link: address of the page for the step, and the text of the link to it.
        optional: whether a relay works without it.
    """

    title: str
    done: bool
    why: str
    how: str
    commands: tuple[str, ...] = ()
    url: str = ""
    link: str = ""
    optional: bool = False

    @property
    def missing(self) -> bool:
        """Whether the step is required and not done yet."""
        return not self.done and not self.optional


def look(request: HttpRequest) -> list[Step]:
    """Return all steps with their current states."""
    return [step(request) for step in _STEPS]


def reminder(request: HttpRequest) -> Step | None:
    """Return the next missing step, for the overview.

    None if no step is missing, the account may not make backups, or it dismissed the reminder.
    """
    if not may(request, "backup.make") or dismissed(request.user):
        return None
    steps = (step(request) for step in _STEPS)
    return next((step for step in steps if step.missing), None)


def dismissed(user: User | AnonymousUser) -> bool:
    """Check whether an account has dismissed the reminder."""
    return Dismissal.objects.filter(account_id=user.pk, notice=FIRST_STEPS).exists()


def dismiss(user: User | AnonymousUser) -> None:
    """Stop reminding this account."""
    Dismissal.objects.get_or_create(account_id=user.pk, notice=FIRST_STEPS)


def _name(request: HttpRequest) -> Step:
    names = settings.RMB.relay.domains
    return Step(
        "Give the relay its name",
        any(host_of(each) not in _OWN_HOSTS for each in names),
        "Twins and partner relays find the relay by a DNS name.",
        (
            f"The name is {', '.join(names) or 'not set'} now. Set relay.domains and restart "
            "the relay."
        ),
        ("RMB_RELAY__DOMAINS=relay.example.org",),
        f"{reverse('console:settings')}?find=relay.domains",
        "relay.domains",
    )


def _tls(request: HttpRequest) -> Step:
    relay = settings.RMB.relay
    return Step(
        "Encrypt what clients send",
        # A proxy may also forward requests without TLS; this page's own TLS is only a hint.
        bool(relay.tls_cert or (relay.trusted_proxies and request.is_secure())),
        "Sign-ins and messages cross the network. The relay itself or a proxy can serve TLS.",
        "Set relay.tls_cert and relay.tls_key, or use a proxy and add it to relay.trusted_proxies.",
        ("RMB_RELAY__TLS_CERT=/etc/rmb/relay.pem", "RMB_RELAY__TLS_KEY=/etc/rmb/relay.key"),
        f"{reverse('console:settings')}?find=relay.t",
        "Settings of TLS",
        optional=bool(relay.trusted_proxies),  # whether a proxy uses TLS is not visible from here
    )


def _site(request: HttpRequest) -> Step:
    host = host_of(request.get_host())
    return Step(
        "Serve this site over TLS",
        request.is_secure(),
        "Passwords and cookies of operators cross the network.",
        "Use a proxy with TLS, or a tunnel to the loopback interface.",
        (f"ssh -L 8081:127.0.0.1:8081 {host}",),
        optional=host in _OWN_HOSTS,  # traffic stays on the host, or uses a tunnel
    )


def _account(request: HttpRequest) -> Step:
    made = AuditEntry.objects.filter(
        action="account.add", actor="system", target__startswith=OPERATOR_NAME
    )
    names = set(made.values_list("target", flat=True))
    changed = AuditEntry.objects.filter(
        action="account.change", target__in=names, after_json__contains='"password"'
    )
    left = set(User.objects.filter(username__in=names, is_active=True).values_list("username"))
    kept = {name for (name,) in left} - set(changed.values_list("target", flat=True))
    return Step(
        "Change the initial password",
        not kept,
        "The first start printed it on a terminal, and perhaps into a log.",
        "Change it, or add your own accounts and disable this one.",
        url=reverse("admin:password_change"),
        link="Change the password",
    )


def _second_factor(request: HttpRequest) -> Step:
    return Step(
        "Sign in with a second factor",
        is_mfa_enabled(request.user),
        "A stolen password alone is then useless.",
        (
            "An app on your phone generates the codes. The setting access.require_totp makes "
            "them mandatory for roles."
        ),
        url=reverse("mfa_index"),
        link="Set it up",
    )


def _twins(request: HttpRequest) -> Step:
    on_chain = settings.RMB.twins.source == "tfchain"
    count = Twin.objects.count()
    how = (
        "The relay imports them from the chain; the page Chain shows the progress."
        if on_chain
        else "Add them here or with a command, or read them from the chain: twins.source=tfchain."
    )
    return Step(
        "Add twins",
        bool(count),
        "The relay serves only twins that it knows.",
        f"{count:,} twins are known. {how}",
        () if on_chain else ("manage.py rmb_twin add 7 <public key> --relays relay.example.org",),
        reverse("console:twins"),
        "Twins",
    )


def _session(request: HttpRequest) -> Step:
    return Step(
        "Connect a client",
        Session.objects.exists(),
        "This tests sign-in and delivery.",
        "Run the demo beside a relay of `make run`, or ping the relay as one of your twins.",
        ("make demo", "rmb ping -p data/alice.toml"),
        reverse("console:sessions"),
        "Sessions",
    )


def _receiver(request: HttpRequest) -> Step:
    return Step(
        "Get notified of alarms",
        Receiver.objects.filter(enabled=True).exists(),
        "Receivers notify you of alarms when the console is closed.",
        "Add a webhook or an e-mail address, and send a test.",
        url=reverse("console:alarms_receivers"),
        link="Receivers",
    )


def _backup(request: HttpRequest) -> Step:
    return Step(
        "Write a backup",
        AuditEntry.objects.filter(action="backup.make").exists(),
        "A backup contains twins, limits, accounts and decisions, but not waiting messages.",
        "Write one each night, and keep the file on another machine.",
        ("manage.py rmb_backup /var/backups/rmb.zip",),
    )


def _federation(request: HttpRequest) -> Step:
    return Step(
        "Exchange messages with a partner relay",
        RelayNode.objects.exists(),
        "The relay forwards messages for twins of partner relays.",
        "You need not do anything: partner relays appear when a twin sends to their twins.",
        url=reverse("console:relays"),
        link="Relays",
        optional=True,
    )


_STEPS: Final[tuple[Callable[[HttpRequest], Step], ...]] = (
    _account,
    _second_factor,
    _name,
    _tls,
    _site,
    _twins,
    _session,
    _receiver,
    _backup,
    _federation,
)
