"""Webhooks: signed, in order, retried until accepted, and never sent to forbidden addresses."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from relay.access.actor import Actor, Face
from relay.alarms import bounds, delivery, notice, receivers, sending, signing
from relay.alarms.models import Delivery, Outcome, Receiver
from relay.alarms.rules import BY_KEY, Severity
from relay.audit.models import AuditEntry
from tests.relay.alarms.conftest import configure, webhook
from tests.support.certificates import make_certificate
from tests.support.partner import Delivery as Request
from tests.support.partner import answer, endless_body, garbage, hang_up, in_turn, silence, slow
from tests.support.receivers import Hook, hook
from tests.support.redis_servers import free_port

pytestmark = pytest.mark.django_db

ACTOR = Actor("olga", Face.CLI, "", None)


@pytest.fixture
def server(settings: Any) -> Iterator[Hook]:
    """Run a receiver on loopback, which is allowed, that accepts everything."""
    configure(settings, "alarms", allow_private=True)
    with hook() as found:
        yield found


def tell(count: int = 1, rule: str = "disk") -> list[str]:
    """Queue this number of notices for all receivers; return their ids."""
    ids = []
    for number in range(count):
        told = notice.document(
            notice.FIRED,
            BY_KEY[rule],
            at=time.time(),
            domains=("relay.example",),
            subject=f"/data/{number} \u2603",
            value=93.5,
        )
        delivery.enqueue(told)
        ids.append(told["id"])
    return ids


def deliver() -> int:
    """Run the next round of delivery without its back-off; return how many notices it delivered."""
    Receiver.objects.update(retry_at=0.0)
    return sum(delivery.drain(each.pk) for each in delivery.due(time.time()))


def waiting() -> int:
    return Delivery.objects.filter(outcome=Outcome.WAITING).count()


def test_a_webhook_is_signed_and_in_order(server: Hook) -> None:
    receiver = webhook(server.url, secret="a TEST SECRET of the receiver")
    ids = tell(5)
    assert deliver() == 5 and waiting() == 0
    assert [each["id"] for each in server.documents] == ids
    assert [each["sequence"] for each in server.documents] == [1, 2, 3, 4, 5]
    first = server.requests[0]
    assert (first.method, first.path) == ("POST", "/hook?from=relay")
    assert first.headers["content-type"] == "application/json"
    stamp = first.headers["rmb-alarm-timestamp"]
    signature = first.headers["rmb-alarm-signature"]
    assert first.headers["rmb-alarm-event"] == ids[0]
    secret = receiver.secret
    assert signing.verify(secret, stamp, signature, first.body, time.time())
    assert not signing.verify("another secret", stamp, signature, first.body, time.time())
    assert not signing.verify(secret, stamp, signature, first.body + b" ", time.time())
    assert not signing.verify(secret, str(int(stamp) + 1), signature, first.body, time.time())
    assert not signing.verify(secret, stamp, signature, first.body, time.time() + 301)
    assert not signing.verify(secret, "soon", signature, first.body, time.time())
    assert receiver.secret not in first.body.decode()
    alarm = server.documents[0]["alarm"]
    assert (alarm["rule"], alarm["subject"], alarm["unit"]) == ("disk", "/data/0 \u2603", "%")


def test_a_receiver_that_fails_in_every_way_gets_all_in_order(
    server: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "DELIVERY_S", 0.4)
    webhook(server.url)
    ids = tell(6)
    server.behave(
        in_turn(
            answer(500),
            answer(302, location="http://127.0.0.1:1/elsewhere"),
            answer(404),
            hang_up,
            silence,
            garbage,
            slow(0.2, answer(200)),
            answer(204),
            answer(503),
            answer(200, b"thank you"),
        )
    )
    errors = []
    for _ in range(7):
        deliver()
        errors.append(Receiver.objects.get().last_error)
    assert errors[:6] == [
        "HTTP 500",
        "HTTP 302: redirects are not followed",
        "HTTP 404",
        "no answer: the connection ended",
        "no answer in time",
        errors[5],
    ]
    assert errors[5].startswith("no answer") and errors[6] == "HTTP 503"
    assert deliver() == 4 and waiting() == 0
    came = [each["id"] for each in server.documents]
    assert came == [*[ids[0]] * 6, *ids[:2], ids[2], *ids[2:]]
    assert set(Delivery.objects.values_list("outcome", flat=True)) == {"sent"}
    receiver = Receiver.objects.get()
    assert (receiver.failures, receiver.last_error) == (0, "") and receiver.last_success


def test_a_receiver_that_is_away_and_comes_back(server: Hook) -> None:
    webhook(server.url)
    server.stop()
    ids = tell(3)
    assert deliver() == 0
    ids += tell(2)
    assert deliver() == 0 and waiting() == 5
    assert Receiver.objects.get().failures == 2
    server.start()
    assert deliver() == 5
    assert [each["id"] for each in server.documents] == ids


def test_it_is_not_tried_before_its_time(server: Hook) -> None:
    webhook(server.url)
    server.behave(answer(500))
    tell()
    waits = []
    for _ in range(9):
        assert deliver() == 0
        waits.append(Receiver.objects.get().retry_at - time.time())
        assert delivery.due(time.time()) == []
    for wait, least in zip(waits, [5, 10, 20, 40, 80, 160, 300, 300, 300], strict=True):
        assert least - 1 < wait < 1.2 * least + 1


def test_one_process_at_a_time_delivers_to_a_receiver(server: Hook) -> None:
    webhook(server.url)
    tell()
    assert len(delivery.due(time.time())) == 1
    assert delivery.due(time.time()) == []
    # The process that had claimed it is gone.
    assert len(delivery.due(time.time() + bounds.DELIVERING_S + 1)) == 1


def test_what_is_not_taken_for_a_day_is_given_up_and_shown(server: Hook) -> None:
    webhook(server.url)
    old, new = tell(2)
    Delivery.objects.filter(event_id=old).update(created=timezone.now() - timedelta(hours=25))
    assert deliver() == 1
    given_up = Delivery.objects.get(event_id=old)
    assert (given_up.outcome, given_up.error) == ("given up", "not taken within a day")
    assert [each["id"] for each in server.documents] == [new]


def test_what_waits_is_bounded(server: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_WAITING", 5)
    webhook(server.url)
    ids = tell(8)
    assert waiting() == 5
    assert deliver() == 5
    assert [each["id"] for each in server.documents] == ids[3:]


def test_severity_and_switch_decide_who_hears(server: Hook) -> None:
    webhook(server.url, name="critical", min_severity=Severity.CRITICAL)
    webhook(server.url, name="off", enabled=False)
    webhook(server.url, name="all")
    tell(1, "disk")
    tell(1, "loop_lag")
    told = Delivery.objects.order_by("pk").values_list("receiver__name", "body__alarm__rule")
    assert list(told) == [("all", "disk"), ("critical", "disk"), ("all", "loop_lag")]


def test_an_answer_is_bounded(server: Hook) -> None:
    receiver = webhook(server.url)
    server.behave(endless_body(200))
    told = notice.document(notice.TEST, BY_KEY["disk"], at=time.time(), domains=())
    answered = delivery.send(receiver, told)
    assert answered.ok and len(answered.text) <= bounds.MAX_ERROR_CHARS


def test_private_addresses_only_where_allowed(server: Hook, settings: Any) -> None:
    receiver = webhook(server.url.replace("http://", "https://"))
    configure(settings, "alarms", allow_private=False)
    for target in ("https://127.0.0.1:1/", "https://localhost:1/", "https://[::ffff:169.254.1.1]/"):
        receiver.target = target
        told = notice.document(notice.TEST, BY_KEY["disk"], at=time.time(), domains=())
        answered = delivery.send(receiver, told)
        assert not answered.ok and "public address" in answered.text
    receiver.target = server.url
    assert "must be https://" in delivery.send(receiver, told).text
    assert server.requests == []


def test_tls_is_verified(settings: Any, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with hook(context) as server:
        webhook(server.url)
        tell()
        configure(settings, "alarms", allow_private=True)
        assert deliver() == 0
        assert "certificate verify failed" in Receiver.objects.get().last_error.lower()
        assert server.requests == []
        configure(settings, "alarms", allow_private=True, ca_file=str(certificate))
        assert deliver() == 1


def test_a_test_goes_past_what_waits(server: Hook) -> None:
    receiver = webhook(server.url)
    tell(2)
    answered = receivers.send_test(receiver.pk, actor=ACTOR)
    assert answered == (True, "HTTP 200")
    assert waiting() == 2 and [each["type"] for each in server.documents] == ["alarm.test"]
    assert server.documents[0]["test"] is True
    server.behave(answer(401, b"who are you?"))
    assert receivers.send_test(receiver.pk, actor=ACTOR) == (False, "HTTP 401: who are you?")
    entry = AuditEntry.objects.order_by("number").last()
    assert entry is not None and entry.after == {"ok": False, "said": "HTTP 401: who are you?"}


def test_nobody_listens(settings: Any) -> None:
    configure(settings, "alarms", allow_private=True)
    receiver = webhook(f"http://127.0.0.1:{free_port()}/")
    answered = receivers.send_test(receiver.pk, actor=ACTOR)
    assert not answered.ok and "Connection refused" in answered.text


def test_what_the_page_tells_to_check_signatures_with_works(server: Hook) -> None:
    page = (Path(__file__).parents[3] / "docs/operate/alarms.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    assert "def genuine(" in code
    names: dict[str, Any] = {}
    exec(code, names)  # the example in the documentation
    receiver = webhook(server.url, secret="a TEST SECRET of the receiver")
    tell()
    deliver()
    request: Request = server.requests[0]
    assert names["genuine"](receiver.secret, request.headers, request.body)
    assert not names["genuine"](receiver.secret, request.headers, b"{}")
    assert not names["genuine"](receiver.secret, {}, request.body)


def test_documents_are_json_for_everybody(server: Hook) -> None:
    """Documents contain no infinity or NaN, which JSON parsers of other languages refuse."""
    webhook(server.url)
    tell()
    deliver()
    body = server.requests[0].body

    def refuse(name: str) -> None:
        raise AssertionError(name)

    assert json.loads(body, parse_constant=refuse)
