"""The data that a host writes to the standard input of a provider it starts (sheet section 10).

It is one line: base64 of a JSON object. It contains the cluster seed, so it must not be logged.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from proto.lattice.bounds import (
    MAX_HOST_DATA_BYTES,
    MAX_ISSUERS,
    MAX_LINK_VALUE_CHARS,
    MAX_LINK_VALUES,
    MAX_LINKS,
    MAX_NAME_CHARS,
    MAX_TOKEN_CHARS,
    MAX_UINT,
)
from proto.lattice.errors import FormatError
from proto.lattice.json_text import read_object, records_of, strings_of, text_or_null, write_json
from proto.lattice.messages import LinkDefinition, link_of_record
from proto.lattice.nkeys import KeyKind, decode_public
from proto.lattice.wire import Record, bool_of, text_of, texts_of, wrong

DEFAULT_RPC_URL: Final = "nats://127.0.0.1:4222"
_WHAT: Final = "host data"
_SECRET: Final = "invocation_seed"


@dataclass(frozen=True, slots=True)
class HostData:
    """Data from a host, with which a provider takes part in a lattice.

    Attributes:
        host_id: id of the host (`N...`), which the provider's calls name, and which may stop it.
        lattice: id of the lattice.
        link_name: link name that the provider serves.
        provider_key: public key of the provider (`V...`).
        invocation_seed: seed of the cluster (`SC...`), which signs calls.
        cluster_issuers: cluster keys (`C...`) whose calls are accepted.
        links: links to apply at the start.
        rpc_url: URL of the NATS server.
        rpc_user_jwt: JWT of the NATS user; empty: none.
        rpc_user_seed: seed of the NATS user; empty: none.
        instance_id: id of this process.
        env_values: settings of the host.
        config_json: settings of the provider.
        rpc_timeout_ms: time-out of its calls; None: the provider decides.
        structured_logging: whether to log JSON.
        log_level: log level in lower case; empty: the provider decides.
        traces_exporter: exporter of OpenTelemetry; None: none.
        otlp_endpoint: endpoint of OpenTelemetry; None: none.
    """

    host_id: str
    lattice: str
    link_name: str
    provider_key: str
    invocation_seed: str = field(repr=False)
    cluster_issuers: tuple[str, ...]
    links: tuple[LinkDefinition, ...] = ()
    rpc_url: str = DEFAULT_RPC_URL
    rpc_user_jwt: str = field(default="", repr=False)
    rpc_user_seed: str = field(default="", repr=False)
    instance_id: str = ""
    env_values: Mapping[str, str] = field(default_factory=dict, repr=False)
    config_json: str | None = field(default=None, repr=False)
    rpc_timeout_ms: int | None = None
    structured_logging: bool = False
    log_level: str = ""
    traces_exporter: str | None = None
    otlp_endpoint: str | None = None

    def encode(self) -> bytes:
        """Return the line as a host writes it.

        Raises:
            KeyFormatError: the host id or the provider's key is not of its kind; some providers
                accept other ids in a test mode.
        """
        decode_public(self.host_id, KeyKind.HOST)
        decode_public(self.provider_key, KeyKind.PROVIDER)
        return binascii.b2a_base64(write_json(self._record()), newline=False) + b"\r\n"

    def _record(self) -> Record:
        record: Record = {
            "host_id": self.host_id,
            "lattice_rpc_prefix": self.lattice,
            "link_name": self.link_name,
            "lattice_rpc_user_jwt": self.rpc_user_jwt,
            "lattice_rpc_user_seed": self.rpc_user_seed,
            "lattice_rpc_url": self.rpc_url,
            "provider_key": self.provider_key,
            "invocation_seed": self.invocation_seed,
            "env_values": dict(self.env_values),
            "instance_id": self.instance_id,
            "link_definitions": [link.to_record() for link in self.links],
            "cluster_issuers": list(self.cluster_issuers),
        }
        if self.config_json is not None:
            record["config_json"] = self.config_json
        if self.rpc_timeout_ms is not None:
            record["default_rpc_timeout_ms"] = self.rpc_timeout_ms
        record["structured_logging"] = self.structured_logging
        if self.log_level:
            record["log_level"] = self.log_level
        record["otel_config"] = {
            "traces_exporter": self.traces_exporter,
            "exporter_otlp_endpoint": self.otlp_endpoint,
        }
        return record


def decode_host_data(line: str | bytes) -> HostData:
    """Read the line of a host. Errors do not quote its contents.

    Raises:
        FormatError: the line is not base64 of a JSON object, or a field is missing or of another
            type.
    """
    if len(line) > MAX_HOST_DATA_BYTES:
        raise FormatError(f"{_WHAT} of {len(line)} bytes, limit: {MAX_HOST_DATA_BYTES} bytes")
    try:
        data = binascii.a2b_base64(line.strip(), strict_mode=True)
    except ValueError:
        raise FormatError(f"{_WHAT}: expected one line of padded base64") from None
    record = read_object(data, _WHAT, MAX_HOST_DATA_BYTES)
    otel = record.get("otel_config", {})
    if type(otel) is not dict:
        raise wrong(_WHAT, "otel_config", otel, "an object")
    return HostData(
        _name(record, "host_id"),
        _name(record, "lattice_rpc_prefix"),
        _name(record, "link_name"),
        _name(record, "provider_key"),
        _name(record, _SECRET),
        strings_of(record, _WHAT, "cluster_issuers", MAX_ISSUERS, MAX_NAME_CHARS),
        tuple(map(link_of_record, records_of(record, _WHAT, "link_definitions", MAX_LINKS))),
        text_of(record, _WHAT, "lattice_rpc_url", MAX_TOKEN_CHARS) or DEFAULT_RPC_URL,
        text_of(record, _WHAT, "lattice_rpc_user_jwt", MAX_TOKEN_CHARS),
        _name(record, "lattice_rpc_user_seed"),
        _name(record, "instance_id"),
        texts_of(record, _WHAT, "env_values", MAX_LINK_VALUES, MAX_LINK_VALUE_CHARS),
        _optional(record, "config_json", MAX_HOST_DATA_BYTES),
        _timeout(record),
        bool_of(record, _WHAT, "structured_logging"),
        text_or_null(record, _WHAT, "log_level", MAX_NAME_CHARS),
        _optional(otel, "traces_exporter", MAX_TOKEN_CHARS),
        _optional(otel, "exporter_otlp_endpoint", MAX_TOKEN_CHARS),
    )


def _name(record: Record, name: str) -> str:
    return text_of(record, _WHAT, name, MAX_NAME_CHARS)


def _optional(record: Record, name: str, limit: int) -> str | None:
    return None if record.get(name) is None else text_of(record, _WHAT, name, limit)


def _timeout(record: Record) -> int | None:
    name = "default_rpc_timeout_ms"
    value = record.get(name)
    if value is not None and (type(value) is not int or not 0 <= value <= MAX_UINT):
        raise wrong(_WHAT, name, value, "an integer from 0 to 2^64 - 1, or null")
    return value
