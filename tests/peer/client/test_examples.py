"""The programs of `docs/howto/python-client.md`, run with the relay of `make run`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.redis_servers import free_port
from tests.support.relay_process import ROOT
from tests.support.started import Started
from tests.support.waiting import eventually

PAGE = (ROOT / "docs/howto/python-client.md").read_text()
TIMEOUT_S = 60

# Each program, with its documented output.
EXAMPLES = {
    found["name"]: (found["code"], found["output"])
    for found in re.finditer(
        r"```python\n# (?P<name>\w+)\.py\n(?P<code>.*?)```\n(?:\n```text\n(?P<output>.*?)```)?",
        PAGE,
        re.DOTALL,
    )
}
COMPARED = [name for name, (_, output) in EXAMPLES.items() if output]

BROWSE = """
import asyncio, django
from django.conf import settings
settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="test")
django.setup()
import views
from django.test import AsyncClient, Client
from django.urls import path
urlpatterns = [path("<int:a>/<int:b>", views.add), path("a/<int:a>/<int:b>", views.add_async)]
print(Client().get("/2/3").json(), asyncio.run(AsyncClient().get("/a/4/5")).json())
"""
WORK = "import tasks; print(tasks.add.apply(args=(2, 3)).get())"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Write the programs into a folder; start a relay with its data there, and bob."""
    path = tmp_path_factory.mktemp("examples")
    for name, (code, _) in EXAMPLES.items():
        (path / f"{name}.py").write_text(code)
    listen = ("--listen", f"127.0.0.1:{free_port()}", "--admin-listen", f"127.0.0.1:{free_port()}")
    relay = Started(path, "--embedded", "--data", "data", *listen)
    try:
        asyncio.run(_ready(relay))
        log = (path / "bob.log").open("w+")
        bob = subprocess.Popen(
            [sys.executable, "bob.py"], cwd=path, env=_environment(), stdout=log, stderr=log
        )
        try:
            asyncio.run(_says(path / "bob.log", "serving as 102"))
            yield path
        finally:
            bob.terminate()
            bob.wait(TIMEOUT_S)
            log.close()
    finally:
        with contextlib.suppress(AssertionError):
            relay.stop()


async def _ready(relay: Started) -> None:
    await relay.ready()


async def _says(log: Path, text: str) -> None:
    await eventually(lambda: text in log.read_text(), TIMEOUT_S, text)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def _run(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_programs_of_the_page_are_run() -> None:
    assert len(EXAMPLES) == PAGE.count("```python")
    assert set(EXAMPLES) - set(COMPARED) == {"bob", "views", "tasks"}


@pytest.mark.parametrize("name", COMPARED)
def test_a_program_does_what_the_page_says(folder: Path, name: str) -> None:
    assert _run(folder, f"{name}.py") == EXAMPLES[name][1]


def test_the_django_views(folder: Path) -> None:
    assert _run(folder, "-c", BROWSE) == "{'sum': 5} {'sum': 9}\n"


def test_the_celery_task(folder: Path) -> None:
    assert _run(folder, "-c", WORK) == "5\n"
