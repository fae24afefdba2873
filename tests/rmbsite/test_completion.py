"""Tests of `rmb_completion`: the words that a real shell offers."""

from __future__ import annotations

import shutil
import subprocess
from argparse import ArgumentParser, _SubParsersAction
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command, get_commands

from rmbsite.management.commands.rmb_completion import everything


def script(shell: str) -> str:
    stdout = StringIO()
    call_command("rmb_completion", shell, stdout=stdout)
    return stdout.getvalue()


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "rmb-manage"
    path.write_text(script("bash"))
    return path


def offered(bash: Path, *words: str) -> set[str]:
    """Return the words that bash offers to complete the last word."""
    program = (
        f"source {bash}; COMP_WORDS=(rmb-manage {' '.join(repr(word) for word in words)}); "
        f'COMP_CWORD={len(words)}; _shtab_rmb_manage; echo "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(
        [shutil.which("bash") or "bash", "-c", program], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    return set(done.stdout.split())


def test_commands(bash: Path) -> None:
    ours = {name for name in get_commands() if name.startswith("rmb_")}
    assert ours | {"runrelay", "migrate"} <= offered(bash, "")
    assert offered(bash, "rmb_doc") == {"rmb_doctor"}
    assert "dumpdata" not in offered(bash, "")


def test_verbs_and_options(bash: Path) -> None:
    assert {"list", "purge"} <= offered(bash, "rmb_queue", "")
    assert offered(bash, "rmb_doctor", "--q") == {"--quiet"}
    assert offered(bash, "runrelay", "--emb") == {"--embedded"}


DOCUMENTS = {
    *("rmb_audit export", "rmb_queue export", "rmb_twin export", "rmb_completion"),
    *("rmb_configdoc", "rmb_demo", "rmb_devchain", "rmb_openapi"),
    *("rmb_lattice bridge", "rmb_lattice key", "rmb_lattice monitor", "rmb_resourcedoc"),
}
"""Commands whose output is a file in a format of its own, or which run until they are stopped."""


def test_every_command_has_a_form_for_programs() -> None:
    plain = set()

    def walk(parser: ArgumentParser, name: str) -> None:
        verbs = [each for each in parser._actions if isinstance(each, _SubParsersAction)]
        for each in verbs:
            for verb, its in each.choices.items():
                walk(its, f"{name} {verb}")
        if not verbs and "--json" not in parser._option_string_actions:
            plain.add(name)

    (commands,) = (each for each in everything()._actions if isinstance(each, _SubParsersAction))
    for name, parser in commands.choices.items():
        if name.startswith("rmb_"):
            walk(parser, name)
    assert plain == DOCUMENTS


def test_other_shells() -> None:
    assert script("zsh").startswith("#compdef rmb-manage")
    assert "rmb_doctor" in script("fish")
    with pytest.raises(CommandError, match="invalid choice: 'ksh'"):
        script("ksh")


def test_every_argument_has_a_help() -> None:
    silent = []

    def walk(parser: ArgumentParser, name: str) -> None:
        for each in parser._actions:
            if isinstance(each, _SubParsersAction):
                for verb, its in each.choices.items():
                    walk(its, f"{name} {verb}")
            elif not each.help:
                silent.append(f"{name} {each.dest}")

    for each in everything()._actions:
        if isinstance(each, _SubParsersAction):
            for name, parser in each.choices.items():
                if name.startswith(("rmb_", "runrelay")):
                    walk(parser, name)
    assert not silent
