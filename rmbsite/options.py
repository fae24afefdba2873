"""Declaration, parsing and documentation of settings.

A section of the configuration is a frozen dataclass whose fields are created by :func:`option`:
each has its default, its doc text and its bounds. :func:`read` turns layers of raw values (file,
environment, command line) into such a section. It refuses unknown keys and names the nearest known
one. ``manage.py rmb_configdoc`` generates the documentation from the same declarations, so the two
cannot disagree.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from chain.urls import hide_credentials

# A secret is one line; more than this is the wrong file.
MAX_SECRET_FILE_BYTES = 16 * 1024

# No sensible setting is larger; numbers given as text are limited to as many digits.
LARGEST_NUMBER = 10**18

TRUE_WORDS = frozenset({"1", "true", "yes", "on"})
FALSE_WORDS = frozenset({"0", "false", "no", "off"})

HIDDEN = "(set, not shown)"
SPEAKS_OF_SECRETS = re.compile(r"(?i)secret|passw|passphrase|token|key|credential")
"""Pattern for names of secret settings that are passed on to other programs, such as Spark."""

Section = TypeVar("Section")


class ConfigError(ValueError):
    """A setting that is unknown, of the wrong type or out of its bounds. The message names it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """Conditions that a value must satisfy in addition to its type."""

    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()


class Option(NamedTuple):
    """One declared setting, as the documentation and ``rmb_checkconfig`` show it."""

    section: str
    name: str
    kind: str
    default: Any
    doc: str
    bounds: Bounds
    secret: bool

    @property
    def key(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def variable(self) -> str:
        return f"RMB_{self.section.upper()}__{self.name.upper()}"

    def shown(self, value: Any) -> Any:
        """Return a value, from the running configuration or a file, in a form that may be
        displayed.

        A secret is hidden, unless it is the default, which is documented. In other settings,
        passwords in addresses are hidden, and in lists the value of each `name=value` that looks
        like a secret.
        """
        if value == self.default:
            return value
        if self.secret:
            return HIDDEN
        if isinstance(value, str):
            words = split_words(value) if self.kind == "list" else ()
            if words and tuple(map(_shown_word, words)) != words:
                return tuple(map(_shown_word, words))
            return hide_credentials(value)
        if isinstance(value, list | tuple):
            return type(value)(map(_shown_word, value))
        return value


class RawValue(NamedTuple):
    """A value as found, and its origin, which errors and ``rmb_checkconfig`` name."""

    value: Any
    origin: str


def option(
    default: Any,
    doc: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
    secret: bool = False,
) -> Any:
    """Declare one setting.

    Args:
        default: value if no layer sets it.
        doc: one or two sentences for the operator.
        minimum: smallest number allowed.
        maximum: largest number allowed.
        choices: the only texts allowed.
        secret: whether it is never shown, and may be read from the file named by ``<key>_file``.
    """
    metadata = {"doc": doc, "bounds": Bounds(minimum, maximum, choices), "secret": secret}
    return dataclasses.field(default=default, metadata=metadata)


def options_of(name: str, section: type[Any]) -> Iterator[Option]:
    """Generate the settings that a section class declares, in order."""
    hints = get_type_hints(section)
    for field in dataclasses.fields(section):
        yield Option(
            section=name,
            name=field.name,
            kind=_kind(hints[field.name]),
            default=field.default,
            doc=field.metadata["doc"],
            bounds=field.metadata["bounds"],
            secret=field.metadata["secret"],
        )


def read(name: str, section: type[Section], raw: Mapping[str, RawValue]) -> Section:
    """Build one section from the raw values that were found for it.

    Raises:
        ConfigError: a key is unknown, or a value is of the wrong type or out of bounds.
    """
    known = {declared.name: declared for declared in options_of(name, section)}
    values = {}
    for key, found in raw.items():
        declared = known.get(key)
        if declared is None:
            raise unknown_key(f"{name}.{key}", (each.key for each in known.values()), found.origin)
        values[key] = _parse(declared, found)
    return section(**values)


def unknown_key(key: str, known: Iterable[str], origin: str) -> ConfigError:
    """Return the error for an undeclared key, with the nearest one that exists."""
    nearest = difflib.get_close_matches(key, list(known), n=1, cutoff=0.5)
    hint = f", did you mean {nearest[0]}?" if nearest else ""
    return ConfigError(f"unknown setting {key} ({origin}){hint}")


def read_secret_file(key: str, path: Path) -> str:
    """Return the one line of text of a file that contains a secret.

    Raises:
        ConfigError: the file cannot be read, is empty or too large, or has more than one line.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_SECRET_FILE_BYTES + 1)
        text = content.decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{key}: cannot read {path}: {error}") from None
    if len(content) > MAX_SECRET_FILE_BYTES:
        raise ConfigError(f"{key}: {path} is larger than {MAX_SECRET_FILE_BYTES} bytes")
    if not text or "\n" in text:
        raise ConfigError(f"{key}: {path} must hold one line of text")
    return text


def split_words(text: str) -> tuple[str, ...]:
    """Split a list given as text at commas and white space."""
    return tuple(word for word in re.split(r"[\s,]+", text) if word)


def _shown_word(word: Any) -> Any:
    if not isinstance(word, str):
        return word
    # Search the value too: it may contain options of yet another program, with their own names.
    name, equals, _ = word.partition("=")
    if equals and SPEAKS_OF_SECRETS.search(word):
        return f"{name}={HIDDEN}"
    return hide_credentials(word)


def _kind(hint: Any) -> str:
    if get_origin(hint) is tuple and get_args(hint) == (str, ...):
        return "list"
    names: dict[Any, str] = {str: "text", int: "integer", float: "number", bool: "yes/no"}
    return names[hint]


def _parse(declared: Option, found: RawValue) -> Any:
    value = _convert(declared, found)
    bounds = declared.bounds
    where = f"{declared.key} ({found.origin})"
    if bounds.choices and value not in bounds.choices:
        raise ConfigError(f"{where}: must be one of {', '.join(bounds.choices)}, not {value!r}")
    if bounds.minimum is not None and value < bounds.minimum:
        raise ConfigError(f"{where}: must be at least {bounds.minimum}, not {value}")
    if bounds.maximum is not None and value > bounds.maximum:
        raise ConfigError(f"{where}: must be at most {bounds.maximum}, not {value}")
    return value


def _convert(declared: Option, found: RawValue) -> Any:
    """Convert a value to its type: text from the environment and command line, typed values from
    the file.
    """
    value = found.value
    match declared.kind:
        case "text" if isinstance(value, str):
            return value
        case "list" if isinstance(value, str):
            return split_words(value)
        case "list" if isinstance(value, list) and all(isinstance(word, str) for word in value):
            return tuple(value)
        case "yes/no" if isinstance(value, bool):
            return value
        case "yes/no" if isinstance(value, str) and value.lower() in TRUE_WORDS | FALSE_WORDS:
            return value.lower() in TRUE_WORDS
        case "integer" if isinstance(value, int) and _is_number(value):
            return value
        case "integer" if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value.strip()):
            return int(value)
        case "number" if _is_number(value):
            return float(value)
        case "number" if isinstance(value, str) and re.fullmatch(
            r"-?[0-9]{1,15}(\.[0-9]{1,9})?", value.strip()
        ):
            return float(value)
    shown = "(secret)" if declared.secret else repr(value)
    raise ConfigError(f"{declared.key} ({found.origin}): must be {declared.kind}, not {shown}")


def _is_number(value: Any) -> bool:
    """Return whether a typed value is a finite number; bounds cannot exclude NaN."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < LARGEST_NUMBER
