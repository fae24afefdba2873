"""The `rmb` command: verbs, output and exit codes, without a relay."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from peer.cli import output
from peer.cli.command import main
from peer.cli.verbs import VERBS, build_parser
from peer.modules.version import PACKAGE
from proto.identity import ss58
from proto.sbd.frames import path_of_key
from tests.support.identities import twin, twins_csv
from tests.support.relay_process import ROOT

SEED = f"0x{twin(7).mini_secret.hex()}"  # TEST KEY

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _nothing_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("SECRET", "SECRET_FILE", "RELAY", "TWINS", "SUBSTRATE", "KEY_TYPE", "PROFILE"):
        monkeypatch.delenv(f"RMB_{name}", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def csv_file(tmp_path: Path) -> str:
    path = tmp_path / "twins.csv"
    path.write_text(twins_csv([twin(7, "r1.example_r2.example"), twin(8)]))
    return str(path)


def test_keys_are_shown_and_the_secret_is_not(capsys: Captured) -> None:
    assert main(["keys", "-m", SEED]) == 0
    shown = capsys.readouterr().out
    assert ss58.encode(twin(7).account) in shown
    assert twin(7).encryption_key.public.hex() in shown
    assert SEED not in shown


def test_a_new_secret_has_the_keys_that_are_shown_with_it(tmp_path: Path, capsys: Captured) -> None:
    for words in ("12", "24"):
        assert main(["keys", "--new", "--words", words, "--json"]) == 0
        made = json.loads(capsys.readouterr().out)
        assert len(made["secret"].split()) == int(words)
        assert main(["keys", "-m", made.pop("secret"), "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == made


def test_a_new_secret_is_of_the_type_that_its_use_will_have(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("RMB_KEY_TYPE", "ed25519")
    assert main(["keys", "--new", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["key_type"] == "ed25519"
    assert main(["keys", "-m", made.pop("secret"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == made


def test_a_new_secret_goes_into_a_private_file(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "secret"
    assert main(["keys", "--new", "--out", str(path), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().strip() not in json.dumps(made)
    assert main(["keys", "--secret-file", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["account"] == made["account"]
    assert main(["keys", "--new", "--out", str(path)]) == 2
    assert "File exists" in capsys.readouterr().err


@pytest.mark.parametrize(
    "who", ["7", ss58.encode(twin(7).account), f"0x{twin(7).account.hex()}", None]
)
def test_a_twin_is_found_by_id_account_or_own_key(
    csv_file: str, capsys: Captured, who: str | None
) -> None:
    arguments = ["twin", "--twins", csv_file, "--json", *([who] if who else ["-m", SEED])]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out) == {
        "id": 7,
        "account": ss58.encode(twin(7).account),
        "pk": f"0x{twin(7).encryption_key.public.hex()}",
        "relays": ["r1.example", "r2.example"],
    }


def test_a_twin_for_people(csv_file: str, capsys: Captured) -> None:
    assert main(["--twins", csv_file, "twin", "7"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["id", "7"]
    assert lines[-1].split() == ["relays", "r1.example", "r2.example"]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["twin", "9"], 1, "there is no twin 9"),
        (["twin", "0"], 2, "must be from 1 to 4294967295"),
        (["twin", "seven"], 2, "not a twin id, and not a valid account"),
        (["twin", "0x00"], 2, "an account must be 0x and 64 hexadecimal digits"),
        (["twin"], 2, "the secret is missing: use --secret-file or --mnemonic"),
        (["twin", "-m", f"0x{'01' * 32}"], 1, "no twin found with given key (account 5"),
        (["twin", "7", "--twins", "nowhere.csv"], 2, "--twins: twins file nowhere.csv: No such"),
        (["upload", "8", "f", "--name", "../x"], 2, "--name: "),
        (["upload", "8", "f", "--name", ""], 2, "--name: "),
        (["upload", "8", "f", "--cmd", "a b"], 2, "--cmd: "),
        (["serve", "--sid", "\udce9", "echo=cat"], 2, "--sid: must be UTF-8"),
        (["serve", "--sid", "x" * 300, "echo=cat"], 2, "--sid: at most "),
        (["serve", "--uploads", ""], 2, "--uploads: is empty"),
        (["serve", "--uploads", "~nobody-at-all"], 2, "not a folder"),
        (["serve", "--uploads", ".", "--upload-max", "0"], 2, "--upload-max: must be from 1 to "),
        (["serve", "--uploads", ".", "--upload-quota", "0"], 2, "--upload-quota: must be above 0"),
        (["upload", "000429496729599", "f"], 2, "must be the id of a twin, from 1 to 4294967295"),
        (["upload", "8", "f", "--window", "000164"], 2, "--window: must be from 1 to "),
        (["serve", "--jobs", "01000", "echo=cat"], 2, "--jobs: must be from 1 to 256"),
        (["ping", "8", "-c", "10000000"], 2, "must be from 1 to 1000000"),
        (["call", "8", "\udce9"], 2, "CMD: must be UTF-8"),
        (["call", "8", "echo", "--tags", "\udce9"], 2, "--tags: must be UTF-8"),
        (["call", "8", "echo", "[" * 10_000], 2, "the body is not valid JSON (nested too deeply)"),
        (
            ["call", "8", "echo", "[NaN]"],
            2,
            "not valid JSON (NaN is not a JSON number)",
        ),
        (["call", "8", "echo", "@~nobody-at-all/x"], 2, "~nobody-at-all/x: No such file"),
        (["-p", "~nobody-at-all/x", "twin", "7"], 2, "profile ~nobody-at-all/x: No such file"),
        (["keys", "--new", "--out", "~nobody-at-all/x"], 2, "~nobody-at-all/x: No such file"),
        (["keys", "--out", "x"], 2, "--out needs --new"),
        (["pong"], 2, "must be one of"),
        (["-m", SEED], 2, "required: VERB"),
        (["twin", "--jsn"], 2, "did you mean --json?"),
        (["ops", "list", "http://a", "--relay", "ws://a"], 2, "unknown option --relay"),
        (["call", "--timeot", "3", "8", "echo"], 2, "did you mean --timeout?"),
        (["call", "8", "echo", "1", "2"], 2, "too many arguments"),
        (["call", "8", "echo", "--", "1", "--raw"], 2, "too many arguments"),
    ],
)
def test_what_does_not_work_is_one_line(
    csv_file: str, capsys: Captured, arguments: list[str], code: int, text: str
) -> None:
    place = [] if not arguments or "--twins" in arguments else ["--twins", csv_file]
    assert main([*place, *arguments]) == code
    told = capsys.readouterr()
    assert text in told.err and told.err.startswith("rmb: ") and told.err.count("\n") == 1
    assert not told.out


@pytest.mark.parametrize(
    "arguments", ["8 echo --raw -1", "--raw 8 echo -1", "8 --raw echo -1", "8 echo --raw -- -1"]
)
def test_options_stand_anywhere(arguments: str) -> None:
    found = build_parser(["call"]).parse(["call", *arguments.split()])
    assert (found.twin.twin, found.cmd, found.body, found.raw) == (8, "echo", "-1", True)


@pytest.mark.parametrize("verb", ["upload", "call", "serve", "twin", "ping"])
def test_words_of_a_secret_without_quotes_are_not_repeated(verb: str, capsys: Captured) -> None:
    for words in (["abandon", "ability"], ["abandon", "ability", "able"]):
        assert main([verb, "--twins", "x.csv", "-m", *words]) == 2
        told = capsys.readouterr().err
        assert told.startswith("rmb: ") and "abandon" not in told and "abil" not in told


def test_programs_get_errors_as_json(csv_file: str, capsys: Captured) -> None:
    assert main(["twin", "9", "--twins", csv_file, "--json"]) == 1
    told = capsys.readouterr()
    assert json.loads(told.out) == {
        "error": {"kind": "NoTwinError", "message": "there is no twin 9"}
    }
    assert not told.err


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as caught:
        main([verb, "--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "examples:" in text and f"rmb {verb}" in text


def test_help_lists_only_options_that_the_verb_reads() -> None:
    parser = build_parser(VERBS)
    verbs = parser._subparsers._group_actions[0].choices  # type: ignore[union-attr,index]
    read = {
        name: {"--mnemonic", "--relay", "--twins"}
        & {text for action in verb._actions for text in action.option_strings}
        for name, verb in verbs.items()
    }
    assert read["ops"] == read["sbd"] == set()
    assert read["keys"] == {"--mnemonic"} and read["twin"] == {"--mnemonic", "--twins"}
    assert all(len(read[name]) == 3 for name in ("call", "serve", "upload", "ping"))


def test_every_option_is_explained() -> None:
    parser = build_parser(VERBS)
    for verb in (parser, *parser._subparsers._group_actions[0].choices.values()):  # type: ignore
        for action in verb._actions:
            assert action.help or action.choices, action.option_strings


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (200 * 1024**2, "200.0 MiB"),
        (2**50, "1024.0 TiB"),
    ],
)
def test_sizes_are_for_people(count: int, text: str) -> None:
    assert output.size(count) == text


def test_what_a_twin_sends_does_not_steer_the_terminal(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    output.show_payload(b"\x1b[2Jhi\n")
    output.show_payload(b'{"a": [1, 2]}')
    output.show_payload(b"\xff\xfe")
    assert capsys.readouterr().out == (
        '?[2Jhi\n\n{\n  "a": [\n    1,\n    2\n  ]\n}\n'
        "2 bytes of binary data; redirect the output to a file\n"
    )


@pytest.mark.parametrize("module", ["peer.cli.command", "peer.gateway.command"])
def test_an_interrupt_while_it_starts_is_no_traceback(module: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", module, "--help"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stderr is not None
        assert any("argparse" in line for line in process.stderr), "most is not imported yet"
        process.send_signal(signal.SIGINT)
        assert "Traceback" not in process.stderr.read()
    assert process.returncode == -signal.SIGINT


@pytest.mark.parametrize("arguments", ["keys --new", "keys --new --json", "keys --json"])
def test_a_full_disk_is_one_line(arguments: str) -> None:
    """A failed write is reported in one line, whether of a result or of an error.

    The error has no secret in its text.
    """
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "peer.cli.command", *arguments.split()],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    told = "rmb: the output was not written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, told)


def test_a_bare_command_teaches(capsys: Captured) -> None:
    assert main([]) == 2
    told = capsys.readouterr()
    assert not told.out and "examples:\n  rmb ping" in told.err
    assert all(f"    {verb} " in told.err for verb in VERBS)


@pytest.mark.parametrize("module", ["peer.cli.command", "peer.gateway.command", "relay.server.cli"])
def test_version(module: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", module, "--version"], cwd=ROOT, capture_output=True, text=True
    )
    program = {"peer.cli.command": "rmb", "peer.gateway.command": "rmb-peer"}.get(
        module, "rmb-relay"
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == f"{program} {version(PACKAGE)}\n"


def test_a_key_of_sbd_may_begin_with_a_dash(capsys: Captured) -> None:
    for first in (b"\xf8", b"\xfb\xef"):
        key = path_of_key(first.ljust(32, b"\0"))
        assert key.startswith("-")
        assert main(["sbd", "send", "ws://127.0.0.1:1", key, "text"]) == 1
        assert "Connect call failed" in capsys.readouterr().err
