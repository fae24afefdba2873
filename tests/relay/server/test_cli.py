"""Options of `runrelay` and `rmb-relay`, and the configuration that results from them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from relay.server import cli
from tests.support.certificates import make_certificate

PLAIN = ["--domain", "relay.example", "--twins", "registry"]


def settled(
    arguments: list[str], environ: Mapping[str, str] | None = None, entry: str = "rmb-relay"
) -> cli.Settled:
    return cli.settle(cli.parse_options(arguments, entry), environ or {})


def refusal(arguments: list[str], environ: Mapping[str, str] | None = None) -> str:
    with pytest.raises(cli.UsageError) as caught:
        settled(arguments, environ)
    return str(caught.value)


@pytest.fixture(autouse=True)
def _in_a_folder_without_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "arguments",
    [
        ["-m", "a", "b"],
        ["--domain", "a", "--domain", "b"],
        ["-m", "a", "--twins", "registry", "-m", "b"],
        ["--domain=a", "--domain=b"],
    ],
)
def test_domains_are_given_together_or_one_by_one(arguments: list[str]) -> None:
    assert settled([*arguments, "--twins", "registry"]).config.relay.domains == ("a", "b")


@pytest.mark.parametrize("limit", [["100", "2000"], ["100,2000"], ["100,", "2000"]])
def test_both_forms_of_the_limit(limit: list[str]) -> None:
    limits = settled([*PLAIN, "--limit", *limit]).config.limits
    assert (limits.count, limits.size) == (100, 2000)


@pytest.mark.parametrize("option", ["-p", "--ranker-period", "--ranker_period"])
def test_spellings_of_the_ranker_period(option: str) -> None:
    assert settled([*PLAIN, option, "60"]).config.federation.ranker_period_s == 60


def test_every_option_of_the_reference() -> None:
    config = settled(
        [
            *("-m", "relay.example:443", "other", "-s", "wss://a:443", "wss://b"),
            *("-r", "redis://cache:6380/2", "-w", "10", "-u", "20", "-l", "127.0.0.1:9000"),
            *("--limit", "5", "6", "-p", "60", "--catchup-threshold", "7", "-d", "-d"),
            *("--twins", "registry"),
        ]
    ).config
    assert config.relay.domains == ("relay.example:443", "other")
    assert config.substrate.urls == ("wss://a:443", "wss://b")
    assert config.redis.url == "redis://cache:6380/2"
    assert config.relay.workers * config.relay.user_per_worker == 200
    assert config.relay.listen == "127.0.0.1:9000"
    assert config.federation.ranker_period_s == 60
    assert config.substrate.catchup_threshold == 7
    assert config.log.level == "debug"


def test_our_own_options(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    config = settled(
        [
            *(*PLAIN, "--processes", "3", "--server", "daphne", "--admin-listen", "none"),
            *("--tls-cert", str(certificate), "--tls-key", str(key)),
            *("--trusted-proxy", "10.0.0.0/8", "fd00::/8", "--database", "sqlite:///x.db"),
            *("--data", "here"),
        ]
    ).config
    assert (config.relay.processes, config.relay.server, config.admin.listen) == (3, "daphne", "")
    assert config.relay.trusted_proxies == ("10.0.0.0/8", "fd00::/8")
    assert config.database.url == "sqlite:///x.db"
    assert config.data.dir == "here"


def test_defaults_of_a_bare_start() -> None:
    config = settled(["--domain", "relay.example"]).config
    assert config.relay.listen == "[::]:8080"
    assert config.twins.source == "tfchain"
    assert config.substrate.urls == ("wss://tfchain.grid.tf:443",)
    assert config.redis.url == "redis://localhost:6379"
    assert config.admin.listen == "127.0.0.1:8081"


def test_defaults_of_the_embedded_start() -> None:
    config = settled(["--embedded"]).config
    assert config.relay.listen == "127.0.0.1:8080"
    assert config.relay.domains == ("localhost",)
    assert config.twins.source == "registry"


def test_precedence_of_defaults_file_environment_and_command_line(tmp_path: Path) -> None:
    tmp_path.joinpath("rmb.toml").write_text(
        '[relay]\nlisten = "127.0.0.1:1"\nprocesses = 2\ndomains = ["file"]\n'
    )
    environ = {"RMB_RELAY__LISTEN": "127.0.0.1:2", "RMB_RELAY__DOMAINS": "environment"}
    relay = settled(["--embedded", "-l", "127.0.0.1:3"], environ).config.relay
    assert (relay.listen, relay.domains, relay.processes) == ("127.0.0.1:3", ("environment",), 2)
    assert settled(["--embedded"]).config.relay.listen == "127.0.0.1:1"


def test_children_read_the_same_configuration(tmp_path: Path) -> None:
    secret = tmp_path / "url"
    secret.write_text("redis://from-file:1\n")
    environ = {
        "RMB_REDIS__URL_FILE": str(secret),
        "RMB_RELAY__DRAIN_S": "1",
        "RMB_ANALYTICS__DIR": "events",
    }
    options = ("-r", "redis://chosen:2", "-m", "second", "-d", "--record")
    start = settled([*PLAIN, *options], environ)
    cli.export(start.environment, environ)
    again = settled(PLAIN[2:], environ).config
    assert again.redis.url == "redis://chosen:2"
    assert again.relay == start.config.relay
    assert again.log == start.config.log
    assert again.data.dir == str(tmp_path / "data"), "children may run in another folder"
    assert again.analytics.record
    assert again.analytics.dir == str(Path("events").absolute())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "--domain (or RMB_RELAY__DOMAINS) is missing"),
        ([], "such as rmb-relay --domain relay.example.com"),
        ([], "rmb-relay --embedded; all options: --help"),
        ([*PLAIN, "--twins", "file"], "--twins: must be one of registry, tfchain"),
        ([*PLAIN, "--substrate", "ws://a..b"], "substrate.urls: each must be ws://host"),
        ([*PLAIN, "--substrate", "ws://a:b"], "substrate.urls: each must be ws://host"),
        ([*PLAIN, "--substrate", "https://a"], "substrate.urls: each must be ws://host"),
        ([*PLAIN, "--domian", "b"], "unknown option --domian; did you mean --domain?"),
        ([*PLAIN, "--proc", "2"], "unknown option --proc"),
        ([*PLAIN, "--zzzzzzzzz"], "unknown option --zzzzzzzzz (see --help)"),
        (["stray", *PLAIN], "unexpected argument stray"),
        ([*PLAIN, "--processes", "two"], "--processes: must be integer, not 'two'"),
        ([*PLAIN, "--processes", "0"], "--processes: must be at least 1"),
        ([*PLAIN, "--server", "gunicorn"], "--server: must be one of uvicorn, daphne"),
        ([*PLAIN, "--limit", "5"], "--limit needs a count and a size"),
        ([*PLAIN, "--limit", "1", "2", "3"], "--limit needs a count and a size"),
        ([*PLAIN, "--limit", "0", "5"], "both or neither must be set"),
        ([*PLAIN, "--limit", "a", "5"], "--limit: must be integer"),
        ([*PLAIN, "--ranker-period", "soon"], "--ranker-period: must be integer"),
        ([*PLAIN, "--listen", "8080"], "--listen: listening address '8080' has no port"),
        ([*PLAIN, "--admin-listen", "x:y"], "--admin-listen: listening address 'x:y'"),
        ([*PLAIN, "--listen", ""], "--listen: listening address '' has no port"),
        ([*PLAIN, "--redis", "http://x"], "must begin with redis://"),
        ([*PLAIN, "--redis", "redis://a/x"], "--redis: invalid database number"),
        ([*PLAIN, "--redis", "redis://a..b"], "--redis: invalid host name"),
        ([*PLAIN, "--redis", "redis://a:99999"], "--redis: invalid port"),
        ([*PLAIN, "--redis", "redis://a:0"], "--redis: invalid port"),
        ([*PLAIN, "--redis", "redis://:@"], "--redis: no host name"),
        ([*PLAIN, "--redis", "redis://[::1"], "--redis: invalid host name"),
        ([*PLAIN, "--redis", "redis://a b"], "--redis: invalid host name"),
        ([*PLAIN, "--redis", "unix://"], "--redis: write unix:///path/to/socket"),
        ([*PLAIN, "--redis", "unix:/s"], "--redis: write unix:///path/to/socket"),
        ([*PLAIN, "--redis", "unix://s"], "--redis: write unix:///path/to/socket"),
        ([*PLAIN, "--database", "mysql://x"], "must begin with sqlite:// or postgres://"),
        ([*PLAIN, "--tls-cert", "nowhere.pem"], "both or neither must be set"),
        ([*PLAIN, "--tls-cert", "no.pem", "--tls-key", "no.key"], "--tls-cert: cannot read no.pem"),
        ([*PLAIN, "--trusted-proxy", "proxy"], "does not appear to be an IPv4 or IPv6 network"),
        (["-m", "a_b", "--twins", "registry"], "a name must not contain an underscore"),
        (["--embedded", "-r", "redis://x"], "--embedded starts its own Redis"),
        ([*PLAIN, "--redis"], "expected one argument"),
    ],
)
def test_bad_options_are_refused_by_name(arguments: list[str], text: str) -> None:
    assert text in refusal(arguments)


def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    certificate, _ = make_certificate(tmp_path)
    (tmp_path / "other").mkdir()
    _, key = make_certificate(tmp_path / "other")
    arguments = [*PLAIN, "--tls-cert", str(certificate), "--tls-key", str(key)]
    assert "cannot use --tls-cert with --tls-key" in refusal(arguments)


def test_a_key_with_a_passphrase_is_refused_and_asked_nobody(tmp_path: Path) -> None:
    certificate, path = make_certificate(tmp_path)
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    arguments = [*PLAIN, "--tls-cert", str(certificate), "--tls-key", str(path)]
    assert "--tls-key: the key is encrypted" in refusal(arguments)


def test_a_bad_environment_is_refused_by_name() -> None:
    assert "did you mean relay.domains?" in refusal(PLAIN, {"RMB_RELAY__DOMAIN": "x"})


@pytest.mark.parametrize("entry", ["runrelay", "rmb-relay"])
def test_a_refusal_is_one_line_and_exit_code_2(
    entry: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["--nonsense"], entry) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"{entry}: unknown option --nonsense (see --help)\n"


def test_help_names_every_option_and_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        cli.run(["--help"], "rmb-relay")
    assert exited.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    for word in ("--catchup-threshold", "127.0.0.1:8081", "examples:", "exit code:", "rmb_config"):
        assert word in shown
