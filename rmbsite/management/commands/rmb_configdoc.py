"""`manage.py rmb_configdoc`: every setting, its default and its meaning, as Markdown or TOML."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from django.core.management.base import BaseCommand

from rmbsite.config import SECTIONS, all_options
from rmbsite.options import Option


class Command(BaseCommand):
    """The command. It generates the documentation from the declarations, so that it is always up to
    date.
    """

    help = "Print every setting with its default and meaning."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--format",
            choices=("markdown", "toml", "env"),
            default="markdown",
            help="a page (default), an rmb.toml or a list of variables, both commented out",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        write = {"markdown": markdown, "toml": toml, "env": environment}[options["format"]]
        for line in write():
            self.stdout.write(line)


def markdown() -> Iterator[str]:
    """Generate the settings as a page of documentation."""
    yield "# Settings"
    yield ""
    yield "The command line overrides the environment, the environment overrides the file, and the"
    yield "file overrides the defaults. The file is `rmb.toml`, or the one named by `RMB_CONFIG`."
    yield "The setting `a.b` is the key `b` in section `[a]` of the file, and the variable"
    yield "`RMB_A__B`. To read a secret from a separate file, set `a.b_file` or"
    yield "`RMB_A__B_FILE` to its path. The relay does not start with unknown keys."
    for section, options in _sections():
        yield ""
        yield f"## {section}"
        yield ""
        yield (SECTIONS[section].__doc__ or "").splitlines()[0]
        yield ""
        yield "| key | kind | default | meaning |"
        yield "|---|---|---|---|"
        for each in options:
            meaning = " ".join(part for part in (each.doc, _bounds(each)) if part)
            yield f"| `{each.key}` | {each.kind} | {_default(each)} | {meaning} |"


def toml() -> Iterator[str]:
    """Generate an `rmb.toml` in which everything is commented out."""
    for section, options in _sections():
        yield f"[{section}]"
        for each in options:
            yield f"# {' '.join(part for part in (each.doc, _bounds(each)) if part)}"
            yield f"# {each.name} = {_toml_value(each.default)}"
            yield ""


def environment() -> Iterator[str]:
    """Generate the environment variables, commented out."""
    for each in all_options():
        yield f"# {' '.join(part for part in (each.doc, _bounds(each)) if part)}"
        yield f"# {each.variable}={_plain(each.default)}"
        yield ""


def _sections() -> Iterator[tuple[str, list[Option]]]:
    for section, options in groupby(all_options(), key=lambda each: each.section):
        yield section, list(options)


def _bounds(each: Option) -> str:
    bounds = each.bounds
    if bounds.choices:
        return f"One of: {', '.join(bounds.choices)}."
    if bounds.minimum is not None and bounds.maximum is not None:
        return f"From {bounds.minimum} to {bounds.maximum}."
    if bounds.minimum is not None:
        return f"At least {bounds.minimum}."
    return f"At most {bounds.maximum}." if bounds.maximum is not None else ""


def _default(each: Option) -> str:
    plain = _plain(each.default)
    return f"`{plain}`" if plain else "empty"


def _plain(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _toml_value(value: Any) -> str:
    # Strings, numbers, arrays and booleans have the same form in JSON and TOML.
    return json.dumps(list(value) if isinstance(value, tuple) else value)
