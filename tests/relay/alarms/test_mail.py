"""Alarms by e-mail, through a real SMTP conversation."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relay.alarms import delivery, notice
from relay.alarms.models import Receiver
from relay.alarms.rules import BY_KEY
from tests.relay.alarms.conftest import configure
from tests.relay.alarms.test_delivery import deliver, tell, waiting
from tests.support.certificates import make_certificate
from tests.support.receivers import MailServer, mail_server

pytestmark = pytest.mark.django_db


def use(settings: Any, server: MailServer, host: str = "127.0.0.1", **more: Any) -> None:
    """Apply what `rmbsite.settings` makes of the section `email`."""
    configure(settings, "email", host=host, port=server.port, sender="relay@example.org")
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = host, server.port
    settings.DEFAULT_FROM_EMAIL = "relay@example.org"
    for name, value in more.items():
        setattr(settings, name, value)


@pytest.fixture
def server(settings: Any) -> Iterator[MailServer]:
    with mail_server() as found:
        use(settings, found)
        yield found


@pytest.fixture
def receiver(db: None) -> Receiver:
    return Receiver.objects.create(name="ops", kind="email", target="ops@example.org")


def test_an_alarm_comes_by_mail(server: MailServer, receiver: Receiver) -> None:
    (event,) = tell()
    assert deliver() == 1
    (message,) = server.messages
    assert server.recipients == ["ops@example.org"]
    assert message["From"] == "relay@example.org" and message["To"] == "ops@example.org"
    assert message["Message-ID"] == f"<{event}@example.org>"
    assert message["Subject"].strip() == (
        "[relay.example] FIRING critical: The data folder's disk is almost full (/data/0 \u2603)"
    )
    text = message.get_content()
    assert "reading     93.5 % (threshold 90)" in text and "1. `df -h`" in text


def test_mail_that_is_refused_waits_in_order(server: MailServer, receiver: Receiver) -> None:
    server.refuse = "451 come later"
    tell(3)
    assert deliver() == 0 and waiting() == 3
    assert "451" in Receiver.objects.get().last_error
    server.refuse = ""
    assert deliver() == 3
    assert [f"/data/{number} " in server.messages[number]["Subject"] for number in range(3)] == [
        True, True, True
    ]  # fmt: skip


def test_what_an_alarm_is_about_cannot_add_headers(server: MailServer, receiver: Receiver) -> None:
    told = notice.document(
        notice.FIRED,
        BY_KEY["queue_near_full"],
        at=time.time(),
        domains=("relay.example",),
        subject="7:x\r\nBcc: everybody@example.org\r\n\r\nhello",
    )
    assert delivery.send(receiver, told).ok
    (message,) = server.messages
    assert message["Bcc"] is None and server.recipients == ["ops@example.org"]
    assert "7:x\\r\\nBcc: everybody@example.org\\r\\n\\r\\nhello" in message["Subject"]


def test_tls_and_password(
    settings: Any, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with mail_server(context) as server:
        server.user, server.password = "relay", "a TEST PASSWORD"
        use(settings, server, "localhost", EMAIL_USE_TLS=True, EMAIL_HOST_USER="relay")
        tell()
        settings.EMAIL_HOST_PASSWORD = "a TEST PASSWORD"
        assert deliver() == 0  # no trusted authority signed its certificate
        assert "certificate verify failed" in Receiver.objects.get().last_error.lower()
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        settings.EMAIL_HOST_PASSWORD = "wrong"
        assert deliver() == 0
        assert "535" in Receiver.objects.get().last_error
        assert "wrong" not in Receiver.objects.get().last_error
        settings.EMAIL_HOST_PASSWORD = "a TEST PASSWORD"
        assert deliver() == 1 and server.secured
        assert len(server.messages) == 1


def test_without_a_mail_server(settings: Any, receiver: Receiver) -> None:
    settings.EMAIL_HOST = ""
    tell()
    assert deliver() == 0
    assert Receiver.objects.get().last_error == "email.host is not set"
