"""Analytics commands that are stopped: with Ctrl-C, or with SIGTERM as a service receives it."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from relay.analytics.spark import signals
from tests.relay.analytics import test_run_killed as running
from tests.relay.analytics.stream_feed import DAY, Feed, queried
from tests.relay.analytics.stream_process import (
    COMMAND,
    START_S,
    Counted,
    said,
    settings_for,
    started,
    url_of,
)
from tests.support.relay_process import run_command
from tests.support.waiting import wait_until

END_S = 60.0

folder = running.folder


@contextlib.contextmanager
def nobody_left(process: subprocess.Popen[Any]) -> Iterator[None]:
    """Check that a command that ends inside the block ends all processes that it started."""
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    yield
    _, left = psutil.wait_procs(children, timeout=30)
    assert not left


def test_a_stream_ends_well_and_goes_on_afterwards(tmp_path: Path, django_db_blocker: Any) -> None:
    """A stream ends cleanly while it starts Spark and between batches, its Java included."""
    feed = Feed(tmp_path)
    settings = settings_for(feed, url_of(tmp_path))
    with (
        django_db_blocker.unblock(),
        contextlib.closing(Counted(settings["database.url"], tmp_path)) as counted,
    ):
        feed.bring(4)
        with started(tmp_path, settings, *COMMAND, "--from", str(DAY)) as process:
            wait_until(lambda: has_java(process), START_S, lambda: said(tmp_path))
            with nobody_left(process):
                os.killpg(process.pid, signal.SIGTERM)
                assert process.wait(END_S) == 0, said(tmp_path)
        assert said(tmp_path) == ""
        for number in (signal.SIGINT, signal.SIGTERM):
            feed.bring(4)
            stop_after_a_batch(tmp_path, settings, counted, number)
        feed.bring(99)
        done = run_command(tmp_path, *COMMAND, "--once", settings=settings, timeout_s=START_S)
        assert done.returncode == 0, done.stderr
        assert counted.sums() == queried(feed.lake)


def stop_after_a_batch(
    folder: Path, settings: dict[str, str], counted: Counted, number: signal.Signals
) -> None:
    before = counted.batch()
    with started(folder, settings, *COMMAND) as process:
        wait_until(lambda: counted.batch() > before, START_S, lambda: said(folder))
        with nobody_left(process):
            os.killpg(process.pid, number)
            assert process.wait(END_S) == 0, said(folder)
    assert said(folder).count("\n") == said(folder).count('{"batch"'), said(folder)


def has_java(process: subprocess.Popen[Any]) -> bool:
    return any(each.name() == "java" for each in psutil.Process(process.pid).children())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_job_that_is_stopped_says_so_in_a_line(folder: Path, number: signal.Signals) -> None:
    """A stopped job reports that in one line, and the jobs after it do not start."""
    with running.writing(folder, "rollup", "matrix") as (driver, java):
        java.send_signal(number)  # the whole group receives the signal
        driver.send_signal(number)
        printed, complaints = driver.communicate(timeout=END_S)
        assert psutil.wait_procs([java], timeout=30)[0], "its Java is an orphan"
    assert (driver.returncode, printed) == (1, "")
    assert complaints == "CommandError: rollup: interrupted\n"
    assert running.runs(folder)[1:] == [("failed", 0, "interrupted")]


def test_what_is_deferred_comes_at_the_end() -> None:
    done = False
    with pytest.raises(KeyboardInterrupt), signals.interrupting(), signals.deferred():
        signal.raise_signal(signal.SIGTERM)
        done = True
    assert done


def test_an_interruption_in_a_finaliser_comes_again() -> None:
    """An interruption in a finaliser, where its exception is lost, is raised again."""

    class Held:
        pass

    held = Held()
    seen = weakref.ref(held, lambda gone: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt), signals.interrupting():
        del held
        gc.collect()
        assert seen() is None
        threading.Event().wait(END_S)
        raise AssertionError("nobody heard of it")


def test_signals_are_whose_they_were() -> None:
    before = [signal.getsignal(number) for number in signals.STOPS], sys.unraisablehook
    with signals.interrupting():
        with signals.kept(signal.SIGINT):
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert ([signal.getsignal(number) for number in signals.STOPS], sys.unraisablehook) == before
    with signals.interrupting():
        elsewhere = threading.Thread(target=lambda: signals.interrupting().__enter__())
        elsewhere.start()
        elsewhere.join()
