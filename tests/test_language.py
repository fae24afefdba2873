"""Tests of the language check: phrases it must find, texts it must pass, and files it must read."""

from __future__ import annotations

import pytest

from tests.language import PACKAGES, ROOT, literals, marked, texts, without_tags

FOUND = [
    ("alarms tell before users do", "tell before"),
    ("or have a history made up", "have a history made"),
    ("A start looks whether its user may do all", "looks whether"),
    ("doubled is only what the promises allow", "is only what"),
    ("A worker believes a twin for so long.", "so long"),
    ("sessions at most = this x -u", "at most = "),
    ("redis.url: the host is none", "is none"),
    ("is connected: its mail waits", "mail"),
    ("that is its own business", "its own business"),
    ("What it may at most.", "may at most"),
    ("That computes it.", "That computes it"),
    ("Nothing is called that.", "Nothing is called that"),
    ("A click marks all of it.", "marks all of it"),
    ("a passphrase, which nobody is there to type", "nobody is there to"),
    ("it is encrypted; take it off", "take it off"),
    ("write it anew", "anew"),
    ("Whoever signed in", "Whoever"),
    ("Be told of alarms", "told of"),
    ("left out by name", "left out"),
    ("it is then left alone", "left alone"),
    ("the holder did not let go", "let go"),
    ("control state makes no sense", "makes no sense"),
    ("what is not well", "what is not"),
    ("run twice: who does not wait, ends", "who does"),
    ("Mend relay.listen", "Mend"),
    ("it comes to naught", "comes to naught"),
    ("the body is no JSON", "is no"),
    ("0 stopped as asked", "as asked"),
    ("bring an own Redis", "an own"),
    ("a link that lets nobody in", "lets nobody in"),
    ("a role that is taken away", "taken away"),
    ("the key of one's own account", "one's own"),
    ("in the day and at three in the morning", "at three in the morning"),
]
PASSED = [
    "The relay closes the session.",
    "An e-mail address of the account",
    "the twin that sends it, and who receives it",
    "It is flooded: who sends most?",
    "an amendment of recommended values",
    "Leave this page; left over disk space",
    "Who is signed in",
    "is nonexistent",
    "There is no such page; it is no longer there, and there are no more",
]


@pytest.mark.parametrize(("text", "phrase"), FOUND)
def test_marked_phrases_are_found(text: str, phrase: str) -> None:
    hits = [hit.phrase.strip(".:; ") for hit in marked(text)]
    assert hits == [phrase.strip()]


@pytest.mark.parametrize("text", PASSED)
def test_plain_words_pass(text: str) -> None:
    assert not list(marked(text))


def test_a_phrase_over_two_lines_is_found_where_it_begins() -> None:
    (hit,) = marked("one\ntwo is\nnone three", first_line=10)
    assert (hit.line, hit.phrase) == (11, "is none")
    assert "is missing" in hit.hint


def test_tags_of_templates_are_no_words() -> None:
    page = "{% if a is None %}\n{{ b }}It is\n none{# anew #}"
    (hit,) = marked(without_tags(page))
    assert (hit.line, hit.phrase) == (2, "is none")


def test_literals_with_a_blank_are_read() -> None:
    module = '"""Doc anew."""\nA = "anew"\nB = f"write {A} anew"\nC = ("one "\n     "two")\n'
    assert sorted(text for _, text in literals(module)) == [
        " anew",
        "Doc anew.",
        "one two",
        "write ",
    ]


def test_all_places_are_read() -> None:
    files = {path.relative_to(ROOT).as_posix() for path, _, _ in texts(ROOT)}
    assert files >= {
        "README.md",
        "CHANGELOG.md",
        "docs/operate/settings.md",
        "docs/reference/openapi.json",
        "relay/dashboard/templates/relay_dashboard/twin.html",
        "rmbsite/templates/404.html",
    }
    filled = {name for name in PACKAGES if len(list((ROOT / name).rglob("*.py"))) > 1}
    assert {name.partition("/")[0] for name in files if name.endswith(".py")} == filled
    assert not [name for name in files if "migrations" in name or "bench/history" in name]
