"""The registry of links and claims: a key-value bucket with JSON values (sheet section 9).

Its entries are not signed: it lists known actors and providers, but proves nothing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from proto.lattice.bounds import MAX_ITEMS, MAX_NAME_CHARS, MAX_REF_CHARS, MAX_REGISTRY_BYTES
from proto.lattice.errors import FormatError
from proto.lattice.json_text import read_object, strings_of, text_or_null, write_json
from proto.lattice.subjects import check_lattice_id
from proto.lattice.wire import Record, text_of

CLAIMS_PREFIX: Final = "CLAIMS_"
LINK_PREFIX: Final = "LINKDEF_"
_ACTOR_ONLY: Final = ("call_alias", "capabilities", "tags")
_CLAIMS: Final = "claims"


@dataclass(frozen=True, slots=True)
class ActorClaims:
    """The registry entry of an actor.

    Attributes:
        subject: public key of the actor (`M...`).
        name: name for people.
        issuer: account key (`A...`) that signed the actor.
        call_alias: another name for calls; empty: none.
        capabilities: contracts that it may use.
        tags: tags of the actor.
        revision: revision, a number.
        version: version for people.
    """

    subject: str
    name: str
    issuer: str = ""
    call_alias: str = ""
    capabilities: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    revision: str = "0"
    version: str = ""

    def encode(self) -> bytes:
        """Return the value for `claims_key(subject)`."""
        return write_json(
            {
                "call_alias": self.call_alias,
                "capabilities": list(self.capabilities),
                "issuer": self.issuer,
                "name": self.name,
                "revision": self.revision,
                "subject": self.subject,
                "tags": list(self.tags),
                "version": self.version,
            }
        )


@dataclass(frozen=True, slots=True)
class ProviderClaims:
    """The registry entry of a provider, without which hosts refuse the provider's calls.

    Attributes:
        subject: public key of the provider (`V...`).
        name: name for people.
        contract_id: contract that it serves.
        issuer: account key (`A...`) that signed the provider.
        revision: revision, a number.
        version: version for people.
        config_schema: schema of its settings; None: none.
    """

    subject: str
    name: str
    contract_id: str
    issuer: str = ""
    revision: str = "0"
    version: str = ""
    config_schema: str | None = None

    def encode(self) -> bytes:
        """Return the value for `claims_key(subject)`."""
        record: Record = {} if self.config_schema is None else {"config_schema": self.config_schema}
        record |= {
            "contract_id": self.contract_id,
            "issuer": self.issuer,
            "name": self.name,
            "revision": self.revision,
            "subject": self.subject,
            "version": self.version,
        }
        return write_json(record)


def bucket_name(lattice: str) -> str:
    """Return the name of the bucket.

    Raises:
        FormatError: `lattice` is not a lattice id.
    """
    return f"LATTICEDATA_{check_lattice_id(lattice)}"


def claims_key(public_key: str) -> str:
    """Return the key of an actor's or a provider's claims."""
    return f"{CLAIMS_PREFIX}{public_key}"


def link_key(actor_id: str, contract_id: str, link_name: str) -> str:
    """Return the key of a link; the provider is not part of it."""
    digest = hashlib.sha256(f"{actor_id}{contract_id}{link_name}".encode())
    return f"{LINK_PREFIX}{digest.hexdigest().upper()}"


def decode_claims(key: str, data: bytes) -> ActorClaims | ProviderClaims:
    """Read the claims under a key: those of an actor if all fields of one are there, as hosts do.

    Raises:
        FormatError: the entry is malformed, or its subject does not match the key.
    """
    record = read_object(data, _CLAIMS, MAX_REGISTRY_BYTES)
    claims: ActorClaims | ProviderClaims
    if all(name in record for name in _ACTOR_ONLY):
        claims = ActorClaims(
            _text(record, "subject"),
            _text(record, "name"),
            _text(record, "issuer"),
            text_or_null(record, _CLAIMS, "call_alias", MAX_NAME_CHARS),
            strings_of(record, _CLAIMS, "capabilities", MAX_ITEMS, MAX_REF_CHARS),
            strings_of(record, _CLAIMS, "tags", MAX_ITEMS, MAX_REF_CHARS),
            _text(record, "revision"),
            _text(record, "version"),
        )
    else:
        schema = record.get("config_schema")
        claims = ProviderClaims(
            _text(record, "subject"),
            _text(record, "name"),
            _text(record, "contract_id"),
            _text(record, "issuer"),
            _text(record, "revision"),
            _text(record, "version"),
            None
            if schema is None
            else text_of(record, _CLAIMS, "config_schema", MAX_REGISTRY_BYTES),
        )
    if claims_key(claims.subject) != key:
        raise FormatError(
            f"claims of {claims.subject[:100]!r} under the key {key[:100]!r}", "subject"
        )
    return claims


def _text(record: Record, name: str) -> str:
    return text_of(record, _CLAIMS, name, MAX_REF_CHARS, None)
