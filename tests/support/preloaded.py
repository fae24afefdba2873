"""Import all modules of the relay that need no settings, when this module is imported.

It is for processes of tests that are forked (`tests.support.forking`): otherwise each would import
these modules itself. A module that needs settings or models fails at that import, before its other
code has run, and the fork imports it; what it had imported already remains.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import warnings
from pathlib import Path

PACKAGES = ("proto", "redispipe", "chain", "peer", "relay", "rmbsite")
LIBRARIES = (
    *("uvloop", "uvicorn.loops.uvloop", "uvicorn.lifespan.on"),
    "uvicorn.protocols.websockets.websockets_sansio_impl",
    *("celery.app.amqp", "celery.apps.worker", "celery.beat", "celery.concurrency.thread"),
    *("celery.loaders.app", "celery.worker.components", "celery.worker.consumer"),
    *("kombu.transport.redis", "pydantic", "django.core.management.commands.migrate"),
    *(
        "django.contrib.admin.options",
        "django.contrib.staticfiles.storage",
        "whitenoise.middleware",
    ),
    *("django.core.handlers.asgi", "django.db.backends.sqlite3.base", "django.template.loader"),
)
ROOT = Path(__file__).parents[2]
NOT_HERE = (
    *("__", ".management", ".migrations", ".daphne_server"),
    *("rmbsite.asgi", "rmbsite.celery", "rmbsite.settings", "rmbsite.wsgi"),
)
"""Parts of the names of modules that have effects when they are imported."""
NOT_YET = (
    *("duckdb", "numpy", "pandas", "pyarrow", "pyspark"),  # they start threads
    *("ninja", "opentelemetry", "psycopg", "twisted"),
)
"""Packages that need settings, or that only some processes import."""


def _import(name: str) -> None:
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module(name)


def _names() -> list[str]:
    found = list(LIBRARIES)
    for package in PACKAGES:
        paths = sorted((ROOT / package).rglob("*.py"))
        found += [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    return [name for name in found if not any(part in name for part in NOT_HERE)]


sys.modules |= dict.fromkeys(NOT_YET)  # type: ignore[arg-type]  # None: cannot be imported
for name in _names():
    _import(name)
for name in NOT_YET:
    del sys.modules[name]
