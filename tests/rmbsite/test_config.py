"""Tests of `rmbsite.config`: precedence, refusals, secrets."""

from __future__ import annotations

import dataclasses
import stat
from pathlib import Path

import pytest

from rmbsite import config
from rmbsite.config import Config, ConfigError, load, resolve
from rmbsite.options import MAX_SECRET_FILE_BYTES


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rmb.toml"


def env(file: Path | None = None, **variables: str) -> dict[str, str]:
    named = {config.FILE_VARIABLE: str(file)} if file else {}
    return {**named, "PATH": "/bin", **variables}


def test_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load(environ=env()) == Config()


def test_every_layer_wins_over_the_one_before(file: Path) -> None:
    file.write_text('[relay]\nlisten = "a:1"\nprocesses = 2\ndomains = ["x", "y"]\n')
    variables = {"RMB_RELAY__LISTEN": "b:2", "RMB_RELAY__PROCESSES": "3"}
    found = resolve({"relay.listen": "c:3"}, env(file, **variables))
    assert found.config.relay.listen == "c:3"
    assert found.config.relay.processes == 3
    assert found.config.relay.domains == ("x", "y")
    assert found.config.relay.server == "uvicorn"
    assert found.origins == {
        "relay.listen": "command line",
        "relay.processes": "RMB_RELAY__PROCESSES",
        "relay.domains": str(file),
    }


def test_the_file_in_the_working_folder_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rmb.toml").write_text("[queue]\nretention_s = 60\n")
    assert load(environ=env()).queue.retention_s == 60


@pytest.mark.parametrize("text", ["a.b c", "a.b,c", " a.b ,\tc "])
def test_lists_are_words(text: str) -> None:
    assert load({"relay.domains": text}, env()).relay.domains == ("a.b", "c")


@pytest.mark.parametrize(
    ("variable", "value", "complaint"),
    [
        ("RMB_RELAY__LISTN", "x", "unknown setting relay.listn .*did you mean relay.listen"),
        ("RMB_RELY__LISTEN", "x", "unknown setting rely.listen .*did you mean relay.listen"),
        ("RMB_QUEUE__MAX_MESAGES", "1", "did you mean queue.max_messages"),
        ("RMB_XYZZY__Q", "1", r"unknown setting xyzzy\.q \(RMB_XYZZY__Q\)"),
        ("RMB_RELAY__PROCESSES", "many", "relay.processes .* must be integer"),
        ("RMB_RELAY__PROCESSES", "0", "must be at least 1"),
        ("RMB_RELAY__PROCESSES", "1000", "must be at most 256"),
        ("RMB_RELAY__IDLE_TIMEOUT_S", "1e3", "must be number"),
        ("RMB_RELAY__IDLE_TIMEOUT_S", "nan", "must be number"),
        ("RMB_RELAY__SERVER", "apache", "must be one of uvicorn, daphne"),
        ("RMB_METRICS__ALLOW", "10.0.0.300/8", "metrics.allow: "),
        ("RMB_RELAY__TLS_CERT", "x", "relay.tls_cert and relay.tls_key"),
        ("RMB_LIMITS__COUNT", "5", "limits.count and limits.size"),
        ("RMB_REDIS__URL", "http://x", r"redis.url \(RMB_REDIS__URL\): must begin with"),
        ("RMB_REDIS__URL", "redis://localhost/x", "redis.url .* invalid database number"),
        ("RMB_REDIS__URL", "redis://:hunter/2@localhost", "redis.url .* write / as %2F"),
        ("RMB_SUBSTRATE__URLS", "wss://me:1/word@node.example", "substrate.urls: each must be"),
        ("RMB_DATABASE__URL", "postgres://[x/relay", "database.url: invalid host name"),
        ("RMB_OIDC__ISSUER", "https://[x", "oidc.issuer: invalid host name"),
        ("RMB_DATABASE__URL", "mysql://x", "database.url: must begin with"),
        ("RMB_DATABASE__URL", "relay.sqlite3", "database.url: must begin with"),
    ],
)
def test_refusals_name_the_setting(variable: str, value: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load(environ=env(**{variable: value}))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[relay\n", "not valid TOML"),
        ("relay = 3\n", "unknown setting relay"),
        ("[relay]\nlisten = 3\n", r"relay.listen .* must be text, not 3"),
        ("[relay]\nprocesses = true\n", "must be integer, not True"),
        ('[relay]\ndomains = ["a", 3]\n', "must be list"),
        ("[federation]\ntimeout_s = nan\n", r"federation.timeout_s .* must be number, not nan"),
        ("[federation]\ntimeout_s = inf\n", "must be number, not inf"),
        ("[federation]\ntimeout_s = -inf\n", "must be number, not -inf"),
        (f"[federation]\ntimeout_s = 1{'0' * 400}\n", "must be number"),
        (f"[relay]\nprocesses = 1{'0' * 400}\n", "must be integer"),
        ("[rely]\nlisten = 3\n", "did you mean relay.listen"),
    ],
)
def test_refusals_of_a_file(file: Path, text: str, complaint: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        load(environ=env(file))


def test_a_named_file_must_exist(file: Path) -> None:
    with pytest.raises(ConfigError, match="RMB_CONFIG: cannot read"):
        load(environ=env(file))


def test_variables_of_other_programs_are_left_alone() -> None:
    assert load(environ=env(RMB_TOKEN="x", RELAY__LISTEN="y")) == Config()


def test_a_secret_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "url"
    path.write_text("redis://:password@host\n")
    assert (
        load(environ=env(RMB_REDIS__URL_FILE=str(path))).redis.url == "redis://:password@host:6379"
    )
    with pytest.raises(ConfigError, match=r"unknown setting relay\.listen_file"):
        load(environ=env(RMB_RELAY__LISTEN_FILE=str(path)))


@pytest.mark.parametrize("content", [b"", b"a\nb\n", b"\xff", b"x" * (MAX_SECRET_FILE_BYTES + 1)])
def test_a_file_that_is_no_secret(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"site\.secret_key"):
        load(environ=env(RMB_SITE__SECRET_KEY_FILE=str(path)))


def test_a_wrong_secret_is_not_repeated(file: Path) -> None:
    file.write_text('[redis]\nurl = ["hunter2"]\n')
    with pytest.raises(ConfigError) as caught:
        load(environ=env(file))
    assert "hunter2" not in str(caught.value)


def test_the_secret_key_is_made_once(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "data"
    found = load({"data.dir": str(folder)}, env())
    key = config.secret_key(found)
    assert len(key) >= 64
    assert config.secret_key(found) == key
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [path.name for path in folder.iterdir()] == [config.SECRET_KEY_FILE]
    assert stat.S_IMODE((folder / config.SECRET_KEY_FILE).stat().st_mode) == 0o600


def test_a_configured_secret_key_touches_no_folder(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    found = load({"data.dir": str(folder), "site.secret_key": "k"}, env())
    assert config.secret_key(found) == "k"
    assert not folder.exists()


def test_a_data_folder_of_ours_is_made_private(tmp_path: Path) -> None:
    empty, used = tmp_path / "empty", tmp_path / "used"
    for folder in (empty, used):
        folder.mkdir()
        folder.chmod(0o755)
    (used / config.SECRET_KEY_FILE).write_text("x")
    for folder in (empty, used):
        load({"data.dir": str(folder)}, env()).make_data_dir()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_of_others_is_refused(tmp_path: Path) -> None:
    """A data folder that others can read and that has files in it is refused, not made private.

    It may be a folder of the system, which would stop working.
    """
    (tmp_path / "passwd").write_text("")
    tmp_path.chmod(0o755)
    with pytest.raises(ConfigError, match=rf"{tmp_path} \(mode 0755\); chmod 700"):
        load({"data.dir": str(tmp_path)}, env()).make_data_dir()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_a_data_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = load({"data.dir": str(tmp_path / "file" / "data")}, env())
    with pytest.raises(ConfigError, match=r"data\.dir: cannot make"):
        found.make_data_dir()


def test_a_home_folder_of_nobody_is_a_name_like_others() -> None:
    found = load({"data.dir": "~nobody-at-all/data"}, env())
    assert found.data_dir == Path.cwd() / "~nobody-at-all" / "data"


def test_every_setting_is_documented_and_has_a_valid_default() -> None:
    for each in config.all_options():
        assert each.doc.endswith("."), each.key
    # A default given as text must be read as the same value.
    for each in config.all_options():
        if each.kind in ("integer", "number"):
            section = getattr(load({each.key: str(each.default)}, env()), each.section)
            assert getattr(section, each.name) == each.default


def test_it_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().relay.listen = "x"  # type: ignore[misc]
