"""The command line of `rmb-peer`: what it accepts, and its errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from peer.arguments import UsageError
from peer.gateway.options import Action, build_parser, parse
from peer.link import check_url
from peer.twin_sources.rest import RestTwins
from peer.twins import open_source
from proto.identity.signing import KeyType
from redispipe.address import RedisAddress, RedisAddressError
from tests.support.identities import twin

SEED = f"0x{twin(7).mini_secret.hex()}"  # TEST KEY
WORDS = "bottom drive obey lake curtain smoke basket hold race lonely fit walk"  # TEST KEY
WORDS_PK = "035b26108e8b97479c547da4860d862dc08ab2c29ada449c74d5a9a58a6c46a8c4"


@pytest.fixture(autouse=True)
def _no_secret_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RMB_SECRET", "RMB_SECRET_FILE"):
        monkeypatch.delenv(name, raising=False)


def refusal(*arguments: str) -> str:
    with pytest.raises(UsageError) as caught:
        parse(arguments)
    return str(caught.value)


def test_defaults_are_those_of_the_reference() -> None:
    options = parse(["-m", WORDS])
    assert options.action is Action.RUN
    assert options.identity is not None
    assert options.identity.key.key_type is KeyType.SR25519
    assert options.identity.pk.hex() == WORDS_PK
    assert options.redis_url == "redis://localhost:6379"
    assert options.substrate == ("wss://tfchain.grid.tf:443",)
    assert options.relays == ("wss://relay.grid.tf",)
    assert options.domains == ("relay.grid.tf",)
    assert (options.update, options.uploads, options.twins, options.debug) == (True, None, None, 0)
    assert not options.warnings


def test_the_options_of_the_reference(tmp_path: Path) -> None:
    options = parse(
        [
            *("-k", "ed25519", "-m", SEED, "-u", str(tmp_path), "-r", "redis://127.0.0.1:7777"),
            *("-s", "ws://n1.example", "ws://n2.example", "-s", "ws://n3.example"),
            *("--relay", "wss://r1.example:444", "--relay", "ws://r2.example", "-d", "-d"),
            "--no-update",
        ]
    )
    assert options.identity is not None
    assert options.identity.key.key_type is KeyType.ED25519
    assert options.uploads == tmp_path
    assert options.redis_url == "redis://127.0.0.1:7777"
    assert options.substrate == ("ws://n1.example", "ws://n2.example", "ws://n3.example")
    assert options.relays == ("wss://r1.example:444", "ws://r2.example")
    assert options.domains == ("r1.example", "r2.example")
    assert (options.debug, options.update) == (2, False)


@pytest.mark.parametrize("name", ["mnemonics", "seed"])
def test_deprecated_spellings_work_with_a_warning(name: str) -> None:
    options = parse([f"--{name}", SEED])
    assert options.identity is not None
    assert options.identity.account == twin(7).account
    assert options.warnings == (f"--{name} is deprecated: use --mnemonic",)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("-m", SEED, "--seed", SEED), "--mnemonic and --seed"),
        (("--mnemonics", SEED, "--seed", SEED), "--mnemonics and --seed"),
        (("-m", SEED, "--secret-file", "x"), "--mnemonic and --secret-file"),
    ],
)
def test_a_secret_is_given_exactly_once(arguments: tuple[str, ...], named: str) -> None:
    assert refusal(*arguments) == f"use only one of {named}"


def test_a_secret_need_not_stand_in_the_process_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{SEED}\n")
    assert "RMB_SECRET_FILE" in refusal()
    named = parse(["--secret-file", str(file)]).identity
    monkeypatch.setenv("RMB_SECRET", SEED)
    in_variable = parse([]).identity
    monkeypatch.setenv("RMB_SECRET_FILE", str(file))
    assert refusal() == "set RMB_SECRET or RMB_SECRET_FILE, not both"
    monkeypatch.delenv("RMB_SECRET")
    in_file = parse([]).identity
    assert named and in_variable and in_file
    assert {each.account for each in (named, in_variable, in_file)} == {twin(7).account}
    # The command line takes precedence.
    assert (identity := parse(["-m", WORDS]).identity) and identity.pk.hex() == WORDS_PK


def test_no_text_repeats_a_secret(tmp_path: Path) -> None:
    wrong = "bottom drive obey lake curtain smoke basket hold race lonely fit wolkenkratzer"
    file = tmp_path / "secret"
    file.write_text(wrong)
    texts = [
        refusal("-m", wrong),
        refusal("-m", *wrong.split()),
        refusal(f"--mnemonix={wrong}"),
        refusal("--secret-file", str(file)),
        refusal("-k", "ed25519", "-m", f"{SEED}//wolkenkratzer"),
        refusal("--log-format", wrong, "-m", SEED),
        repr(parse(["-m", SEED])),
    ]
    for text in texts:
        assert "wolkenkratzer" not in text
        assert SEED[2:] not in text


@pytest.mark.parametrize(
    "url",
    [
        "redis://:hunter2/abc@host:6379",
        "redis://hunter2/abc@host",
        "redis://me:hunter2#abc@host",
        "redis://me:hunter2@host:port",
        "redis://me:hunter2@host/abc",
        "redis://me:hunter2@[host",
        "redis://me:hunter2@ho\u2100st",
        "redi://me:hunter2@host",
        "me:hunter2@host",
    ],
)
def test_no_text_repeats_a_password(url: str) -> None:
    with pytest.raises(RedisAddressError) as caught:
        RedisAddress.parse(url)
    relay = url.replace("redis", "wss")
    with pytest.raises(ValueError) as refused:
        check_url(relay)
    with pytest.raises(ValueError) as rest:
        RestTwins(url)
    texts = [
        refusal("-m", SEED, "--redis", url),
        refusal("-m", SEED, "--relay", relay),
        *(str(each.value) for each in (caught, refused, rest)),
    ]
    for text in texts:
        assert "hunter2" not in text
        assert "abc" not in text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--relay", "ws://127.0.0.1:8080"), "relay URL must contain a domain name"),
        (("--relay", "ws://[::1]:8080"), "relay URL must contain a domain name"),
        (("--relay", "ws://127.1:8080"), "relay URL must contain a domain name"),
        (("--relay", "ws://0x7f000001"), "relay URL must contain a domain name"),
        (("--relay", "ws://192.0.2.1.:8080"), "relay URL must contain a domain name"),
        (("--relay", "http://r1.example"), "must begin with ws:// or wss://"),
        (("--relay", "wss://"), "has no host"),
        (("--relay", "wss://r1.example:99999"), "not an address"),
        (("--relay", "wss://r1.example/?x"), "must not have a query"),
        (("--relay", "wss://me:pass@r1.example"), "must not have a user name"),
        (("--relay", "wss://a_b.example"), "the host name must not contain '_'"),
        (("--relay", "wss://r.example"), "the first label must have at least two characters"),
        (("--relay", *(f"wss://r{n}.example" for n in range(5))), "1 to 4 relays, not 5"),
        (("-s", "http://n1.example"), "must begin with ws:// or wss://"),
        (("-s", "ws://n1.example", "--twins", "x.csv"), "use --twins or --substrate, not both"),
        (("--twins", ""), "--twins: is empty"),
        (("--redis", "http://localhost"), "must begin with redis://, rediss:// or unix://"),
        (("--redis", "redis://"), "no host name in it"),
        (("--redis", "redis://localhost:port"), "--redis: invalid port"),
        (("--redis", "redis://localhost:0"), "--redis: invalid port"),
        (("--redis", "redis://me:hunter2@"), "no host name in it"),
        (("--redis", "redis://local host"), "--redis: invalid host name"),
        (("--redis", "unix://socket"), "write unix:///path/to/socket"),
        (("--redis", "unix:/socket"), "--redis: write unix:///path/to/socket"),
        (("--redis", "redis://a..b"), "--redis: invalid host name"),
        (("--redis", f"redis://{'x' * 64}.b"), "invalid host name"),
        (("--relay", "ws://.example"), "not an address: the host or the port is invalid"),
        (("--relay", "ws://r1.example/\u00e9"), "the path must be ASCII"),
        (("-s", "ws://a..b"), "the host or the port is invalid"),
        (("--metrics-listen", "a..b:9100"), "--metrics-listen a..b:9100: the host is invalid"),
        (("--redis", "redis://:secret@localhost?db=x"), "invalid database number"),
        (("--redis", "redis://:hunter2/abc@host"), "write / as %2F"),
        (("--upload-max", "0"), "--upload-max: must be from 1 to 1099511627776 bytes"),
        (("--upload-quota", "0"), "--upload-quota: must be above 0"),
        (("-k", "rsa"), "must be sr25519 or ed25519"),
        (("-u", "/nowhere/at/all"), "not a folder"),
        (("--uploads", ""), "--uploads: is empty"),
        (("--uploads", "~nobody-at-all/x"), "--uploads ~nobody-at-all/x: not a folder"),
        (("--metrics-listen", "9100"), "must be HOST:PORT"),
        (("--metrics-listen", ":9100"), "must be HOST:PORT"),
        (("--metrics-listen", "localhost:70000"), "must be HOST:PORT"),
        (("--json",), "needs --check or --dead-letters"),
        (("--check", "--dead-letters"), "not both"),
        (("--chek",), "unknown option --chek; did you mean --check?"),
        (("--mnem", "x"), "unknown option --mnem; did you mean --mnemonic?"),
    ],
)
def test_a_refusal_names_what_is_wrong(arguments: tuple[str, ...], text: str) -> None:
    assert text in refusal("-m", SEED, *arguments)


def test_twins_of_a_scheme_that_is_none() -> None:
    with pytest.raises(ValueError, match="ftp://x is neither an http"):
        open_source("ftp://x")


def test_one_relay_given_twice_is_one() -> None:
    spellings = ("wss://r1.example", "wss://r1.example", "wss://R1.example/", "ws://r1.example./x")
    options = parse(["-m", SEED, "--relay", *spellings])
    assert options.relays == ("wss://r1.example",)


def test_the_own_twin_lists_the_canonical_name() -> None:
    options = parse(["-m", SEED, "--relay", "wss://R1.Example.:8443"])
    assert options.domains == ("r1.example",)


def test_twins_without_a_chain_are_never_updated() -> None:
    options = parse(["-m", SEED, "--twins", "twins.csv", "--relay", "ws://localhost:8080"])
    assert (options.twins, options.update) == ("twins.csv", False)


def test_names_the_chain_refuses_are_fine_where_nothing_is_written() -> None:
    options = parse(["-m", SEED, "--no-update", "--relay", "wss://r.example"])
    assert options.domains == ("r.example",)


def test_dead_letters_need_no_secret() -> None:
    options = parse(["--dead-letters", "--json"])
    assert (options.action, options.identity, options.json) == (Action.DEAD_LETTERS, None, True)


def test_an_address_for_metrics() -> None:
    assert parse(["-m", SEED, "--metrics-listen", "[::1]:0"]).metrics_listen == ("::1", 0)
    assert parse(["-m", SEED, "--metrics-listen", "localhost:9100"]).metrics_listen == (
        "localhost",
        9100,
    )


def test_every_option_is_explained() -> None:
    for action in build_parser()._actions:
        assert action.help, action.option_strings
