"""The settings in a backup: those in force, and the configuration file without its secrets."""

from __future__ import annotations

import json
import tomllib
from typing import Any

from django.conf import settings


def values() -> dict[str, Any]:
    """Return the settings in force that are not secret, by key."""
    return {
        each.key: each.shown(getattr(getattr(settings.RMB, each.section), each.name))
        for each in settings.RMB_OPTIONS
        if not each.secret
    }


def without_secrets(text: str) -> str | None:
    """Rewrite a configuration file with only the settings that may be shown.

    Everything else, such as a comment, may contain a former password, which cannot be recognized.
    None if the text is not valid TOML.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None
    known = {each.key: each for each in settings.RMB_OPTIONS}
    lines = ["# Without comments, and without values that are not shown."]
    for section in dict.fromkeys(each.section for each in settings.RMB_OPTIONS):
        if not isinstance(found := document.get(section), dict):
            continue
        lines += ["", f"[{section}]"]
        for name, value in found.items():
            key = f"{section}.{name}"
            # `<secret>_file` names a file and is not secret itself.
            declared = known.get(key) or known.get(key.removesuffix("_file"))
            if declared is None:
                continue
            if declared.name == name and (declared.secret or declared.shown(value) != value):
                lines.append(f"# {name} is not shown")
            else:
                lines.append(f"{name} = {json.dumps(value, ensure_ascii=False, default=str)}")
    return "\n".join(lines) + "\n"
