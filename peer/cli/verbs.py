"""Running one verb of `rmb`, and reporting failures in one line."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import logging
import sys
from collections.abc import Collection, Sequence
from typing import Any, Final

from peer.arguments import FAILED, USAGE_ERROR, Parser, UsageError, add_version
from peer.cli import output
from peer.cli.output import printable
from peer.cli.session import ALL, Session, add_options
from peer.errors import PeerError, RemoteError
from peer.gateway import logs
from peer.stdout import given_up

VERBS: Final = {
    "call": "send a command to a twin and print its answer",
    "serve": "answer commands of other twins",
    "upload": "send a file to another twin",
    "ping": "test the connection to the relays, or to a twin",
    "keys": "print the public keys of a secret, or generate a new secret",
    "twin": "print a twin: its account, its encryption key, its relays",
    "sbd": "test an SBD server: listen, send, echo, ping",
    "ops": "call the operations of a relay's operator site",
}
"""Verbs and their short descriptions. Each is a module of this package, imported only when it is
needed: imports take most of the time of a short command."""

INTERRUPTED: Final = 130

EPILOG: Final = """\
examples:
  rmb ping                                     # test the connection to the relay
  rmb call 102 calc.add '[1, 2]'               # send calc.add to twin 102, print the answer
  rmb serve echo=cat                           # answer `echo` with the request's own body
  rmb twin 102 --json

`rmb VERB --help` describes a verb. `make run` in a checkout writes profiles for a first try:
  rmb call -p data/alice.toml 102 echo '"hello"'

exit code: 0 done, 1 failed, 2 invalid option
"""


def run(argv: Sequence[str] | None = None) -> int:
    """Run one verb; return the exit code."""
    try:
        code = _run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        if told := given_up(error):
            print(f"rmb: {told}", file=sys.stderr)
        return FAILED
    return code


def _run(arguments: Sequence[str]) -> int:
    as_json = "--json" in arguments
    if not arguments:
        build_parser(()).print_help(sys.stderr)
        return USAGE_ERROR
    try:
        options = build_parser(arguments).parse(arguments)
        session = Session(options)
        if session.debug:
            logs.set_up(session.debug, "text")
        else:
            # A failure is reported once, by the verb's error.
            clear = output.CLEAR if sys.stderr.isatty() else ""  # clears the progress line
            logging.basicConfig(format=f"{clear}rmb: %(message)s", level=logging.ERROR)
            # Except for the warning that names the relay that is waited for.
            logging.getLogger("peer.client.client").setLevel(logging.WARNING)
        code: int = asyncio.run(options.run(options, session))
    except UsageError as error:
        _tell(error, as_json)
        return USAGE_ERROR
    except PeerError as error:
        _tell(error, as_json)
        return FAILED
    return code


class _Verb(Parser):
    """Parser of a verb, which allows options between its arguments."""

    _within = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        # argparse does not recognise a positional argument that may be missing after an option.
        # `parse_known_intermixed_args` does, and calls this method.
        if self._within:
            return super().parse_known_args(args, namespace)
        self._within = True
        try:
            found, unknown = self.parse_known_intermixed_args(args, namespace)
        finally:
            self._within = False
        self.refuse(unknown)
        return found, []


def build_parser(words: Collection[str]) -> Parser:
    """Return the parser, with complete parsers of the verbs in `words` and names of the others."""
    style: dict[str, Any] = {
        "allow_abbrev": False,
        "formatter_class": argparse.RawDescriptionHelpFormatter,
    }
    parser = Parser(
        prog="rmb",
        description="Exchange messages with other twins of the Reliable Message Bus.",
        epilog=EPILOG,
        **style,
    )
    add_version(parser)
    add_options(parser)
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True, parser_class=_Verb)
    for name, text in VERBS.items():
        verb = verbs.add_parser(
            name, help=text, description=f"{text[0].upper()}{text[1:]}.", **style
        )
        if name in words:
            module = importlib.import_module(f"peer.cli.{name}")
            module.add(verb)
            verb.epilog = module.EPILOG
            verb.set_defaults(run=module.run)
            add_options(verb, getattr(module, "READS", ALL))
    return parser


def _tell(error: Exception, as_json: bool) -> None:
    if as_json:
        told: dict[str, Any] = {"kind": type(error).__name__, "message": str(error)}
        if isinstance(error, RemoteError):
            told |= {"code": error.code, "message": error.message, "twin": error.source.twin}
        print(json.dumps({"error": told}))
    else:
        print(f"rmb: {printable(str(error))}", file=sys.stderr)
