"""Starts a process of the lattice as a child of a relay: `python -m relay.lattice.launch bridge`.

The program itself is in the package `lattice`, which does not depend on this site. This module
reads the site's settings and the files that they name, and executes that program in its own
process, with all of them as one JSON document on standard input.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from django.conf import settings

from proto.lattice.errors import KeyFormatError
from proto.lattice.nkeys import KeyKind, KeyPair
from relay.lattice import own_keys

PROGRAM: Final = "lattice.process"
KINDS: Final = ("nats", "bridge", "monitor")
USAGE_ERROR: Final = 2


class SettingsError(Exception):
    """A setting that the process needs is missing, or names a file that cannot be read."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Become a process of the lattice; return 2 if a setting is wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--lifeline-fd", type=int)
    parser.add_argument("--ready-fd", type=int)
    parser.add_argument("--relay", help="URL of the relay, for the bridge's twin")
    parser.add_argument("--twins", help="URL of the operator site, which has the registry")
    parser.add_argument("--embedded", action="store_true")
    options = parser.parse_args(arguments)
    try:
        document = describe(
            options.kind, relay=options.relay, twins=options.twins, embedded=options.embedded
        )
    except SettingsError as error:
        print(error, file=sys.stderr)
        return USAGE_ERROR
    document |= {"lifeline_fd": options.lifeline_fd, "ready_fd": options.ready_fd}
    become(document)
    return 0


def become(document: dict[str, Any]) -> None:
    """Replace this process by a process of the lattice."""
    with tempfile.TemporaryFile() as file:
        file.write(json.dumps(document).encode())
        file.seek(0)
        os.dup2(file.fileno(), 0)
    os.execv(sys.executable, [sys.executable, "-P", "-m", PROGRAM])


def describe(
    kind: str, *, relay: str | None = None, twins: str | None = None, embedded: bool = False
) -> dict[str, Any]:
    """Return the settings of a process of the lattice.

    Args:
        kind: one of `KINDS`.
        relay: URL of the relay that the bridge's twin uses.
        twins: URL of the operator site, to look twins up; None: the chain of the settings.
        embedded: whether keys and NATS server default to those of the data folder.

    Raises:
        SettingsError: a setting is missing, or names a file that cannot be read.
    """
    config, rmb = settings.RMB.lattice, settings.RMB
    folder = rmb.data_dir / own_keys.FOLDER
    own = embedded and not config.servers
    document: dict[str, Any] = {
        "kind": kind,
        "logging": settings.LOGGING,
        "redis_url": rmb.redis.url,
        "record": rmb.analytics.record,
    }
    if kind == "nats":
        return document | {"folder": str(folder / "nats"), "listen": config.embedded_listen}
    if not config.servers and not own:
        raise SettingsError("lattice.servers is empty: set it to the NATS servers of the lattice")

    def secret(setting: str, name: str) -> str:
        path = getattr(config, setting)
        if not path and embedded:
            path = str(folder / name)
        if not path:
            raise SettingsError(f"lattice.{setting} is empty: set it to the path of the file")
        try:
            return Path(os.path.expanduser(path)).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "is not text"
            raise SettingsError(f"lattice.{setting}: cannot read {path}: {reason}") from None

    document["options"] = {
        "servers": list(config.servers) or [f"nats://{config.embedded_listen}"],
        "lattice": config.name,
        "name": f"rmb {kind}",
        "credentials_file": config.credentials_file,
        "tls_ca_file": config.ca_file,
        "tls_certificate_file": config.cert_file,
        "tls_key_file": config.key_file,
        "issuers": list(config.issuers),
        "iat_window_s": config.window_s,
        "max_running": config.outstanding,
        "max_outstanding": config.outstanding,
        "object_ttl_s": config.object_ttl_s,
        "quota_bytes": config.object_quota_bytes,
    }
    if kind == "bridge":
        if rmb.twins.source == "registry" and not twins:
            raise SettingsError(
                "twins.source is registry, so the bridge needs the operator site to look twins up: "
                "set admin.listen, or --twins of rmb_lattice"
            )
        document["options"]["cluster_seed"] = secret("cluster_seed_file", own_keys.CLUSTER_FILE)
        document |= {
            "provider_seed": secret("provider_seed_file", own_keys.PROVIDER_FILE),
            "link_name": config.link_name,
            "twin_secret": secret("twin_secret_file", own_keys.TWIN_FILE),
            "relays": [relay],
            "twins": twins,
            "substrate": list(rmb.substrate.urls),
        }
    else:
        if config.cluster_seed_file or embedded:  # the bridge is trusted
            seed = secret("cluster_seed_file", own_keys.CLUSTER_FILE)
            document["options"]["issuers"].append(_public(seed))
        document |= {
            "subject": config.monitor_subject,
            "direct": config.monitor_direct,
            "hosts": list(config.monitor_hosts),
        }
    return document


def _public(seed: str) -> str:
    try:
        return KeyPair.of_seed(seed, KeyKind.CLUSTER).public
    except KeyFormatError as error:
        raise SettingsError(f"lattice.cluster_seed_file: {error}") from None


if __name__ == "__main__":
    sys.exit(main())
