"""REST, console, command and reference of a resource, all derived from its declaration."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from relay.resources.command import cell
from relay.resources.reference import markdown
from tests.relay.dashboard.conftest import sign_in
from tests.relay.resources.lamps import COUNT, DONE, LAMPS, RESOURCE, Command, Lamp
from tests.relay.resources.lamps_urls import API

__all__ = ["sign_in"]

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.relay.resources.lamps_urls")]

REST = "/house/lamps"
PAGE = "/console/lamps/"


@pytest.fixture(autouse=True)
def house(site_redis: Any) -> None:
    LAMPS.clear()
    DONE.clear()
    for lamp in (
        Lamp("attic light", "hall", True, 40.0, labels={"age": "3"}),
        Lamp("=lamp/1", "cellar", note="old"),
        Lamp("porch", "hall", True, 99.0),
    ):
        LAMPS[lamp.id] = lamp


@pytest.fixture
def operator(sign_in: Callable[[str], Client]) -> Client:
    return sign_in("operator")


@pytest.fixture
def viewer(sign_in: Callable[[str], Client]) -> Client:
    return sign_in("viewer")


def ids(client: Client, **query: str) -> list[str]:
    return [each["id"] for each in client.get(REST, query).json()["items"]]


def send(client: Client, method: str, path: str, **body: Any) -> Any:
    return client.generic(method, f"{REST}/{path}", json.dumps(body), "application/json")


def test_rest_lists_filters_and_orders(viewer: Client) -> None:
    first = viewer.get(REST, {"limit": "2", "order": "-power"}).json()
    assert [each["id"] for each in first["items"]] == ["porch", "attic light"]
    assert first["items"][1] == {
        "id": "attic light", "room": "hall", "lit": True, "power": 0.4, "note": None,
        "since": "2026-01-31T12:00:00Z", "labels": {"age": "3"},
    }  # fmt: skip
    assert ids(viewer, order="-power", cursor=first["next"]) == ["=lamp/1"]
    assert ids(viewer, lit="false") == ["=lamp/1"]
    assert ids(viewer, room="hall", since="2026-01-01T00:00:00Z") == ["attic light", "porch"]
    assert ids(viewer, since="2027-01-01T00:00:00Z") == []
    assert viewer.get(f"{REST}/porch").json()["power"] == 0.99
    assert viewer.get(f"{REST}/moon").status_code == 404
    for wrong in ({"room": "attic"}, {"order": "room"}, {"lit": "yes"}, {"colour": "red"}):
        answer = viewer.get(REST, wrong)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (
            422,
            f"query.{next(iter(wrong))}",
        )


def test_rest_verbs(viewer: Client, operator: Client) -> None:
    assert send(viewer, "POST", "porch/switch", power=5).status_code == 403
    assert send(viewer, "DELETE", "porch").status_code == 403
    assert DONE == []
    assert send(operator, "POST", "porch/switch", power=5).json() == {"count": 3}
    assert LAMPS["porch"].power == 5
    body = {"room": "hall", "labels": {"a": "b"}, "lit": True}
    assert send(operator, "PUT", "new", **body).json() == {"count": 4}
    assert (LAMPS["new"].labels, LAMPS["new"].lit) == ({"a": "b"}, True)
    assert send(operator, "PUT", "new", **body).status_code == 409
    assert operator.delete(f"{REST}/new?reason=lost").status_code == 422
    assert operator.delete(f"{REST}/new?reason=sold").status_code == 204
    assert operator.delete(f"{REST}/new").status_code == 404
    assert DONE[-1] == ("a operator", "remove new sold")
    assert {name for name, _ in DONE} == {"a operator"}
    for wrong in ({"power": 101}, {"power": "5"}, {}, {"power": 5, "colour": "red"},
                  {"power": 5, "code": "12ab"}):  # fmt: skip
        assert send(operator, "POST", "porch/switch", **wrong).status_code == 422
    assert send(operator, "PUT", "x", room="hall", tags=["a", "b", "c"]).status_code == 422
    assert send(operator, "PUT", "x", room="hall", tags=["too long"]).status_code == 422


def test_the_openapi_document() -> None:
    document = json.loads(API.document)
    paths = {path: set(item) for path, item in document["paths"].items()}
    assert paths == {
        "/api/v1/lamps": {"get"},
        "/api/v1/lamps/{id}": {"get", "put", "delete"},
        "/api/v1/lamps/{id}/switch": {"post"},
    }
    get = document["paths"]["/api/v1/lamps"]["get"]
    assert (get["operationId"], get["summary"]) == ("list_lamps", "List lamps")
    assert get["x-action"] == "session.view" and get["tags"] == ["lamps"]
    row = document["components"]["schemas"]["LampOut"]
    assert row["properties"]["room"]["description"] == "Room that has the lamp."
    switch = document["paths"]["/api/v1/lamps/{id}/switch"]["post"]
    assert (switch["operationId"], switch["x-action"]) == ("switch_lamp", "session.kick")
    body = document["components"]["schemas"]["SwitchLampIn"]["properties"]["power"]
    assert (body["minimum"], body["maximum"]) == (0, 100)


def test_the_table(viewer: Client, operator: Client) -> None:
    text = operator.get(PAGE).content.decode()
    for expected in (
        "attic light", "The hall", ">dark<", "Brightness", "Room that has the lamp.", "99 %",
        'value="hall">Hall<', f"{PAGE}porch/switch/", f"{PAGE}=lamp~2F1/remove/", "age=3",
        f"{PAGE}add/", f'href="{PAGE}porch/"',
    ):  # fmt: skip
        assert expected in text, expected
    assert "Since" in text and "2026-01-31" not in text, "nobody chose the column"
    assert "2026-01-31" in operator.get(f"{PAGE}?column=since").content.decode()
    text = viewer.get(PAGE).content.decode()
    assert "attic light" in text and "/switch/" not in text and f"{PAGE}add/" not in text
    text = viewer.get(f"{PAGE}?lit=false&order=-power").content.decode()
    assert "=lamp/1" in text and "porch" not in text
    assert f"{PAGE}add/?room=hall" in operator.get(f"{PAGE}?room=hall").content.decode()
    for wrong in ("room=attic", "lit=yes", "order=room"):
        assert viewer.get(f"{PAGE}?{wrong}").status_code == 422, wrong
    LAMPS.clear()
    assert "It is dark." in viewer.get(PAGE).content.decode()


def test_the_export(viewer: Client) -> None:
    answer = viewer.get(f"{PAGE}?export=csv&order=-power&room=cellar")
    (row,) = csv.DictReader(io.StringIO(answer.getvalue().decode()))
    assert (row["id"], row["room"], row["lit"]) == ("'=lamp/1", "cellar", "dark")
    rows = json.loads(viewer.get(f"{PAGE}?export=json&order=-power").getvalue())
    assert [each["power"] for each in rows] == [0.99, 0.4, 0.0]


def test_one_row(viewer: Client, operator: Client) -> None:
    text = operator.get(f"{PAGE}=lamp~2F1/").content.decode()
    for expected in ("Lamp =lamp/1", "Brightness", "31 12:00:00 UTC", f"{PAGE}=lamp~2F1/remove/"):
        assert expected in text, expected
    assert f'href="{PAGE}=lamp~2F1/"' not in text, "a link to itself"
    assert "Note" in text and ">old<" in text, "not a column"
    assert "/remove/" not in operator.get(f"{PAGE}porch/").content.decode(), "too bright"
    assert "/remove/" not in viewer.get(f"{PAGE}porch/").content.decode()
    assert viewer.get(f"{PAGE}moon/").status_code == 404


def test_a_verb_asks_and_is_done(viewer: Client, operator: Client) -> None:
    remove = f"{PAGE}=lamp~2F1/remove/"
    for path in (remove, f"{PAGE}porch/switch/", f"{PAGE}add/"):
        assert viewer.get(path).status_code == viewer.post(path).status_code == 403
    text = operator.get(remove).content.decode()
    for expected in ("Remove lamp =lamp/1", "It goes out.", "You lose:", "Why it is removed."):
        assert expected in text, expected
    assert DONE == [], "a question"
    answer = operator.post(remove, {"reason": ""})
    assert (answer.status_code, answer.headers["Location"]) == (302, PAGE)
    assert DONE == [("a operator", "remove =lamp/1 None")]
    assert "Lamp =lamp/1 is removed" in operator.get(PAGE).content.decode()
    assert "there is no lamp =lamp/1" in operator.post(remove).content.decode()


def test_a_form_reads_as_rest_does(operator: Client) -> None:
    text = operator.get(f"{PAGE}add/?room=cellar").content.decode()
    assert '<option value="cellar" selected>Cellar<' in text and "checked" in text, "the defaults"
    assert "One name=text on each line." in text
    form = {"id": "new", "room": "cellar", "labels": "a=b=c\r\n d = e", "tags": "x\n", "lit": "on"}
    for wrong, told in (
        ({"id": ""}, "This field is required."),
        ({"id": "x" * 21}, "must have 1 to 20 characters"),
        ({"room": "attic"}, "attic is not one of the available choices"),
        ({"labels": "alone"}, "lines of the form name=text"),
        ({"labels": "a=1\na=2"}, "twice"),
        ({"tags": "a\nb\nc"}, "at most 2 lines"),
    ):
        answer = operator.post(f"{PAGE}add/", {**form, **wrong})
        assert answer.status_code == 200 and told in answer.content.decode(), told
    assert operator.post(f"{PAGE}add/", form).status_code == 302
    assert LAMPS["new"] == Lamp("new", "cellar", True, labels={"a": "b=c", "d": " e", "x": "tag"})
    assert "there is a lamp new" in operator.post(f"{PAGE}add/", form).content.decode()
    switch = f"{PAGE}new/switch/"
    text = operator.get(switch).content.decode()
    assert "Percent of the power (0 to 100)." in text and 'value="0000"' in text
    for code, told in (("000", "must have 4 characters, has 3"), ("12ab", "digits only")):
        assert told in operator.post(switch, {"power": "1", "code": code}).content.decode()
    assert "from 0 to 100" in operator.post(switch, {"power": "101"}).content.decode()
    assert operator.post(switch, {"power": "7"}).status_code == 302
    assert LAMPS["new"].power == 7


def test_a_row_is_edited(viewer: Client, operator: Client) -> None:
    edit = f"{PAGE}add/?id=attic+light"
    assert f'href="{edit}"' in operator.get(PAGE).content.decode()
    assert f'href="{edit}"' in operator.get(f"{PAGE}attic light/").content.decode()
    assert "Edit" not in viewer.get(PAGE).content.decode()
    text = operator.get(edit).content.decode()
    for expected in ("Edit lamp attic light", 'value="hall" selected', "\nage=3<", "readonly",
                     ">Save<"):  # fmt: skip
        assert expected in text, expected
    assert operator.get(f"{PAGE}add/?id=moon").status_code == 404


def run(*arguments: str) -> tuple[str, str]:
    out, hints = StringIO(), StringIO()
    call_command(Command(), *arguments, stdout=out, stderr=hints)
    return out.getvalue(), hints.getvalue()


def test_the_command_lists(house: None) -> None:
    text, hint = run("lamps", "--limit", "2", "--order=-power")
    assert text.splitlines() == [
        "ID             ROOM  LIT  BRIGHTNESS  LABELS",
        "'porch'        hall  yes       99.0%",
        "'attic light'  hall  yes       40.0%  age=3",
    ]
    assert cell(COUNT[0], {"count": 3}) == "3", "a whole number"
    cursor = hint.split()[-1]
    assert "=lamp/1" in run("lamps", "--order=-power", "--cursor", cursor)[0]
    assert [each["id"] for each in json.loads(run("lamps", "--lit", "false", "--json")[0])] == [
        "=lamp/1"
    ]
    assert run("lamps", "--since", "2027-01-01")[0].count("\n") == 1
    assert json.loads(run("lamps", "porch", "--json")[0])["power"] == 0.99
    assert "Room: hall\n" in run("lamps", "porch")[0]
    assert run("lamps", "--since", "2027-01-01")[1] == "", "a filter hides them"
    LAMPS.clear()
    assert run("lamps")[1] == "It is dark.\n"
    for wrong, told in (
        (("--room", "attic"), "invalid choice"),
        (("--order", "room"), "invalid choice"),
        (("--limit", "0"), "from 1 to 1,000"),
        (("--since", "noon"), "must be a time"),
        (("moon",), "there is no lamp moon"),
    ):
        with pytest.raises(CommandError, match=told):
            run("lamps", *wrong)


def test_the_command_does_verbs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("switch-lamp", "porch", "--power", "7")[0] == "lamp 'porch' has 7 %\n"
    assert json.loads(run("switch-lamp", "porch", "--power", "8", "--json")[0]) == {"count": 3}
    run("add", "--id", "new", "--room", "hall", "--labels", "a=b", "c=d=e")
    assert LAMPS["new"].labels == {"a": "b", "c": "d=e"}
    with pytest.raises(CommandError, match="--labels: must have lines of the form name=text"):
        run("add", "--id", "other", "--room", "hall", "--labels", "alone")
    monkeypatch.setattr(sys, "stdin", StringIO("n\ny\n"))
    with pytest.raises(CommandError, match="nothing was done"):
        run("remove-lamp", "porch")
    assert "porch" in LAMPS
    text, asked = run("remove-lamp", "porch", "--reason", "sold")
    assert text == "lamp 'porch' is removed\n" and "You lose: lamp porch" in asked
    with pytest.raises(CommandError, match="needs --yes"):
        run("remove-lamp", "new", "--json")
    assert json.loads(run("remove-lamp", "new", "--yes", "--json")[0]) == {}
    with pytest.raises(CommandError, match="required: --power"):
        run("switch-lamp", "attic light")


def test_the_help_says_what_the_declaration_does(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, expected in (
        ((), ("list lamps", "switch a lamp", "exit code")),
        (("lamps",), ("All lamps of the house.", "only lamps of this room", "--room {hall,cellar}",
                      "id, power; with -", "--since SINCE")),
        (("switch-lamp",), ("percent of the power (0 to 100)",
                            "code of the lamp (4 characters, default 0000)")),
        (("remove-lamp",), ("why it is removed", "--yes", "name of the lamp")),
    ):  # fmt: skip
        with pytest.raises(SystemExit):
            Command().create_parser("manage.py", "lamps").parse_args([*arguments, "--help"])
        shown = " ".join(capsys.readouterr().out.split())
        for each in expected:
            assert each in shown, each


def test_the_reference() -> None:
    page = "\n".join(markdown([RESOURCE]))
    for expected in (
        "## lamps",
        "`GET /lamps`, `GET /lamps/{id}`",
        "| `power` | number | share of 1 | Share of the highest power. |",
        "| `room` | `hall`, `cellar` | Only lamps of this room. |",
        "- REST: `DELETE /lamps/{id}`",
        "| `power` | whole number, 0 to 100, required | Percent of the power. |",
        "permission `relay_sessions.kick_session`, from the role operator",
    ):
        assert expected in page, expected


def test_the_committed_reference_is_that_of_the_declarations() -> None:
    out = StringIO()
    call_command("rmb_resourcedoc", stdout=out)
    file = Path(__file__).parents[3] / "docs" / "reference" / "resources.md"
    assert file.read_text() == out.getvalue(), "run `make docs`"
