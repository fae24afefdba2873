"""Sending of one notice to one receiver, once: by webhook or by e-mail.

Webhooks are sent like messages to partner relays (`relay.federation.http_client`): TLS is verified,
redirects are not followed, the size of the answer is bounded, and only public addresses are allowed
unless `alarms.allow_private` is set.
"""

from __future__ import annotations

import asyncio
import json
import re
import smtplib
import time
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from django.conf import settings
from django.core.mail import BadHeaderError, EmailMessage, get_connection

from proto.federation import domains
from relay.alarms import notice, signing
from relay.alarms.bounds import ANSWER_BYTES, DELIVERY_S, MAX_ERROR_CHARS
from relay.ops.printable import shown

AGENT: Final = "rmb-relay-alarms/1"
_PATH: Final = re.compile(r"/[!-~]*")


class Answer(NamedTuple):
    """Outcome of a try.

    Attributes:
        ok: whether the receiver accepted the notice.
        text: the receiver's answer, or the error.
    """

    ok: bool
    text: str


class Webhook(NamedTuple):
    """Parsed URL of a webhook."""

    scheme: str
    domain: str
    path: str


class TargetError(ValueError):
    """The text is not a valid URL of a webhook."""


def webhook(url: str) -> Webhook:
    """Parse the URL of a webhook.

    Raises:
        TargetError: the URL is invalid or not allowed.
    """
    try:
        parts = urlsplit(url)
        place = parts.netloc
        domains.parse(place)
    except ValueError as error:
        raise TargetError(f"must be https://host/path: {error}") from None
    path = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
    if parts.scheme not in ("http", "https") or parts.fragment or not _PATH.fullmatch(path):
        raise TargetError("must be https://host/path, in plain characters and without #")
    if parts.scheme == "http" and not settings.RMB.alarms.allow_private:
        raise TargetError("must be https:// (http:// needs alarms.allow_private)")
    return Webhook(parts.scheme, place, path)


def to_webhook(url: str, secret: str, told: dict[str, Any]) -> Answer:
    """Post a notice. This blocks for little more than `DELIVERY_S` at most."""
    # Imported here because processes that only read alarms need no HTTP client.
    from relay.federation.http_client import HttpClient, Unanswered
    from relay.federation.resolver import PublicResolver

    try:
        place = webhook(url)
    except TargetError as error:
        return Answer(False, shown(str(error), MAX_ERROR_CHARS))
    body = json.dumps(told, ensure_ascii=False).encode()
    timestamp = int(time.time())
    headers = {
        "Content-Type": "application/json",
        "User-Agent": AGENT,
        signing.TIMESTAMP_HEADER: str(timestamp),
        signing.SIGNATURE_HEADER: signing.sign(secret, timestamp, body),
        signing.EVENT_HEADER: told["id"],
        "Connection": "close",
    }

    async def post() -> Answer:
        options = settings.RMB.alarms
        client = HttpClient(
            PublicResolver(options.allow_private),
            scheme=place.scheme,
            connect_timeout_s=DELIVERY_S / 2,
            ca_file=options.ca_file,
        )
        try:
            reply = await client.post(
                place.domain, place.path, headers, body, DELIVERY_S, ANSWER_BYTES
            )
        except Unanswered as error:
            return Answer(False, shown(str(error), MAX_ERROR_CHARS))
        finally:
            await client.close()
        said = shown(reply.body.decode("utf-8", "replace"), 80)
        text = f"HTTP {reply.status}{': ' if said else ''}{said}"
        if 300 <= reply.status < 400:
            text = f"HTTP {reply.status}: redirects are not followed"
        return Answer(200 <= reply.status < 300, shown(text, MAX_ERROR_CHARS))

    return asyncio.run(post())


def to_address(address: str, told: dict[str, Any]) -> Answer:
    """Send a notice by e-mail. This blocks until the e-mail server's time-out at most."""
    if not settings.EMAIL_HOST:
        return Answer(False, "email.host is not set")
    event = told["id"]
    domain = settings.DEFAULT_FROM_EMAIL.rpartition("@")[2].strip("> ")
    connection = get_connection()
    message = EmailMessage(
        notice.subject_line(told),
        notice.text(told),
        to=[address],
        connection=connection,
        # A repeat after a lost answer has the same id: most mail programs show it only once.
        headers={"Message-ID": f"<{event}@{domain}>", "Auto-Submitted": "auto-generated"},
    )
    try:
        message.send()
    except (smtplib.SMTPException, OSError, BadHeaderError) as error:
        return Answer(False, shown(f"{type(error).__name__}: {error}", MAX_ERROR_CHARS))
    finally:
        connection.close()  # left open by the library when signing in fails
    return Answer(True, f"taken by {settings.EMAIL_HOST}")
