"""Command-line parsing that the peer's programs share.

A mistake on the command line is reported as one line on standard error, with exit code 2. The line
names the option, and suggests the nearest known one if the option is unknown. Option names cannot
be abbreviated: an option that is added later could change the meaning of an abbreviation.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NoReturn
from urllib.parse import urlsplit

from chain.urls import at_behind_slash, host_and_port, shown
from peer.identity import Identity, read_secret
from peer.relay_names import distinct
from proto.chain import relays as relay_texts
from proto.federation.domains import is_address, spelled
from proto.identity.errors import SecretError
from proto.identity.signing import KeyType

USAGE_ERROR: Final = 2
"""Exit code after a usage error: nothing was attempted."""

FAILED: Final = 1
"""Exit code after a failure: the action was attempted and did not succeed."""

SECRET_VARIABLE: Final = "RMB_SECRET"
SECRET_FILE_VARIABLE: Final = "RMB_SECRET_FILE"

DEFAULT_RELAYS: Final = ("wss://relay.grid.tf",)
DEFAULT_SUBSTRATE: Final = ("wss://tfchain.grid.tf:443",)

MAX_RELAYS: Final = 4
"""Maximum number of relays, as in the reference gateway; senders try them one after another."""

MAX_URL_CHARS: Final = 1024

_MISSING: Final = "the following arguments are required"
_CHOICE: Final = re.compile(r"invalid choice: .* \(choose from (?=[^(]*\)$)", re.DOTALL)


class UsageError(Exception):
    """An invalid option; the text is meant for the user."""


def at_home(text: str) -> Path:
    """Return the path that a user typed, with `~` expanded; a `~name` of no known user is kept."""
    return Path(os.path.expanduser(text))


class Parser(argparse.ArgumentParser):
    """Argument parser that raises `UsageError` instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        # What was given is not repeated: it may be a word of a secret that was not quoted.
        hint = " (see --help)" if message.startswith(_MISSING) else ""
        raise UsageError(_CHOICE.sub("must be one of ", message).removesuffix(")") + hint)

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse a command line.

        Raises:
            UsageError: the command line is invalid.
        """
        found, unknown = self.parse_known_args(arguments)
        self.refuse(unknown)
        return found

    def refuse(self, unknown: Sequence[str]) -> None:
        """Report arguments that were not recognised, if there are any.

        Raises:
            UsageError: there are unrecognised arguments.
        """
        if unknown:
            raise UsageError(self._explain(unknown[0]))

    def _explain(self, argument: str) -> str:
        name = argument.partition("=")[0]
        known = [text for action in self._actions for text in action.option_strings]
        if not argument.startswith("-") or name in known:  # a known option after `--`
            return "too many arguments (see --help); put a text with spaces in quotes"
        nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
        hint = f"; did you mean {nearest[0]}?" if nearest else " (see --help)"
        return f"unknown option {name:.60}{hint}"


class ShowVersion(argparse.Action):
    """`--version`: print the program and its version, and exit."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        # Imported here: reading the package's metadata takes longer than most of a short command.
        from peer.modules.version import package_version

        print(f"{parser.prog} {package_version()}")
        parser.exit()


def add_version(parser: argparse.ArgumentParser) -> None:
    """Add the option `--version`."""
    parser.add_argument("--version", action=ShowVersion, nargs=0, help="show the version and exit")


def whole_number(least: int, most: int, what: str = "") -> Callable[[str], int]:
    """Return an argparse type that accepts a number written in digits.

    Args:
        least, most: lowest and highest accepted number.
        what: description of the number for the error message, followed by a comma and a space.
    """

    def read(text: str) -> int:
        if text.isascii() and text.isdigit() and len(text) <= len(str(most)):
            number = int(text)
            if least <= number <= most:
                return number
        # What was given is not repeated: it may be a word of a secret that was not quoted.
        raise argparse.ArgumentTypeError(f"must be {what}from {least} to {most}")

    return read


def key_type(name: str) -> KeyType:
    """Return the key type with a name.

    Raises:
        UsageError: no key type has this name.
    """
    try:
        return KeyType[name.upper()]
    except KeyError:
        raise UsageError(f"key type {name!r:.40}: must be sr25519 or ed25519") from None


def secret(text: str | None, file: str | None) -> str:
    """Return the secret of an option or a file; if both are None, of a variable.

    The variables are `RMB_SECRET` and `RMB_SECRET_FILE`.

    Raises:
        UsageError: no secret is given, or it cannot be read. The text never repeats the secret.
    """
    if text is None and file is None:
        file, there = os.environ.get(SECRET_FILE_VARIABLE), os.environ.get(SECRET_VARIABLE)
        if file and there:
            raise UsageError(f"set {SECRET_VARIABLE} or {SECRET_FILE_VARIABLE}, not both")
        if not file and not there:
            raise UsageError(
                "the secret is missing: use --secret-file or --mnemonic, "
                f"or set {SECRET_VARIABLE} or {SECRET_FILE_VARIABLE}"
            )
    try:
        return read_secret(text, file or None, SECRET_VARIABLE)
    except SecretError as error:
        raise UsageError(str(error)) from None


def identity(secret: str, key_type: KeyType) -> Identity:
    """Return the keys derived from a secret.

    Raises:
        UsageError: the text is not a valid secret. The message does not repeat it.
    """
    try:
        return Identity.from_secret(secret, key_type)
    except SecretError as error:
        raise UsageError(f"the secret: {error}") from None


def relay_urls(urls: Sequence[str], *, domains: bool) -> tuple[str, ...]:
    """Check the addresses of relays, and return one address for each relay.

    Args:
        urls: addresses as given.
        domains: whether each relay must have a domain name, because twins list relays by it.

    Raises:
        UsageError: there are too many addresses, or one is not an address of a relay.
    """
    found = tuple(dict.fromkeys(urls))
    if not 1 <= len(found) <= MAX_RELAYS:
        raise UsageError(f"--relay: must be 1 to {MAX_RELAYS} relays, not {len(found)}")
    for url in found:
        problem = _relay_problem(url, domains)
        if problem:
            raise UsageError(f"--relay {shown(url)}: {problem}")
    return distinct(found)


def domain(url: str) -> str:
    """Return the domain name by which twins list the relay at an address."""
    return spelled(urlsplit(url).hostname or "")


def substrate_urls(urls: Sequence[str]) -> tuple[str, ...]:
    """Check the addresses of chain nodes, and return them.

    Raises:
        UsageError: no address is given, there are too many, or one is invalid.
    """
    # Imported here: it imports a websocket client, which is not needed unless nodes are given.
    from chain.rpc import check_urls

    try:
        return check_urls(urls)
    except ValueError as error:
        raise UsageError(f"--substrate: {error}") from None


def _relay_problem(url: str, domains: bool) -> str:
    try:
        host_and_port(url)
    except ValueError as error:
        return f"not an address: {error}"
    parts = urlsplit(url)
    if parts.scheme not in ("ws", "wss"):
        return "must begin with ws:// or wss://"
    if len(url) > MAX_URL_CHARS:
        return f"longer than {MAX_URL_CHARS} characters"
    if not parts.hostname:
        return "has no host"
    if "?" in url or "#" in url:
        return "must not have a query or a fragment"
    if parts.username is not None or at_behind_slash(url):
        return "must not have a user name or a password"
    return _domain_problem(parts.hostname) if domains else ""


def _domain_problem(host: str) -> str:
    """Return why twins on a chain cannot list a host; an empty string if they can."""
    if relay_texts.SEPARATOR in host:
        return f"the host name must not contain {relay_texts.SEPARATOR!r}"
    if is_address(host):
        return "relay URL must contain a domain name, not an IP address"
    return ""
