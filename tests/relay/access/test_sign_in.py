"""Signing in: what is counted, slowed down and written to the audit log."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from relay.access.models import FailedTries
from relay.access.sign_in import events, throttle
from relay.access.sign_in.forms import COOKIE
from relay.audit import services as audit
from relay.audit.models import AuditEntry

pytestmark = pytest.mark.django_db

PAGE = "/admin/login/"
PASSWORD = "password of a test account"
NEW = "another-long-password-of-a-test"
WAIT = "Too many failures"


@pytest.fixture(autouse=True)
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the clock, so that only `pass_time` ends a wait, however slow the machine is."""
    began = timezone.now()
    monkeypatch.setattr(throttle, "timezone", SimpleNamespace(now=lambda: began))


@pytest.fixture
def olga() -> User:
    """Make a superuser with a password."""
    return User.objects.create(
        username="olga", is_staff=True, is_superuser=True, password=make_password(PASSWORD)
    )


def sign_in(
    client: Client, name: str = "olga", password: str = PASSWORD, address: str = "192.0.2.1"
) -> HttpResponse:
    form = {"username": name, "password": password, "next": "/console/access/"}
    return client.post(PAGE, form, REMOTE_ADDR=address)  # type: ignore[return-value]


def audited() -> list[tuple[str, str, str]]:
    entries = AuditEntry.objects.order_by("number")
    return [(entry.action, entry.target, entry.address) for entry in entries]


def pass_time(seconds: float) -> None:
    for row in FailedTries.objects.all():
        FailedTries.objects.filter(pk=row.pk).update(last=row.last - timedelta(seconds=seconds))


def test_in_and_out(client: Client, olga: User) -> None:
    answer = sign_in(client)
    assert (answer.status_code, answer["Location"]) == (302, "/console/access/")
    assert client.get(PAGE).status_code == 302, "there is nothing to sign in to"
    assert client.post("/admin/logout/", REMOTE_ADDR="192.0.2.1").status_code == 200
    assert client.get("/console/access/own/").status_code == 302
    assert audited() == [
        ("account.sign_in", "olga", "192.0.2.1"), ("account.sign_out", "olga", "192.0.2.1"),
    ]  # fmt: skip


@pytest.mark.parametrize("next_page", ["https://evil.example/", "//evil.example", "javascript:x"])
def test_nobody_is_sent_elsewhere(client: Client, olga: User, next_page: str) -> None:
    form = {"username": "olga", "password": PASSWORD, "next": next_page}
    assert client.post(PAGE, form)["Location"] == "/console/"


def test_failures_are_written_down(client: Client, olga: User) -> None:
    known = sign_in(client, password="wrong-password").content.decode()
    unknown = sign_in(client, name="hunter2-my-password").content.decode()
    assert "enter the correct username and password" in known
    assert "enter the correct username and password" in unknown
    assert audited() == [
        ("account.sign_in_failed", "olga", "192.0.2.1"),
        ("account.sign_in_failed", "hun…", "192.0.2.1"),
    ]


def test_an_account_without_the_site_may_not_in(client: Client, olga: User) -> None:
    for change in ({"is_staff": False}, {"is_staff": True, "is_active": False}):
        User.objects.filter(pk=olga.pk).update(**change)
        assert sign_in(client).status_code == 200
        assert "_auth_user_id" not in client.session


def test_guessing_at_an_account_is_slowed_down(client: Client, olga: User) -> None:
    for number in range(throttle.ACCOUNT.free):
        assert (
            WAIT not in sign_in(client, password="x", address=f"192.0.2.{number}").content.decode()
        )
    answer = sign_in(Client(), address="198.51.100.1").content.decode()
    assert f"{WAIT}: try again in 1 s" in answer, "the right password does not help"
    assert len(audited()) == throttle.ACCOUNT.free, "what is refused unread is not audited"
    pass_time(2)
    assert WAIT not in sign_in(client, password="x").content.decode()
    assert "try again in 2 s" in sign_in(client).content.decode()
    pass_time(2)
    assert sign_in(client).status_code == 302
    assert not FailedTries.objects.filter(failures__gt=throttle.ACCOUNT.free).exists()


def test_an_owner_is_never_locked_out(client: Client, olga: User) -> None:
    """Continuous guessing does not lock an owner out: waits end, and a known browser has none."""
    assert sign_in(client).status_code == 302
    assert client.cookies[COOKIE]["httponly"] and client.cookies[COOKIE]["samesite"] == "Strict"
    client.post("/admin/logout/")
    keys = [throttle.key(throttle.ACCOUNT, "olga")]
    for _ in range(40):
        if throttle.take(keys):
            pass_time(throttle.ACCOUNT.max_wait_s)
    while not (wait_s := throttle.take(keys)):
        pass
    assert wait_s <= throttle.ACCOUNT.max_wait_s
    assert WAIT in sign_in(Client(), address="192.0.2.9").content.decode()
    assert sign_in(client).status_code == 302


def test_a_cookie_of_another_account_does_not_help(client: Client, olga: User) -> None:
    User.objects.create_user("eve", password=PASSWORD, is_staff=True)
    assert sign_in(client, name="eve").status_code == 302
    client.post("/admin/logout/")
    for _ in range(throttle.ACCOUNT.free):
        throttle.take([throttle.key(throttle.ACCOUNT, "olga")])
    assert WAIT in sign_in(client).content.decode()
    client.cookies[COOKIE] = client.cookies[COOKIE].value[:-1] + "x"
    assert WAIT in sign_in(client).content.decode()


def test_guessing_from_an_address_is_slowed_down(client: Client, olga: User) -> None:
    for number in range(throttle.ADDRESS.free):
        sign_in(client, name=f"name{number}", password="x", address="2001:db8::1")
    for address, refused in (("2001:db8::2", True), ("2001:db8:0:1::1", False)):
        assert (WAIT in sign_in(client, name="other", address=address).content.decode()) is refused


def test_a_mapped_address_is_the_one_of_ipv4(client: Client, olga: User) -> None:
    """A mapped IPv4 address, as a dual-stack proxy writes it, counts as that IPv4 address."""
    for number in range(throttle.ADDRESS.free):
        sign_in(client, name=f"name{number}", password="x", address="::ffff:192.0.2.1")
    for address, refused in (("192.0.2.1", True), ("::ffff:192.0.2.2", False)):
        assert (WAIT in sign_in(client, name="other", address=address).content.decode()) is refused


def test_a_known_browser_is_not_slowed_down_by_its_neighbours(client: Client, olga: User) -> None:
    """An attacker behind the owner's proxy, with the same address, does not slow the owner."""
    assert sign_in(client).status_code == 302
    client.post("/admin/logout/")
    for number in range(throttle.ADDRESS.free):
        sign_in(Client(), name=f"name{number}", password="x")
    assert WAIT in sign_in(Client()).content.decode()
    for _ in range(throttle.BROWSER.free):
        assert WAIT not in sign_in(client, password="x").content.decode()
    assert WAIT in sign_in(client).content.decode(), "but it has tries of its own"
    pass_time(2)
    assert sign_in(client).status_code == 302


def test_many_known_browsers_have_no_more_tries_than_one(client: Client, olga: User) -> None:
    browsers = [Client() for _ in range(4)]
    for each in browsers:
        assert sign_in(each).status_code == 302
        each.post("/admin/logout/")
    checked = [
        WAIT not in sign_in(each, password="x").content.decode() for each in browsers for _ in "123"
    ]
    assert sum(checked) == throttle.BROWSER.free


def test_a_new_password_makes_known_browsers_strangers(client: Client, olga: User) -> None:
    assert sign_in(client).status_code == 302
    client.post("/admin/logout/")
    olga.set_password(NEW)
    olga.save()
    for _ in range(throttle.ACCOUNT.free):
        throttle.take([throttle.key(throttle.ACCOUNT, "olga")])
    assert WAIT in sign_in(client, password=NEW).content.decode()


def test_what_has_to_wait_fills_no_table(client: Client, olga: User) -> None:
    for number in range(throttle.ADDRESS.free):
        sign_in(client, name=f"name{number}", password="x")
    rows = FailedTries.objects.count()
    for number in range(3):
        assert WAIT in sign_in(client, name=f"other{number}", password="x").content.decode()
    assert FailedTries.objects.count() == rows


def test_a_session_ends_whatever_is_done_in_it(
    client: Client, olga: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages that write to a session do not extend it beyond `access.session_hours`."""
    sign_in(client)
    now = timezone.now()
    for hours, status in ((11, 200), (13, 302)):
        later = now + timedelta(hours=hours)
        monkeypatch.setattr(timezone, "now", lambda later=later: later)
        client.post("/admin/account/second-factor/totp/activate/")  # writes a secret to the session
        assert client.get("/console/access/own/").status_code == status


def test_tries_are_forgotten() -> None:
    keys = [throttle.key(throttle.ACCOUNT, "olga")]
    for _ in range(throttle.ACCOUNT.free):
        assert throttle.take(keys) == 0
    assert throttle.take(keys) == 1
    pass_time(3601)
    assert throttle.take(keys) == 0
    assert FailedTries.objects.get().failures == 1


def test_strangers_do_not_fill_the_log(
    client: Client, olga: User, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(events, "MAX_FAILED_PER_MINUTE", 3)
    for number in range(5):
        sign_in(client, name=f"name-{number}", password="x", address=f"192.0.2.{number}")
    assert len(audited()) == 3
    assert "too many to audit" in caplog.text and "name-4" not in caplog.text


def test_passwords_are_in_no_table_or_log(
    client: Client, olga: User, caplog: pytest.LogCaptureFixture
) -> None:
    from django.db import connection

    caplog.set_level("DEBUG")
    sign_in(client, password="a-wrong-password")
    sign_in(client)
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names():
            cursor.execute(f'SELECT * FROM "{table}"')
            found = str(cursor.fetchall())
            assert PASSWORD not in found and "a-wrong-password" not in found, table
    lines = "\n".join(
        record.getMessage() for record in caplog.records if record.name != "django.db.backends"
    )
    assert PASSWORD not in lines and "a-wrong-password" not in lines


def test_a_new_password_of_ones_own_is_written_down(client: Client, olga: User) -> None:
    sign_in(client)
    change = {"old_password": "wrong", "new_password1": NEW, "new_password2": NEW}
    assert client.post("/admin/password_change/", change).status_code == 200
    assert not AuditEntry.objects.filter(action="account.change").exists()
    answer = client.post("/admin/password_change/", {**change, "old_password": PASSWORD})
    assert (answer.status_code, answer["Location"]) == (302, "/console/access/own/")
    entry = AuditEntry.objects.get(action="account.change")
    assert (entry.actor, entry.target) == ("olga", "olga")
    assert entry.after == {"password": "changed"} and NEW not in entry.after_json
    assert client.get("/console/access/own/").status_code == 200
    assert Client().get("/admin/password_change/").status_code == 302


def test_the_old_password_is_not_guessed_within_a_session(client: Client, olga: User) -> None:
    """Guesses of the old password are throttled, also in a session that was left open."""
    page, change = "/admin/password_change/", {"new_password1": NEW, "new_password2": NEW}
    sign_in(client)
    for _ in range(throttle.AGAIN.free):
        answer = client.post(page, {**change, "old_password": "wrong"})
        assert WAIT not in answer.content.decode()
    assert len([entry for entry in audited() if entry[0] == events.FAILED]) == throttle.AGAIN.free
    answer = client.post(page, {**change, "old_password": PASSWORD})
    assert answer.status_code == 200 and WAIT in answer.content.decode()
    assert WAIT not in sign_in(Client(), address="192.0.2.9").content.decode()
    pass_time(2)
    assert client.post(page, {**change, "old_password": PASSWORD}).status_code == 302


def test_a_password_that_is_asked_again_is_not_guessed(client: Client, olga: User) -> None:
    sign_in(client)
    page = "/admin/account/again/"
    for _ in range(throttle.AGAIN.free):
        assert WAIT not in client.post(page, {"password": "wrong"}).content.decode()
    assert [entry[:2] for entry in audited()][1:] == [(events.FAILED, "olga")] * throttle.AGAIN.free
    assert WAIT in client.post(page, {"password": PASSWORD}).content.decode()
    pass_time(2)
    assert client.post(page, {"password": PASSWORD}).status_code == 302


@pytest.mark.parametrize(
    "page", ["/admin/password_change/", "/console/access/{}/change/", "/console/access/groups/add/"]
)
def test_the_log_is_held_before_any_row(
    client: Client, olga: User, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    """A change locks the audit log before any row: otherwise two changes could deadlock."""
    order: list[str] = []

    def noted(execute: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith(("UPDATE", "INSERT", "DELETE")) and '"auth_' in sql[:30]:
            order.append("row")
        return execute(sql, *rest)

    sign_in(client)
    monkeypatch.setattr(audit, "_lock", lambda: order.append("log"))
    form = {"old_password": PASSWORD, "new_password1": NEW, "new_password2": NEW}
    form |= {"username": "olga", "role": "superuser", "name": "night shift"}
    with connection.execute_wrapper(noted):
        assert client.post(page.format(olga.pk), form).status_code == 302
    assert order[0] == "log" and "row" in order


def test_closed_pages(client: Client) -> None:
    assert client.get("/admin/account/sign-up/")["Location"] == PAGE
    assert client.get("/admin/account/second-factor/")["Location"].startswith(PAGE)
