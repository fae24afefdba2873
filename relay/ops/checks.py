"""System checks: settings that would make a start fail, and some that are allowed but unwise."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register

OTHERS = stat.S_IRWXG | stat.S_IRWXO


@register("relay")
def check_files(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Check that only their owner can read secrets, and that TLS files exist."""
    config = settings.RMB
    found: list[CheckMessage] = []
    secrets = [config.data_dir, config.data_dir / "secret_key", *_lattice_secrets(config.lattice)]
    for path in secrets:
        if _is_open_to_others(path):
            found.append(
                Warning(
                    f"{path} can be read by other users of this machine",
                    hint=f"chmod go-rwx {path}",
                    id="relay.W001",
                )
            )
    for key, name in (("tls_cert", config.relay.tls_cert), ("tls_key", config.relay.tls_key)):
        if name and not Path(name).is_file():
            found.append(Error(f"relay.{key}: there is no file {name}", id="relay.E001"))
    return found


def _is_open_to_others(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & OTHERS)
    except OSError:  # missing, or in another user's folder
        return False


def _lattice_secrets(config: Any) -> list[Path]:
    names = ("cluster_seed_file", "provider_seed_file", "twin_secret_file", "credentials_file")
    return [
        Path(path).expanduser() for name in (*names, "key_file") if (path := getattr(config, name))
    ]


@register("relay")
def check_history(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Check that events are kept until everything that is computed from them is done."""
    from relay.analytics import daily

    config = settings.RMB.analytics
    if not config.record or config.keep_days >= daily.LEAST_KEPT:
        return []
    lacks = (
        "the bill of a month has only the first days of it"
        if config.keep_days < daily.LEAST_KEPT_OF_MONTH
        else "the bill of a month lacks sessions that began before it and go on after it"
    )
    return [
        Warning(
            f"analytics.keep_days is {config.keep_days}: {lacks}, and sessions that were open "
            "for weeks may be missing in the figures of a day",
            hint=f"{daily.LEAST_KEPT} days are enough for all of it",
            id="relay.W003",
        )
    ]


@register("relay")
def check_bounds(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Check for bounds that contradict each other."""
    config = settings.RMB
    found: list[CheckMessage] = []
    if config.relay.max_message_bytes > config.queue.max_bytes:
        found.append(
            Error(
                "relay.max_message_bytes is above queue.max_bytes: such a message fits no queue",
                id="relay.E002",
            )
        )
    if config.relay.partial_bytes < config.relay.max_message_bytes:
        found.append(
            Error(
                "relay.partial_bytes is below relay.max_message_bytes: such a message never "
                "arrives whole",
                id="relay.E003",
            )
        )
    if config.limits.size and config.limits.size < config.relay.max_message_bytes:
        found.append(
            Warning(
                "limits.size is below relay.max_message_bytes: larger messages are always refused",
                id="relay.W002",
            )
        )
    return found
