"""Tests of `contrib/`: the metrics, settings, options and programs that its files name exist."""

from __future__ import annotations

import configparser
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from peer.gateway.options import build_parser
from relay.dashboard.live import PATH
from relay.ops.metric_names import BY_NAME, family
from rmbsite import config

ROOT = Path(__file__).parents[1]
CONTRIB = ROOT / "contrib"

# Words of the query language; every other name in a query is a metric or a label.
FUNCTIONS = {
    "absent", "and", "by", "changes", "histogram_quantile", "increase", "max", "or", "rate", "sum",
}  # fmt: skip
WORKER_LABELS = {"worker", "host", "le"}


def build() -> Any:
    spec = importlib.util.spec_from_file_location("build", CONTRIB / "grafana" / "build.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def expressions() -> Iterator[tuple[str, str]]:
    """Yield every query with its place: dashboard and panel, or the name of the alert."""
    for path in sorted((CONTRIB / "grafana").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", []):
                yield f"{path.stem}: {panel['title']}", target["expr"]
    rules = yaml.safe_load((CONTRIB / "prometheus" / "alerts.yml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


def names_of(expression: str) -> tuple[set[str], set[str]]:
    """Return the metrics and the labels of a query."""
    labels: set[str] = set()
    for inside in re.findall(r"by \(([^)]*)\)", expression):
        labels.update(each.strip() for each in inside.split(","))
    for inside in re.findall(r"\{([^}]*)\}", expression):
        labels.update(re.findall(r"(\w+)\s*[=!]", inside))
    bare = re.sub(r"by \([^)]*\)|\{[^}]*\}|\[[^\]]*\]", " ", expression)
    return set(re.findall(r"[a-z_][a-z0-9_]*", bare)) - FUNCTIONS, labels


@pytest.mark.parametrize(("place", "expression"), list(expressions()))
def test_queries_name_metrics_that_exist(place: str, expression: str) -> None:
    metrics, labels = names_of(expression)
    assert metrics, place
    known = set(WORKER_LABELS)
    for name in metrics:
        metric = BY_NAME.get(family(name))
        assert metric is not None, f"{place}: there is no metric {name}"
        known.update(metric.labels)
        if "histogram_quantile" in expression:
            assert metric.kind == "histogram" and name.endswith("_bucket"), place
        elif metric.kind == "counter":
            assert re.search(rf"(rate|increase|changes)\({name}", expression), place
    assert labels <= known, f"{place}: {labels - known}"


def test_a_metric_that_does_not_exist_is_noticed() -> None:
    metrics, labels = names_of('sum by (reason) (rate(relay_nothing{a="b"}[5m])) > 0.5')
    assert metrics == {"relay_nothing"} and labels == {"reason", "a"}
    assert family("relay_nothing") not in BY_NAME


def test_dashboards_are_what_the_builder_makes() -> None:
    module = build()
    for name in module.DASHBOARDS:
        assert (CONTRIB / "grafana" / f"{name}.json").read_text() == module.dashboard(name)


def test_every_alert_says_what_to_do() -> None:
    rules = yaml.safe_load((CONTRIB / "prometheus" / "alerts.yml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in ("warning", "critical")
            assert len(rule["annotations"]["description"]) > 20


def units() -> dict[str, configparser.ConfigParser]:
    found = {}
    for path in sorted((CONTRIB / "systemd").glob("*.*")):
        parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
        parser.optionxform = str  # type: ignore[assignment,method-assign]
        parser.read_string(path.read_text().replace("\\\n", ""))
        found[path.name] = parser
    return found


@pytest.mark.parametrize("name", [name for name in units() if name.endswith(".service")])
def test_units_start_programs_of_ours(name: str) -> None:
    service = units()[name]["Service"]
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    programs = re.findall(r"/opt/rmb/\.venv/bin/(\S+)", service["ExecStart"])
    assert programs and set(programs) <= {*scripts, "celery"}
    assert service["NoNewPrivileges"] == "yes" and service["ProtectSystem"] == "strict"
    for command in re.findall(r"rmb-manage (\w+)", service["ExecStart"]):
        assert command in known_commands()


def known_commands() -> set[str]:
    found = {path.stem for path in ROOT.glob("*/**/management/commands/*.py")}
    return found | {"runrelay", "migrate"}


def variables(text: str) -> set[str]:
    return set(re.findall(r"\bRMB_[A-Z]+__[A-Z_]+", text))


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in sorted(CONTRIB.rglob("*"))
        if path.is_file() and path.suffix != ".json" and "__pycache__" not in path.parts
    ],
    ids=lambda path: str(path.relative_to(CONTRIB)),
)
def test_settings_exist(path: Path) -> None:
    known = {option.variable for option in config.all_options()}
    assert variables(path.read_text()) <= known


def _default(found: re.Match[str]) -> str:
    return "filled" if found[3] is None else found[3]


def test_compose() -> None:
    """The settings in the compose file are valid, and every service waits for those it needs."""
    text = (CONTRIB / "container" / "compose.yaml").read_text()
    filled = re.sub(r"\$\{(\w+)(:-(\w*)|:\?[^}]*)?\}", _default, text)
    document = yaml.safe_load(filled)
    services = document["services"]
    settings = services["relay"]["environment"]
    resolved = config.resolve({}, {name: str(value) for name, value in settings.items()})
    assert resolved.config.relay.domains == ("filled",) and not resolved.config.celery.embedded
    assert resolved.config.relay.trusted_proxies == () and resolved.config.twins.source == "tfchain"
    queues = [
        part
        for name in ("federation", "background")
        for part in services[name]["command"][2].split(",")
    ]
    assert sorted(queues) == ["chain", "default", "federation"]
    for name in ("relay", "federation", "background", "schedule"):
        assert services[name]["depends_on"]["migrate"]["condition"].endswith("successfully")
    given = set(re.findall(r"\$\{(\w+)", text))
    example = (CONTRIB / "container" / "example.env").read_text()
    assert given == set(re.findall(r"^(\w+)=", example, re.MULTILINE))


def test_container_file_starts_what_is_installed() -> None:
    text = (CONTRIB / "container" / "Containerfile").read_text()
    assert "--require-hashes -r requirements.txt" in text
    assert text.index("-m hotpath.compiling") < text.index("--no-build-isolation .")
    assert 'ENTRYPOINT ["rmb-manage"]' in text and "USER rmb" in text


PROXIES = ("nginx/rmb.conf", "nginx/operator.conf", "caddy/Caddyfile")


@pytest.mark.parametrize("path", PROXIES)
def test_proxies_log_no_tokens_and_pass_the_address(path: str) -> None:
    text = re.sub(r"(?m)^\s*#.*$", "", (CONTRIB / path).read_text())
    assert "X-Forwarded-For" in text and "proxy_add_x_forwarded_for" not in text
    for leaking in ("$request ", "$request_uri", "$args", "$query_string", "combined"):
        assert leaking not in text
    assert text.count("{") == text.count("}")


def test_the_operators_proxy_passes_live_numbers_on() -> None:
    """No location of nginx sets headers: they would replace all those set at the outer level."""
    text = (CONTRIB / "nginx" / "operator.conf").read_text()
    assert f"location = {PATH} {{" in text
    for header in ("Host $http_host", "X-Forwarded-Proto $scheme", "Upgrade $rmb_upgrade"):
        assert text.count(f"proxy_set_header {header};") == 1
    locations = re.findall(r"location [^{]*\{([^}]*)\}", text)
    assert len(locations) == 4 and not [each for each in locations if "proxy_set_header" in each]
    defined = (CONTRIB / "nginx" / "rmb.conf").read_text()
    assert "map $http_upgrade $rmb_upgrade" in defined and "log_format rmb " in defined
    assert "map $rmb_upgrade $rmb_connection" in defined


def test_proxies_show_nobody_the_figures() -> None:
    """The proxies hide the metrics of relay and operator site, readable without sign-in."""
    for path in ("nginx/rmb.conf", "nginx/operator.conf"):
        text = (CONTRIB / path).read_text()
        assert re.search(r"location = /metrics \{\s*return 404;", text), path
    blocks = re.split(r"(?m)^}", (CONTRIB / "caddy" / "Caddyfile").read_text())[:-1]
    sites = [each for each in blocks if "reverse_proxy" in each]
    assert len(sites) == 2 and all("\trespond /metrics 404" in site for site in sites)


def test_gateway_unit_reads_its_secret_from_a_file() -> None:
    """Its dynamic user can read the file: such a user owns nothing in /etc."""
    service = units()["rmb-peer@.service"]["Service"]
    assert service["DynamicUser"] == "yes"
    name, _, path = service["LoadCredential"].partition(":")
    assert path == "/etc/rmb/peer-%i.secret"
    assert service["Environment"] == f"RMB_SECRET_FILE=%d/{name}"
    assert service["RestartPreventExitStatus"] == "2"
    text = (CONTRIB / "systemd" / "rmb-peer@.service").read_text()
    options = set(re.findall(r"(--[a-z-]+)", text.partition("[Unit]")[0]))
    known = {name for action in build_parser()._actions for name in action.option_strings}
    assert options and options <= known
    assert "--mnemonic" not in text
    (folder,) = re.findall(r"--uploads /var/lib/(\S+)/uploads", text)
    assert folder.replace("7", "%i") == service["StateDirectory"]


def test_the_dashboards_builder_runs_by_itself() -> None:
    """The builder needs neither Django nor a relay, so dashboards can be changed without them."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"exec(open({str(CONTRIB / 'grafana/build.py')!r}).read(), "
         "{'__name__': 'build', '__file__': ''})"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
