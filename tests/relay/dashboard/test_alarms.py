"""The alarm pages: firing alarms, acknowledging them, silences, rules, receivers and notices."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from relay.access.actor import SYSTEM
from relay.access.matrix import Role
from relay.alarms import services
from relay.alarms.models import Alarm, Evaluation, RuleOverride, Silence
from relay.audit.models import AuditEntry
from tests.relay.alarms.conftest import Evaluate, states, webhook
from tests.relay.alarms.conftest import evaluate as evaluate
from tests.relay.dashboard.conftest import SignIn
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db

BASE = "/console/alarms"


@pytest.fixture
def fired(evaluate: Evaluate, site_redis: RedisServer) -> Alarm:
    """Return one of three alarms, fired as no worker takes background tasks while no relay runs."""
    evaluate(6)
    return Alarm.objects.filter(rule="background_down", state="firing").order_by("subject")[0]


def text(client: Client, path: str) -> str:
    answer = client.get(f"{BASE}{path}")
    assert answer.status_code == 200, path
    return answer.content.decode()


def test_what_fires_and_what_to_do(sign_in: SignIn, fired: Alarm) -> None:
    client = sign_in(Role.VIEWER)
    page = text(client, "/")
    assert page.count("<article") == 3
    assert "Background work has stopped" in page and "when true, for 15 s" in page
    assert "<code>celery.embedded</code>" in page, "the runbook's steps"
    assert "/acknowledge/" not in page and "silences/add" not in page, "viewers look"
    part = client.get(f"{BASE}/", headers={"HX-Target": "alarms-now"}).content.decode()
    assert 'id="alarms-now"' in part and "<html" not in part
    one = text(client, f"/{fired.pk}/")
    assert fired.subject in one and "Event" in one and "fired" in one
    assert "Background work has stopped" in text(client, "/history/?kind=fired")
    assert "Nothing matches" in text(client, "/history/?kind=resolved")


def test_nothing_fires(sign_in: SignIn) -> None:
    client = sign_in(Role.VIEWER)
    assert "Alarms were not evaluated yet" in text(client, "/")
    Evaluation.objects.create(pk=Evaluation.ONLY, done=timezone.now().timestamp())
    page = text(client, "/")
    assert "No alarm fires." in page and "not evaluated" not in page


def test_looking_after_one(sign_in: SignIn, fired: Alarm) -> None:
    client = sign_in(Role.OPERATOR)
    path = f"{BASE}/{fired.pk}/acknowledge/"
    assert fired.subject in client.get(path).content.decode(), "the question names it"
    client.post(path, {"note": "I look"})
    fired.refresh_from_db()
    assert (fired.state, fired.note) == ("acknowledged", "I look")
    page = text(client, "/")
    assert "I look" in page and f"/{fired.pk}/unacknowledge/" in page
    assert page.index("firing") < page.index("I look"), "what nobody looks after comes first"
    asked = client.get(f"{BASE}/{fired.pk}/unacknowledge/").content.decode()
    assert "the note: I look" in asked
    client.post(f"{BASE}/{fired.pk}/unacknowledge/")
    assert set(states("background_down").values()) == {"firing"}
    again = client.post(f"{BASE}/{fired.pk}/unacknowledge/", follow=True).content.decode()
    assert "is not acknowledged" in again
    assert client.get(f"{BASE}/999999/").status_code == 404
    entry = AuditEntry.objects.latest("number")
    assert (entry.action, entry.face) == ("alarm.unacknowledge", "admin")


def test_silences(sign_in: SignIn, fired: Alarm) -> None:
    client = sign_in(Role.OPERATOR)
    assert "receivers get notices of all alarms" in text(client, "/silences/")
    asked = text(client, f"/silences/add/?rule=background_down&subject={fired.subject}")
    assert f'value="{fired.subject}"' in asked
    fields = {"rule": "background_down", "subject": "*", "note": "at work", "hours": "4"}
    for change, wrong in (
        ({"note": ""}, "required"),
        ({"rule": "nothing"}, "matches no rule"),
        ({"hours": ""}, "Choose a duration"),
        ({"hours": "", "until": "2001-01-01T00:00"}, "is over"),
    ):
        answer = client.post(f"{BASE}/silences/add/", {**fields, **change})
        assert answer.status_code == 200 and wrong in answer.content.decode()
    client.post(f"{BASE}/silences/add/", fields)
    silence = Silence.objects.get()
    assert abs(silence.until - timezone.now() - timedelta(hours=4)) < timedelta(minutes=1)
    assert set(states("background_down").values()) == {"silenced"}
    assert "at work" in text(client, "/silences/") and "silenced" in text(client, "/")
    client.post(f"{BASE}/silences/{silence.pk}/end/")
    assert not Silence.objects.exists()
    assert client.get(f"{BASE}/silences/{silence.pk}/end/").status_code == 404
    until = timezone.now() + timedelta(days=40)
    client.post(f"{BASE}/silences/add/", {**fields, "until": f"{until:%Y-%m-%dT%H:%M}"})
    assert abs(Silence.objects.get().until - until) < timedelta(minutes=1)


def test_rules(sign_in: SignIn, fired: Alarm) -> None:
    viewer, owner = sign_in(Role.VIEWER), sign_in(Role.OWNER)
    listed = text(viewer, "/rules/")
    assert "at most 21 days" in listed and "/change/" not in listed
    assert "/rules/disk/change/" in text(owner, "/rules/")
    assert "df -h" in text(viewer, "/rules/disk/")
    address = f"{BASE}/rules/disk/change/"
    wrong = owner.post(address, {"clear": "95", "enabled": "on"}).content.decode()
    assert "must not be above the threshold" in wrong
    owner.post(address, {"threshold": "70", "enabled": "on"})
    assert RuleOverride.objects.get().threshold == 70
    assert "at least 70 %" in text(viewer, "/rules/")
    assert "at least 90 %" in text(viewer, "/rules/disk/")
    assert 'value="70"' in owner.get(address).content.decode()
    services.set_rule("disk", threshold=91.234567, actor=SYSTEM)
    assert 'value="91.234567"' in owner.get(address).content.decode(), "as it is, to be sent back"
    owner.post(address, {"enabled": "on"})
    assert not RuleOverride.objects.exists()
    owner.post(f"{BASE}/rules/redis_away/change/", {"hold_s": "3"})
    assert services.get_rule("redis_away").enabled is False
    assert owner.get(f"{BASE}/rules/nothing/").status_code == 404


def test_receivers_and_notices(
    sign_in: SignIn, evaluate: Evaluate, site_redis: RedisServer
) -> None:
    receiver = webhook("https://hooks.example/secret/path")
    evaluate(6)
    viewer, operator = sign_in(Role.VIEWER), sign_in(Role.OPERATOR)
    listed = text(viewer, "/receivers/")
    assert "hooks.example" in listed and "secret/path" not in listed and "/test/" not in listed
    assert "/receivers/add/" not in text(operator, "/receivers/")
    assert "/receivers/add/" in text(sign_in(Role.OWNER), "/receivers/")
    told = text(viewer, f"/notices/?receiver={receiver.name}&outcome=waiting")
    assert "Background work has stopped" in told
    path = f"{BASE}/receivers/{receiver.pk}/test/"
    assert "https://hooks.example/…" in operator.get(path).content.decode()
    answer = operator.post(path, follow=True).content.decode()
    assert "did not accept the test" in answer


def test_of_another_release(sign_in: SignIn) -> None:
    """Alarms of rules that no longer exist are shown with what their rows hold."""
    now = timezone.now()
    gone = Alarm.objects.create(
        rule="of_old", severity="critical", state="firing", since=now, phase="firing", value=3
    )
    client = sign_in(Role.OWNER)
    assert "of_old" in text(client, "/") and "of_old" in text(client, f"/{gone.pk}/")


def test_names_of_strangers_do_no_harm(sign_in: SignIn, fired: Alarm) -> None:
    Alarm.objects.filter(pk=fired.pk).update(subject="<script>", detail="<b>bold</b>")
    services.silence("*", "<i>*", until=timezone.now() + timedelta(hours=1), actor=SYSTEM)
    client = sign_in(Role.OWNER)
    for path in ("/", f"/{fired.pk}/", f"/{fired.pk}/acknowledge/", "/silences/"):
        page = text(client, path)
        assert "<script>" not in page and "<b>bold" not in page and "<i>*" not in page
