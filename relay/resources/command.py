"""Management commands of declared resources: each list and each verb is a sub-command.

    class Command(ResourceCommand):
        '''The lattice.'''

        help = "List hosts, actors, providers and links of the lattice."
        resources = resources.RESOURCES

    rmb_lattice hosts --order=-seen_at    a table; with --json one JSON array
    rmb_lattice hosts KEY                 all fields of one row
    rmb_lattice put-link ACTOR ...        a verb; asks for confirmation if something is lost

A command with another structure, such as one that lists a single resource, calls `add_list`,
`write_list`, `add_verb` and `perform` itself.
"""

from __future__ import annotations

import argparse
import json
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from django.core.management.base import CommandError
from django.core.serializers.json import DjangoJSONEncoder
from django.db import Error as DatabaseError
from redis.exceptions import RedisError

from relay.access import actor, faces
from relay.ops.arguments import whole_number
from relay.ops.command import RelayCommand
from relay.ops.paging import MAX_PAGE
from relay.ops.printable import shown
from relay.ops.screen import amount
from relay.ops.wording import duration
from relay.resources.declaration import Ask, Resource, Verb
from relay.resources.fields import Argument, Field, Unit, Where, title_of
from relay.resources.values import Choice, Flag, Number, Pairs, Real, Text, Texts, Type

LISTED: Final = 50
EXITS: Final = "exit code: 0 done, 1 refused, not found or no answer, 2 usage"


class ResourceCommand(RelayCommand):
    """A command whose sub-commands are defined by declarations."""

    resources: ClassVar[Sequence[Resource]] = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.description = f"{self.help}\n\n{EXITS}"
        words = parser.add_subparsers(dest="_word", required=True, metavar="SUB-COMMAND")
        for resource in self.resources:
            own = _sub_command(words, resource.command, resource.summary, resource.details)
            if resource.identity:
                told = f"only this one, with all fields: {_said(resource.identity.description)}"
                own.add_argument("_one", nargs="?", type=_reader(resource.identity.type), help=told,
                                 metavar=resource.identity.name.upper())  # fmt: skip
            self.add_list(own, resource)
            own.set_defaults(_resource=resource)
            for verb in resource.verbs:
                own = _sub_command(words, verb.command, verb.summary, verb.details)
                self.add_verb(own, verb)
                own.set_defaults(_verb=verb)
        self.add_words(words)

    def add_words(self, words: Any) -> None:
        """Add sub-commands that are not declared; a hook for subclasses."""

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            with faces.in_command():
                self.run(options)
        except DatabaseError as error:
            raise CommandError(f"the database does not answer: {error}") from None
        except RedisError as error:
            raise CommandError(f"Redis does not answer: {error}") from None

    def run(self, options: dict[str, Any]) -> None:
        """Carry out the sub-command of the arguments."""
        if options.get("_verb"):
            self.perform(options["_verb"], options)
        elif options.get("_one") is not None:
            self.write_one(options["_resource"], options)
        else:
            self.write_list(options["_resource"], options)

    def add_list(self, parser: ArgumentParser, *resources: Resource) -> None:
        """Add the arguments of a list, or of several: filters, order and format."""
        filters = {each.name: each for resource in reversed(resources)
                   for each in resource.filters_of(Where.TERMINAL)}  # fmt: skip
        for each in filters.values():
            part = f" ({each.hint})" if each.hint else ""
            facts: dict[str, Any] = {**_read(each.type), "help": _said(each.description) + part}
            if each.positional:
                parser.add_argument(each.name, nargs="?", **facts)
            else:
                parser.add_argument(_option(each.name), **facts)
        orders = dict.fromkeys(name for resource in resources
                               for name in resource.orders_of(Where.TERMINAL))  # fmt: skip
        names = [name for name in orders if not name.startswith("-")]
        parser.add_argument(
            "--order",
            choices=list(orders),
            metavar="ORDER",
            help=f"{', '.join(names)}; with - in descending order: --order=-{names[0]}",
        )
        parser.add_argument(
            "--limit",
            type=whole_number(1, MAX_PAGE),
            default=LISTED,
            help=f"maximum number of rows (default {LISTED})",
        )
        parser.add_argument("--cursor", default="", help="continue where a list ended")
        parser.set_defaults(_filters=tuple(filters))
        parser.add_argument("--json", action="store_true", help="one JSON array")

    def write_list(self, resource: Resource, options: dict[str, Any]) -> None:
        """Print a page of a resource, as a table or as JSON.

        Raises:
            CommandError: a filter or an order belongs to another list.
        """
        asked = _asked(resource, options)
        found = resource.fetch(asked)
        if options["json"]:
            self.write_json([resource.data(each) for each in found.items])
        else:
            for line in table(resource.columns(), found.items):
                self.stdout.write(line)
            if not found.items and resource.console and not asked.filters:
                self.stderr.write(resource.console.empty)
        if found.next:
            self.stderr.write(f"there are more: --cursor {found.next}")

    def write_one(self, resource: Resource, options: dict[str, Any]) -> None:
        """Print all fields of one row."""
        assert resource.identity is not None
        row = resource.identity.get(options["_one"])
        if options["json"]:
            self.write_json(resource.data(row))
            return
        for each in resource.fields_of(Where.DATA):
            self.stdout.write(f"{title_of(each)}: {cell(each, row)}")

    def add_verb(self, parser: ArgumentParser, verb: Verb) -> None:
        """Add the arguments of a verb."""
        for each in verb.arguments:
            facts: dict[str, Any] = {**_read(each.type), "help": _told(each)}
            if each.required and not each.asked:
                parser.add_argument(each.name, **facts)
            else:
                default = {} if each.required else {"default": each.default}
                parser.add_argument(_option(each.name), required=each.required, **default, **facts)
        if verb.danger:
            parser.add_argument("--yes", action="store_true", help="do not ask")
        told = "one JSON object; needs --yes" if verb.danger else "one JSON object"
        parser.add_argument("--json", action="store_true", help=told)

    def perform(self, verb: Verb, options: dict[str, Any]) -> None:
        """Run a verb and print its result.

        Raises:
            CommandError: an argument is invalid, or the verb was not confirmed.
        """
        given = {each.name: options[each.name] for each in verb.arguments}
        for each in verb.arguments:
            if isinstance(each.type, Texts | Pairs) and given[each.name] != each.default:
                try:
                    given[each.name] = each.type.parse("\n".join(given[each.name]))
                except ValueError as error:
                    raise CommandError(f"{_option(each.name)}: {error}", returncode=2) from None
        if verb.danger and not options["yes"]:
            if options["json"]:
                raise CommandError("--json needs --yes, because it asks no question", returncode=2)
            self._confirm(verb, given)
        answer = verb.run(actor.of_command(), **given)
        if options["json"]:
            self.write_json({each.name: each.value(answer) for each in verb.answer})
        else:
            self.stdout.write(shown(verb.done(_quoted(given), answer)))
        self.require_in_force()

    def _confirm(self, verb: Verb, given: dict[str, Any]) -> None:
        question = verb.confirm(given)
        lost = [f"You lose: {each}" for each in question.loses]
        for line in filter(None, (question.text, *lost)):
            self.stderr.write(shown(line))
        try:
            agreed = input(f"{shown(question.title)}? [y/N] ").strip().lower() in ("y", "yes")
        except EOFError:
            agreed = False
        if not agreed:
            raise CommandError("nothing was done")

    def write_json(self, document: Any) -> None:
        """Print a JSON document."""
        self.stdout.write(json.dumps(document, indent=2, cls=DjangoJSONEncoder))


def table(fields: Sequence[Field], rows: Iterable[Any]) -> list[str]:
    """Return rows as the lines of a table, with numbers aligned to the right."""
    heads = [each.heading or title_of(each).upper() for each in fields]
    lines = [heads, *([cell(each, row) for each in fields] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    right = [isinstance(each.type, Number | Real) for each in fields]
    return [
        "  ".join(
            text.rjust(width) if at_right else text.ljust(width)
            for text, width, at_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    ]


def cell(field: Field, row: Any) -> str:
    """Return the text of a table cell in a terminal."""
    value = field.value(row)
    if value is None:
        return "-"
    if field.unit is Unit.SECONDS:
        return duration(value)
    if field.unit is Unit.MILLISECONDS:
        return duration(value / 1000)
    if field.unit is Unit.SHARE:
        return f"{value:.1%}"
    if field.unit:
        return str(value) if isinstance(value, int) and 0 <= value < 10_000 else amount(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    if isinstance(value, dict):
        value = ", ".join(f"{key}={each}" for key, each in value.items())
    elif isinstance(value, list | tuple):
        value = ", ".join(map(str, value))
    return repr(value) if field.quoted and value else shown(str(value))


def _asked(resource: Resource, options: dict[str, Any]) -> Ask:
    own = {each.name for each in resource.filters_of(Where.TERMINAL)}
    given = {name: options[name] for name in own if options[name] is not None}
    foreign = [
        name for name in options["_filters"] if name not in own and options[name] is not None
    ]
    if foreign:
        raise CommandError(f"{_option(foreign[0])}: this list has no such filter", returncode=2)
    order, orders = options["order"] or resource.order, resource.orders_of(Where.TERMINAL)
    if order not in orders:
        raise CommandError(f"order {order}: must be one of {', '.join(orders)}", returncode=2)
    return Ask(given, order, options["limit"], options["cursor"])


def _sub_command(words: Any, word: str, summary: str, details: str) -> ArgumentParser:
    parser: ArgumentParser = words.add_parser(
        word,
        help=_said(summary),
        description=f"{summary}.\n\n{details}".strip(),
        formatter_class=RawDescriptionHelpFormatter,
    )
    return parser


def _said(sentence: str) -> str:
    """Return a sentence as help text: without the first capital and the full stop."""
    first = sentence[:1].lower() if sentence[1:2].islower() else sentence[:1]
    return (first + sentence[1:].rstrip(".")).replace("%", "%%")


def _told(argument: Argument) -> str:
    """Return the help text of an argument, with its bounds and its default."""
    bounds = argument.type.bounds if isinstance(argument.type, Text | Number) else ""
    default = str(argument.default).lower() if argument.default not in (None, "", [], {}) else ""
    facts = ", ".join(filter(None, (bounds, default and f"default {default}")))
    return _said(argument.description) + (f" ({facts})" if facts else "")


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _read(kind: Type) -> dict[str, Any]:
    """Return the keyword arguments with which argparse reads a value."""
    if isinstance(kind, Choice):
        return {"choices": kind.options}
    if isinstance(kind, Flag):
        return {"type": _reader(kind), "metavar": "true|false"}
    if isinstance(kind, Texts | Pairs):
        form = "NAME=TEXT" if isinstance(kind, Pairs) else "TEXT"
        return {"nargs": "+", "metavar": form}
    return {"type": _reader(kind)}


def _reader(kind: Type) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return kind.parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"invalid value {text:.80}: {error}") from None

    return read


def _quoted(given: dict[str, Any]) -> dict[str, Any]:
    """Return arguments as a sentence in a terminal shows them: texts in quotes."""
    return {name: repr(value) if isinstance(value, str) else value for name, value in given.items()}
