"""NATS subjects and queue groups of the lattice (sheet sections 1 and 9)."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from proto.lattice.bounds import CACHED_KEYS, MAX_LATTICE_ID_CHARS, MAX_NAME_CHARS
from proto.lattice.entity import Entity
from proto.lattice.errors import FormatError

RPC_PREFIX: Final = "wasmbus.rpc"
CONTROL_PREFIX: Final = "wasmbus.ctl"
EVENT_PREFIX: Final = "wasmbus.evt"
PROVIDER_GROUP: Final = "rpc"
"""Queue group of all instances of a provider."""

_LATTICE_ID: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_LATTICE_ID_CHARS}}}")
# Characters that a subject must not contain: blanks and control characters end it on the wire,
# and wildcards widen a subscription.
_UNSENDABLE: Final = re.compile(r"[\s\x00-\x20\x7f*>]")


class SubjectKind(StrEnum):
    """Kind of a message on an RPC subject; the value is the end of a provider's subject."""

    CALL = ""
    LINK_PUT = "linkdefs.put"
    LINK_DEL = "linkdefs.del"
    HEALTH = "health"
    SHUTDOWN = "shutdown"


class RpcSubject(NamedTuple):
    """The parts of an RPC subject.

    Attributes:
        lattice: id of the lattice.
        public_key: public key of the actor or provider.
        link_name: link name of a provider; empty for an actor.
        kind: kind of the message.
    """

    lattice: str
    public_key: str
    link_name: str
    kind: SubjectKind


def check_lattice_id(lattice: str) -> str:
    """Return the lattice id if it can name subjects and buckets.

    Raises:
        FormatError: it is empty or too long, or has characters other than letters, digits, `_`
            and `-`.
    """
    if not _LATTICE_ID.fullmatch(lattice):
        raise FormatError(
            f"invalid lattice id {lattice[: MAX_LATTICE_ID_CHARS + 1]!r}: expected 1 to"
            f" {MAX_LATTICE_ID_CHARS} letters, digits, '_' or '-'",
            "lattice",
        )
    return lattice


def check_link_name(link_name: str) -> str:
    """Return the link name if it can be part of a provider's subject.

    Raises:
        FormatError: it is empty or too long, contains blanks, wildcards or empty tokens, or ends
            like another subject of providers.
    """
    if not link_name or len(link_name) > MAX_NAME_CHARS:
        raise FormatError(
            f"link name of {len(link_name)} characters, expected 1 to {MAX_NAME_CHARS}", "link_name"
        )
    _check_token(link_name, "link name", "link_name")
    for kind in SubjectKind:
        if kind and f".{link_name}".endswith(f".{kind}"):
            raise FormatError(
                f"invalid link name {link_name!r}: providers use the ending {kind.value!r}"
                " for other messages",
                "link_name",
            )
    return link_name


@lru_cache(maxsize=CACHED_KEYS)
def rpc_subject(lattice: str, entity: Entity) -> str:
    """Return the subject of calls to an entity, with the link name unchanged.

    Raises:
        FormatError: NATS cannot carry the key or the link name.
    """
    if entity.link_name:
        return provider_subject(lattice, entity.public_key, entity.link_name)
    return actor_subject(lattice, entity.public_key)


def actor_subject(lattice: str, actor: str) -> str:
    """Return the subject of calls to an actor.

    Raises:
        FormatError: NATS cannot carry the key.
    """
    return f"{RPC_PREFIX}.{check_lattice_id(lattice)}.{_check_key(actor)}"


def provider_subject(
    lattice: str, provider: str, link_name: str, kind: SubjectKind = SubjectKind.CALL
) -> str:
    """Return the subject of a provider for a kind of message.

    Raises:
        FormatError: NATS cannot carry the key or the link name.
    """
    base = (
        f"{RPC_PREFIX}.{check_lattice_id(lattice)}.{_check_key(provider)}"
        f".{check_link_name(link_name)}"
    )
    return f"{base}.{kind.value}" if kind else base


def queue_group(lattice: str, entity: Entity) -> str:
    """Return the queue group of calls to an entity, which all its instances share.

    Members of another group would receive copies of the same calls.
    """
    return PROVIDER_GROUP if entity.link_name else actor_subject(lattice, entity.public_key)


def parse_rpc_subject(subject: str) -> RpcSubject:
    """Split an RPC subject into its parts.

    Raises:
        FormatError: the subject is not an RPC subject.
    """
    parts = subject.split(".", 4)
    if len(parts) < 4 or f"{parts[0]}.{parts[1]}" != RPC_PREFIX or not all(parts):
        raise FormatError(
            f"invalid RPC subject {subject[:MAX_NAME_CHARS]!r}: expected"
            f" {RPC_PREFIX}.<lattice>.<key>[.<link name>]",
            "subject",
        )
    lattice, key = check_lattice_id(parts[2]), parts[3]
    if len(parts) == 4:
        return RpcSubject(lattice, key, "", SubjectKind.CALL)
    rest = parts[4]
    for kind in SubjectKind:
        if kind and rest.endswith(f".{kind.value}"):
            return RpcSubject(lattice, key, rest.removesuffix(f".{kind.value}"), kind)
    return RpcSubject(lattice, key, rest, SubjectKind.CALL)


def control_subject(lattice: str, *parts: str, prefix: str = CONTROL_PREFIX) -> str:
    """Return a subject of the control interface.

    Args:
        lattice: id of the lattice.
        parts: parts after the lattice, such as `"get", "links"`.
        prefix: prefix of the subjects; hosts may be set up with another than the default.

    Raises:
        FormatError: NATS cannot carry a part.
    """
    for part in (prefix, *parts):
        _check_token(part, "part of a control subject", "subject")
    return ".".join((prefix, check_lattice_id(lattice), *parts))


def event_subject(lattice: str, name: str = "*") -> str:
    """Return the subject of an event; without a name, one that matches all events."""
    if name != "*":
        _check_token(name, "event name", "subject")
    return f"{EVENT_PREFIX}.{check_lattice_id(lattice)}.{name}"


def _check_key(key: str) -> str:
    if not key or len(key) > MAX_NAME_CHARS or "." in key:
        raise FormatError(f"invalid key {key[:MAX_NAME_CHARS]!r} in a subject", "public_key")
    _check_token(key, "key", "public_key")
    return key


def _check_token(text: str, name: str, field: str) -> None:
    if not text or _UNSENDABLE.search(text) or "" in text.split("."):
        raise FormatError(
            f"invalid {name} {text[:MAX_NAME_CHARS]!r}: NATS subjects cannot hold blanks, control"
            " characters, '*', '>' or empty tokens",
            field,
        )
