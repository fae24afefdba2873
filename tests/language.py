"""Find marked phrases in all texts; `python -m tests.language` lists them.

Every phrase has a hint that says what to write instead. A phrase may be wrapped over two lines.
The texts are the documents, the pages, and the string literals of the product that contain a
blank: docstrings, help, settings, descriptions, errors and log messages.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PACKAGES = ("relay", "peer", "chain", "proto", "redispipe", "lattice", "hotpath", "rmbsite")
DOCUMENTS = ("README.md", "CHANGELOG.md", "docs/**/*.md", "docs/**/*.json", "contrib/**/*.md")
TEMPLATES = ("relay/**/templates/**/*.html", "rmbsite/**/*.html")
RECORDS = ("docs/bench/history/",)

# Regular expression of each phrase, in which a blank matches any white space, and its hint.
PHRASES = {
    r"(?<!there\s)\b(is|are) no (?!longer\b|more\b)": "'is not a ...', 'invalid ...'",
    r"\bis none\b": "name it: 'is missing', 'is invalid', 'is empty', 'there is no ...'",
    r"\bso long\b": "give the time: 'for 30 s', 'for this many seconds'",
    r"\banew\b": "again, from the start, regenerate, reset",
    r"\bwhat is not\b": "name the thing: 'messages that are not ...'",
    r"\bwhoever\b": "name who: 'anyone who', 'the operator', 'a client that'",
    r"\bnobody is there to\b": "say what to do instead",
    r"\b(tell|tells|told|say|says|said) of\b": "reports, describes, informs about, notifies",
    r"\bhave (it|them|a \w+) (done|made)\b": "active: generate, run",
    r"\bmakes? no sense\b": "invalid, malformed",
    r"\b(leave|leaves|leaving|left) (out|alone)\b": "skip, omit, ignore, exclude",
    r"\bmay at most\b": "name the limit: 'highest role of ...', 'at most 5 ...'",
    r"\b(comes?|came) to naught\b": "fails",
    r"\bmend(s|ed|ing)?\b": "fix, correct, repair",
    r"\b(let|lets|letting) (it |them )?go\b": "release, unblock, resume",
    r"\b(make|makes|making|made) up\b": "generate, consist of, compensate",
    r"\blook(s|ed|ing)? whether\b": "check whether",
    r"(?:^|[.:;] )who (?!is\b)[a-z]+s\b(?![^.:;?]*\?)": "a noun before 'who': 'the twin that'",
    r"\btells? before\b": "name the alarm and the reader: 'alarms warn you before'",
    r"\bis only what\b": "say when: 'only ... when'",
    r"\bat most = ": "name the limit and its unit",
    r"(?<!e-)\bmails?\b": "message, queue",
    r"\b(its|their|your) own business\b": "say who decides",
    r"(?-i:^That) \w+s it\b": "a noun phrase: 'Job that produces ...'",
    r"\bnothing is called that\b": "not found, with the name",
    r"\bmarks? all of it\b": "say what is selected",
    r"\btake it off\b": "remove it",
    r"\bas asked\b": "name who asked: 'stopped by a signal'",
    r"\ban own\b": "its own, a separate",
    r"\bat three in the morning\b": "when an alarm wakes you, at night",
    r"\b(lets?|let) (it|them|nobody|a twin|somebody) in\b": "accepts, allows, can sign in",
    r"\btaken away\b": "removed, reset",
    r"\bone's own\b": "your own",
}
MARKED = re.compile(
    "|".join(f"(?P<p{n}>{phrase})" for n, phrase in enumerate(PHRASES)).replace(" ", r"\s+"),
    re.IGNORECASE | re.MULTILINE,
)
HINTS = tuple(PHRASES.values())


class Hit(NamedTuple):
    """A marked phrase: its first line in the text, the matched words, and what to write instead."""

    line: int
    phrase: str
    hint: str


def marked(text: str, first_line: int = 1) -> Iterator[Hit]:
    """Yield the marked phrases of a text."""
    for match in MARKED.finditer(text):
        kind = match.lastgroup
        assert kind is not None
        line = first_line + text.count("\n", 0, match.start())
        yield Hit(line, " ".join(match.group().split()), HINTS[int(kind[1:])])


def without_tags(page: str) -> str:
    """Replace the tags of a Django template with blanks; line breaks are kept."""
    tags = re.compile(r"\{%.*?%\}|\{\{.*?\}\}|\{#.*?#\}", re.DOTALL)
    return tags.sub(lambda tag: re.sub(r"[^\n]", " ", tag.group()), page)


def literals(module: str) -> Iterator[tuple[int, str]]:
    """Yield the string literals of a module that contain a blank, with their lines."""
    for node in ast.walk(ast.parse(module)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def texts(root: Path) -> Iterator[tuple[Path, int, str]]:
    """Yield each text that users read: its file, the line in which it begins, and the text."""
    for pattern in DOCUMENTS:
        for path in sorted(root.glob(pattern)):
            if not path.relative_to(root).as_posix().startswith(RECORDS):
                yield path, 1, path.read_text()
    for pattern in TEMPLATES:
        for path in sorted(root.glob(pattern)):
            yield path, 1, without_tags(path.read_text())
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            if "migrations" in path.parts or path.name.endswith("_pb2.py"):
                continue
            for line, text in literals(path.read_text()):
                yield path, line, text


def main() -> int:
    found = 0
    for path, first_line, text in texts(ROOT):
        for hit in marked(text, first_line):
            found += 1
            print(f"{path.relative_to(ROOT)}:{hit.line}: {hit.phrase!r}: write {hit.hint}")
    if found:
        print(f"{found} marked phrases", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
