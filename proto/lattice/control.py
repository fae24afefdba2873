"""The control interface of hosts: requests and answers in JSON (sheet section 9).

An accepting answer means that the request was understood, not that it was carried out. Nothing is
signed, so any client with permission to publish can answer: each answer is therefore limited in
size, and compared to its request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from proto.lattice.bounds import (
    MAX_CONTROL_BYTES,
    MAX_ISSUERS,
    MAX_ITEMS,
    MAX_LINK_VALUE_CHARS,
    MAX_LINK_VALUES,
    MAX_LINKS,
    MAX_NAME_CHARS,
    MAX_REF_CHARS,
    MAX_UINT,
)
from proto.lattice.errors import FormatError, KeyFormatError
from proto.lattice.json_text import read_object, records_of, text_or_null, write_json
from proto.lattice.messages import LinkDefinition, link_of_record
from proto.lattice.nkeys import KeyKind, decode_public
from proto.lattice.subjects import CONTROL_PREFIX, control_subject
from proto.lattice.wire import Record, bool_of, text_of, texts_of, wrong


class ControlRequest(NamedTuple):
    """A request.

    Attributes:
        subject: subject on which to publish it.
        body: body of the message.
        gathers: whether each host answers; an empty answer then ends the answers.
    """

    subject: str
    body: bytes = b""
    gathers: bool = False


@dataclass(frozen=True, slots=True)
class Ack:
    """Acknowledgement of a request.

    Attributes:
        accepted: whether the request was understood; it may not have been carried out.
        error: why it was not accepted.
    """

    accepted: bool
    error: str = ""


@dataclass(frozen=True, slots=True)
class Host:
    """A host that answered a ping.

    Attributes:
        id: public key of the host (`N...`).
        lattice: id of the lattice.
        friendly_name: name for people.
        issuer: cluster key (`C...`) that signs its calls; empty: not stated.
        cluster_issuers: cluster keys (`C...`) whose calls it accepts.
        labels: labels of the host.
        version: version of its software.
        uptime_s: seconds since its start.
        rpc_url, control_url: URLs of its NATS servers.
        js_domain: JetStream domain; empty: none.
    """

    id: str
    lattice: str = ""
    friendly_name: str = ""
    issuer: str = ""
    cluster_issuers: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    uptime_s: int = 0
    rpc_url: str = ""
    control_url: str = ""
    js_domain: str = ""


@dataclass(frozen=True, slots=True)
class RunningActor:
    """An actor that a host runs.

    Attributes:
        id: public key of the actor (`M...`).
        name: name from its claims.
        image_ref: image from which it was started.
        max_instances: maximum number of instances, in all its groups together.
        revision: revision from its claims.
    """

    id: str
    name: str = ""
    image_ref: str = ""
    max_instances: int = 0
    revision: int = 0


@dataclass(frozen=True, slots=True)
class RunningProvider:
    """A provider that a host runs.

    Attributes:
        id: public key of the provider (`V...`).
        link_name: link name that it serves.
        contract_id: contract that it serves.
        name: name from its claims.
        image_ref: image from which it was started.
        revision: revision from its claims.
    """

    id: str
    link_name: str = ""
    contract_id: str = ""
    name: str = ""
    image_ref: str = ""
    revision: int = 0


@dataclass(frozen=True, slots=True)
class Inventory:
    """The actors and providers that a host runs.

    Attributes:
        host_id: public key of the host (`N...`).
        issuer: cluster key (`C...`) that signs its calls; empty: not stated.
        friendly_name: name for people.
        labels: labels of the host.
        version: version of its software.
        uptime_s: seconds since its start.
        actors: actors that it runs.
        providers: providers that it runs.
    """

    host_id: str
    issuer: str = ""
    friendly_name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    uptime_s: int = 0
    actors: tuple[RunningActor, ...] = ()
    providers: tuple[RunningProvider, ...] = ()


class Control:
    """Builds requests.

    Args:
        lattice: id of the lattice.
        prefix: prefix of the subjects; hosts may be set up with another than the default.

    Raises:
        FormatError: NATS cannot carry the subject; all methods raise it too, for their arguments.
    """

    __slots__ = ("_lattice", "_prefix")

    def __init__(self, lattice: str, prefix: str = CONTROL_PREFIX) -> None:
        control_subject(lattice, prefix=prefix)
        self._lattice = lattice
        self._prefix = prefix

    def ping_hosts(self) -> ControlRequest:
        """Return a request that all hosts answer; see `decode_host`."""
        return ControlRequest(self._subject("ping", "hosts"), gathers=True)

    def get_inventory(self, host_id: str) -> ControlRequest:
        """Return a request for what a host runs; see `decode_inventory`."""
        return ControlRequest(self._subject("get", host_id, "inv"))

    def get_links(self) -> ControlRequest:
        """Return a request for all links; see `decode_links`."""
        return ControlRequest(self._subject("get", "links"))

    def get_claims(self) -> ControlRequest:
        """Return a request for the claims in the registry; see `decode_claims_list`."""
        return ControlRequest(self._subject("get", "claims"))

    def put_link(self, link: LinkDefinition) -> ControlRequest:
        """Return a request to link an actor to a provider.

        To change the values of a link, delete it first.
        """
        return self._json(("linkdefs", "put"), link.to_record())

    def del_link(self, actor_id: str, contract_id: str, link_name: str) -> ControlRequest:
        """Return a request to delete a link."""
        link = LinkDefinition(actor_id, "", link_name, contract_id)
        return self._json(("linkdefs", "del"), link.to_record())

    def auction_actor(self, actor_ref: str, constraints: Mapping[str, str]) -> ControlRequest:
        """Return a request for bids to run an actor; see `decode_bid`.

        Hosts of version 0.82 ignore the constraints.
        """
        record = {"actor_ref": actor_ref, "constraints": dict(constraints)}
        return self._json(("auction", "actor"), record)._replace(gathers=True)

    def auction_provider(
        self, provider_ref: str, link_name: str, constraints: Mapping[str, str]
    ) -> ControlRequest:
        """Return a request for bids to run a provider; see `decode_bid`.

        Hosts that already run the provider do not answer.
        """
        record = {
            "constraints": dict(constraints),
            "link_name": link_name,
            "provider_ref": provider_ref,
        }
        return self._json(("auction", "provider"), record)._replace(gathers=True)

    def scale_actor(
        self,
        host_id: str,
        actor_ref: str,
        count: int,
        annotations: Mapping[str, str] | None = None,
    ) -> ControlRequest:
        """Return a request to run at most `count` instances of an actor at once; 0 stops it."""
        return self._command(
            host_id, "scale", annotations, {"actor_ref": actor_ref, "count": count}
        )

    def stop_actor(
        self, host_id: str, actor_ref: str, annotations: Mapping[str, str] | None = None
    ) -> ControlRequest:
        """Return a request to stop an actor."""
        return self._command(host_id, "sa", annotations, {"actor_ref": actor_ref})

    def update_actor(
        self,
        host_id: str,
        actor_id: str,
        new_actor_ref: str,
        annotations: Mapping[str, str] | None = None,
    ) -> ControlRequest:
        """Return a request to replace an actor by another revision."""
        record = {"actor_id": actor_id, "new_actor_ref": new_actor_ref}
        return self._command(host_id, "upd", annotations, record)

    def start_provider(
        self,
        host_id: str,
        provider_ref: str,
        link_name: str,
        configuration: str | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> ControlRequest:
        """Return a request to start a provider."""
        record = {"link_name": link_name, "provider_ref": provider_ref}
        if configuration is not None:
            record["configuration"] = configuration
        return self._command(host_id, "lp", annotations, record)

    def stop_provider(
        self,
        host_id: str,
        provider_ref: str,
        link_name: str,
        contract_id: str,
        annotations: Mapping[str, str] | None = None,
    ) -> ControlRequest:
        """Return a request to stop a provider."""
        record = {
            "contract_id": contract_id,
            "link_name": link_name,
            "provider_ref": provider_ref,
        }
        return self._command(host_id, "sp", annotations, record)

    def stop_host(self, host_id: str, timeout_ms: int | None = None) -> ControlRequest:
        """Return a request to stop a host."""
        record = {} if timeout_ms is None else {"timeout": timeout_ms}
        return self._command(host_id, "stop", None, record)

    def put_label(self, host_id: str, key: str, value: str) -> ControlRequest:
        """Return a request to set a label of a host."""
        return self._json(("labels", host_id, "put"), {"key": key, "value": value})

    def del_label(self, host_id: str, key: str) -> ControlRequest:
        """Return a request to delete a label of a host."""
        return self._json(("labels", host_id, "del"), {"key": key, "value": ""})

    def put_config(self, public_key: str, name: str, value: bytes) -> ControlRequest:
        """Return a request to set a value of an entity's configuration."""
        return ControlRequest(self._subject("config", "put", public_key, name), value)

    def del_config(self, public_key: str, name: str = "") -> ControlRequest:
        """Return a request to delete a value of an entity's configuration; without a name, all."""
        return ControlRequest(self._subject("config", "del", public_key, *([name] if name else [])))

    def get_config(self, public_key: str, name: str = "") -> ControlRequest:
        """Return a request for a value of an entity's configuration; without a name, for all."""
        parts = ("get", "config", public_key, *([name] if name else []))
        return ControlRequest(self._subject(*parts))

    def _subject(self, *parts: str) -> str:
        return control_subject(self._lattice, *parts, prefix=self._prefix)

    def _json(self, parts: tuple[str, ...], record: Record) -> ControlRequest:
        return ControlRequest(self._subject(*parts), write_json(record))

    def _command(
        self,
        host_id: str,
        command: str,
        annotations: Mapping[str, str] | None,
        record: Mapping[str, Any],
    ) -> ControlRequest:
        fields = {**record, "host_id": host_id}
        if annotations is not None:
            fields["annotations"] = dict(annotations)
        return self._json(("cmd", host_id, command), dict(sorted(fields.items())))


def decode_ack(data: bytes) -> Ack:
    """Read the acknowledgement of a request.

    Raises:
        FormatError: the answer is malformed.
    """
    what = "control answer"
    record = read_object(data, what, MAX_CONTROL_BYTES)
    if "accepted" not in record:
        raise FormatError(f"{what}: field 'accepted' is missing", "accepted")
    return Ack(
        bool_of(record, what, "accepted"), text_or_null(record, what, "error", MAX_REF_CHARS)
    )


def decode_host(data: bytes) -> Host:
    """Read a host's answer to a ping.

    Raises:
        FormatError: the answer is malformed, or not from a host.
    """
    what = "host"
    record = read_object(data, what, MAX_CONTROL_BYTES)
    issuers = text_or_null(record, what, "cluster_issuers", MAX_ISSUERS * MAX_NAME_CHARS)
    return Host(
        _host_id(record, what, "id"),
        text_or_null(record, what, "lattice", MAX_NAME_CHARS)
        or text_or_null(record, what, "lattice_prefix", MAX_NAME_CHARS),
        text_or_null(record, what, "friendly_name", MAX_REF_CHARS),
        text_or_null(record, what, "issuer", MAX_NAME_CHARS),
        tuple(filter(None, map(str.strip, issuers.split(",")))),
        _texts(record, what, "labels"),
        text_or_null(record, what, "version", MAX_NAME_CHARS),
        _number(record, what, "uptime_seconds"),
        text_or_null(record, what, "rpc_host", MAX_REF_CHARS),
        text_or_null(record, what, "ctl_host", MAX_REF_CHARS),
        text_or_null(record, what, "js_domain", MAX_NAME_CHARS),
    )


def decode_inventory(data: bytes, host_id: str) -> Inventory:
    """Read the inventory of a host.

    Args:
        data: body of the answer.
        host_id: id of the host that was asked.

    Raises:
        FormatError: the answer is malformed, or is about another host.
    """
    what = "inventory"
    record = read_object(data, what, MAX_CONTROL_BYTES)
    found = _host_id(record, what, "host_id")
    if found != host_id:
        raise FormatError(f"{what} of host {found}, expected {host_id}", "host_id")
    return Inventory(
        found,
        text_or_null(record, what, "issuer", MAX_NAME_CHARS),
        text_or_null(record, what, "friendly_name", MAX_REF_CHARS),
        _texts(record, what, "labels"),
        text_or_null(record, what, "version", MAX_NAME_CHARS),
        _number(record, what, "uptime_seconds"),
        tuple(map(_actor, records_of(record, what, "actors", MAX_ITEMS, []))),
        tuple(map(_provider, records_of(record, what, "providers", MAX_ITEMS, []))),
    )


def decode_links(data: bytes) -> tuple[LinkDefinition, ...]:
    """Read all links.

    Raises:
        FormatError: the answer is malformed.
    """
    record = read_object(data, "links", MAX_CONTROL_BYTES)
    return tuple(map(link_of_record, records_of(record, "links", "links", MAX_LINKS)))


def decode_claims_list(data: bytes) -> tuple[Mapping[str, str], ...]:
    """Read the claims in the registry: texts by name for each entry.

    The public key of an entry is its `sub` or `subject`.

    Raises:
        FormatError: the answer is malformed.
    """
    what = "claims"
    record = read_object(data, what, MAX_CONTROL_BYTES)
    return tuple(
        texts_of({"claims": item}, what, "claims", MAX_LINK_VALUES, MAX_LINK_VALUE_CHARS)
        for item in records_of(record, what, "claims", MAX_ITEMS)
    )


def decode_bid(data: bytes) -> str:
    """Return the id of the host that bids in an auction.

    Raises:
        FormatError: the answer is malformed.
    """
    return _host_id(read_object(data, "bid", MAX_CONTROL_BYTES), "bid", "host_id")


def _actor(record: Record) -> RunningActor:
    what = "inventory: actor"
    groups = records_of(record, what, "instances", MAX_ITEMS, [])
    return RunningActor(
        text_of(record, what, "id", MAX_NAME_CHARS, None),
        text_or_null(record, what, "name", MAX_REF_CHARS),
        text_or_null(record, what, "image_ref", MAX_REF_CHARS),
        sum(_number(group, what, "max_instances") for group in groups),
        max((_number(group, what, "revision") for group in groups), default=0),
    )


def _provider(record: Record) -> RunningProvider:
    what = "inventory: provider"
    return RunningProvider(
        text_of(record, what, "id", MAX_NAME_CHARS, None),
        text_or_null(record, what, "link_name", MAX_NAME_CHARS),
        text_or_null(record, what, "contract_id", MAX_NAME_CHARS),
        text_or_null(record, what, "name", MAX_REF_CHARS),
        text_or_null(record, what, "image_ref", MAX_REF_CHARS),
        _number(record, what, "revision"),
    )


def _host_id(record: Record, what: str, name: str) -> str:
    host_id = text_of(record, what, name, MAX_NAME_CHARS, None)
    try:
        decode_public(host_id, KeyKind.HOST)
    except KeyFormatError as error:
        raise FormatError(f"{what}: field {name!r}: {error}", name) from None
    return host_id


def _texts(record: Record, what: str, name: str) -> dict[str, str]:
    if record.get(name) is None:
        return {}
    return texts_of(record, what, name, MAX_LINK_VALUES, MAX_REF_CHARS)


def _number(record: Record, what: str, name: str) -> int:
    value = record.get(name)
    if value is None:
        return 0
    if type(value) is not int or not 0 <= value <= MAX_UINT:
        raise wrong(what, name, value, "an integer from 0 to 2^64 - 1, or null")
    return value
