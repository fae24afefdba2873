"""The file of `rmb-peer --many`: what it accepts, and its errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from peer.arguments import UsageError
from peer.gateway import many_file
from peer.gateway.many_file import ManyFile, read
from peer.gateway.options import Action, parse
from tests.support.identities import twin
from tests.support.peer_process import write_secret
from tests.support.relay_process import ROOT

TOP = """\
relays = ["wss://r1.example"]
twins = "twins.csv"
redis = "redis://localhost:7777"
"""


@pytest.fixture
def write(tmp_path: Path) -> Path:
    for number in (7, 8):
        write_secret(tmp_path, twin(number))
    return tmp_path / "twins.toml"


def given(path: Path, *entries: str, top: str = TOP) -> ManyFile:
    """Read a file with these twins."""
    path.write_text(top + "".join(f"[[twin]]\n{each}\n" for each in entries))
    return read(path)


def refusal(path: Path, *entries: str, top: str = TOP) -> str:
    """Return why a file is refused, without its path."""
    with pytest.raises(UsageError) as caught:
        given(path, *entries, top=top)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    return text.removeprefix(f"{path}: ")


def test_twins_and_what_they_have_in_common(write: Path) -> None:
    (write.parent / "files").mkdir()
    file = given(
        write,
        'name = "alice"\nsecret_file = "secret-7"\ndatabase = 1',
        'secret_file = "secret-8"\nkey_type = "ed25519"\nsid = "two"\nuploads = "files"\n'
        'relays = ["wss://r2.example", "wss://r3.example"]\nredis = "unix:///run/redis.sock"\n'
        'modules = ["a:b"]',
    )
    assert (file.twins, file.update) == (str(write.parent / "twins.csv"), False)
    alice, other = file.entries
    assert (alice.name, alice.label) == ("alice", "[[twin]] 1 (alice)")
    assert alice.account == twin(7).account
    assert alice.redis_url == "redis://localhost:7777/1"
    assert (alice.relays, alice.sid, alice.uploads) == (("wss://r1.example",), None, None)
    assert (other.name, other.label, other.sid) == ("2", "[[twin]] 2", "two")
    assert other.relays == ("wss://r2.example", "wss://r3.example")
    assert other.redis_url == "unix:///run/redis.sock"
    assert other.uploads == write.parent / "files"
    assert other.modules == ("a:b",)


def test_what_a_file_need_not_say(write: Path) -> None:
    file = given(write, 'secret_file = "secret-7"', top="")
    assert (file.twins, file.update) == (None, True)
    assert file.substrate == ("wss://tfchain.grid.tf:443",)
    assert file.entries[0].relays == ("wss://relay.grid.tf",)
    assert file.entries[0].redis_url == "redis://localhost:6379"


def test_a_secret_that_cannot_be_read_is_the_problem_of_its_twin(write: Path) -> None:
    file = given(
        write,
        'secret_file = "secret-7"\ndatabase = 1',
        'secret_file = "nothing"\ndatabase = 2',
        'secret = "no words"\ndatabase = 3',
    )
    good, missing, bad = file.entries
    assert not good.problem
    assert missing.identity is None
    assert missing.problem == (
        f"secret_file: secret file {write.parent}/nothing: No such file or directory"
    )
    assert bad.problem.startswith("secret: the secret: ")
    assert "no words" not in bad.problem


def test_an_entry_that_has_not_changed_is_the_same(write: Path) -> None:
    texts = ('secret_file = "secret-7"\ndatabase = 1', 'secret_file = "secret-8"\ndatabase = 2')
    one, two = given(write, *texts).entries
    assert given(write, *reversed(texts)).entries == (two, one)
    write_secret(write.parent, twin(9)).rename(write.parent / "secret-7")
    assert given(write, *texts).entries[0] != one


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ("", "[[twin]] 1: secret_file: is missing"),
        ('secret_file = "a"\nsecret = "b"', "[[twin]] 1: secret, secret_file: use one of them"),
        (
            'name = "al"\nsecret_fil = "a"',
            "[[twin]] 1 (al): unknown field 'secret_fil'; did you mean secret_file?",
        ),
        ("secret_file = 5", "[[twin]] 1: secret_file: must be a text"),
        ('secret_file = "a"\nrelays = "wss://r"', "[[twin]] 1: relays: must be a list of texts"),
        ('secret_file = "a"\nrelays = []', "[[twin]] 1: relays: must be 1 to 4 relays, not 0"),
        (
            'secret_file = "a"\nrelays = ["http://r"]',
            "[[twin]] 1: relays: http://r: must begin with ws:// or wss://",
        ),
        ('secret_file = "a"\ndatabase = true', "[[twin]] 1: database: must be a number"),
        (
            'secret_file = "a"\ndatabase = -1',
            "[[twin]] 1: database: -1 must be from 0 to 999999999",
        ),
        (
            'secret_file = "a"\nredis = "http://x"',
            "[[twin]] 1: redis: must begin with redis://, rediss:// or unix://",
        ),
        (
            'secret_file = "a"\nkey_type = "rsa"',
            "[[twin]] 1: key_type: key type 'rsa': must be sr25519 or ed25519",
        ),
        ('secret_file = "a"\nuploads = "none"', "none: not a folder"),
        ('secret_file = "a"\nsid = ""', "[[twin]] 1: sid: must have 1 to 128 bytes"),
        ('secret_file = "a"\nname = ""', "[[twin]] 1: name: must be a text that can be printed"),
    ],
)
def test_refusals_name_the_twin_and_the_field(write: Path, entry: str, text: str) -> None:
    assert refusal(write, entry).endswith(text)


def test_refusals_of_the_whole_file(write: Path) -> None:
    assert refusal(write) == "[[twin]]: must be 1 to 20000 twins, not 0"
    assert refusal(write, top="twin = 5\n") == "twin: must be tables; begin each with [[twin]]"
    assert refusal(write, top="relay = 5\n") == "unknown field 'relay'; did you mean relays?"
    assert refusal(write, top="x = ").startswith("is not TOML: ")
    both = 'twins = "a"\nsubstrate = ["wss://n.example"]\n'
    assert refusal(write, top=both) == "twins, substrate: use one of them"
    assert refusal(write, top='twins = ""\n') == "twins: is empty; use a file or a URL"
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read(write.parent / "nothing.toml")


def test_what_no_two_twins_may_have(write: Path) -> None:
    one, two = 'secret_file = "secret-7"\n', 'secret_file = "secret-8"\n'
    assert refusal(write, one, f'{two}redis = "redis://user:pass@localhost:7777/0"') == (
        "[[twin]] 2: redis: localhost:7777/0 is the Redis of [[twin]] 1 too; give each twin a "
        "database of its own"
    )
    assert refusal(write, f"{one}database = 1", f"{one}database = 2") == (
        "[[twin]] 2: secret: is the same twin as [[twin]] 1 too"
    )
    named = 'name = "a"\n'
    assert refusal(write, f"{named}{one}database = 1", f"{named}{two}database = 2") == (
        "[[twin]] 2 (a): name: has the same name as [[twin]] 1 (a) too"
    )
    assert given(write, f"{one}database = 1", f'{one}database = 2\nsid = "x"')


def test_the_example_of_the_how_to(tmp_path: Path) -> None:
    page = (ROOT / "docs/howto/many-twins.md").read_text()
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "secrets").mkdir()
    (tmp_path / "uploads/carol").mkdir(parents=True)
    for number, name in enumerate(("alice", "bob", "carol"), 7):
        write_secret(tmp_path, twin(number)).rename(tmp_path / "secrets" / name)
    path = tmp_path / "twins.toml"
    path.write_text(example)
    assert [(each.name, each.problem) for each in read(path).entries] == [
        ("alice", ""),
        ("2", ""),
        ("carol", ""),
    ]
    fields = set(re.findall(r"`(\w+)`", page))
    assert fields >= {*many_file._TOP, *many_file._TWIN}


def test_options_beside_the_file() -> None:
    options = parse(["--many", "twins.toml", "--log-format", "json", "--upload-max", "1M"])
    assert (options.action, options.identity) == (Action.MANY, None)
    assert options.many == Path("twins.toml")
    options = parse(["--many", "twins.toml", "--check", "--json"])
    assert (options.action, options.identity, options.json) == (Action.CHECK, None, True)
    because = "cannot be used with --many"
    refused = {
        ("--relay", "wss://r.example"): f"--relay {because}; set relays in the file",
        ("--no-update",): f"--no-update {because}; set update in the file",
        ("--dead-letters",): f"--dead-letters {because}",
        ("--json",): "--json needs --check or --dead-letters",
    }
    for arguments, text in refused.items():
        with pytest.raises(UsageError) as caught:
            parse(["--many", "twins.toml", *arguments])
        assert str(caught.value) == text
