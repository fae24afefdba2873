"""Tests of the source tree: allowed imports, sizes, names, and no traces of one machine."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("hotpath", "proto", "redispipe", "chain", "peer", "lattice", "relay", "rmbsite")
MAX_LINES = 500
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "managers", "misc"}

# Packages of the project that each package may import. Settings are named by string, so relay
# does not need rmbsite, whose modules connect the packages.
ALLOWED = {
    "hotpath": {"hotpath"},
    "proto": {"proto", "hotpath"},
    "chain": {"proto", "chain"},
    "redispipe": {"redispipe", "hotpath"},
    "peer": {"proto", "redispipe", "chain", "peer", "hotpath"},
    "lattice": {"proto", "redispipe", "chain", "peer", "lattice"},
    "relay": {"proto", "redispipe", "chain", "relay", "hotpath"},
    "rmbsite": {"proto", "redispipe", "chain", "relay", "rmbsite"},
}

# Exceptions: both sides of a connection that carries streams run the same code.
ALLOWED_PARTS = {"relay": ("peer.mux", "peer.rpc")}

# A pure core gets clocks, randomness, input and output as arguments, and never imports them.
FORBIDDEN_IN_PROTO = {
    *("asyncio", "concurrent", "multiprocessing", "threading", "queue", "subprocess", "signal"),
    *("socket", "socketserver", "select", "selectors", "ssl", "http", "urllib"),
    *("os", "io", "pathlib", "shutil", "tempfile", "glob"),
    *("time", "random", "secrets", "uuid", "logging"),
    *("django", "channels", "asgiref", "celery", "redis", "hiredis", "uvicorn", "websockets"),
    *("aiohttp", "requests", "httpx", "nats"),
}
# Modules of forbidden packages that only compute: compiled unmasking, and its substitute.
PURE_PARTS = ("websockets.speedups", "websockets.utils")
# Functions that need no forbidden import but read a clock, produce randomness, or do I/O.
FORBIDDEN_CALLS_IN_PROTO = {"now", "utcnow", "today", "open", "print", "input", "urandom"}


def _tracked_files() -> list[Path]:
    """Return the files of the repository, including new ones, without ignored ones."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    names = listed.stdout.decode().split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def _modules(package: str) -> list[Path]:
    return sorted(
        path
        for path in (ROOT / package).rglob("*.py")
        if not path.name.endswith("_pb2.py") and "migrations" not in path.parts
    )


@cache
def _imports(path: Path) -> list[str]:
    """Return the dotted names that a module imports, at any level, with relative ones resolved."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                kept = package[: len(package) - node.level + 1]
                base = ".".join([*kept, *([node.module] if node.module else [])])
            found += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return found


def _all_modules() -> list[Path]:
    return [path for package in PACKAGES for path in _modules(package)]


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_only_downwards(package: str) -> None:
    wrong = [
        f"{_name(path)} imports {imported}"
        for path in _modules(package)
        for imported in _imports(path)
        if imported.split(".")[0] in set(PACKAGES) - ALLOWED[package]
        and not imported.startswith(ALLOWED_PARTS.get(package, ()))
    ]
    assert not wrong, "\n".join(wrong)


def test_protocol_cores_are_pure() -> None:
    wrong = [
        f"{_name(path)} imports {imported}"
        for path in _modules("proto")
        for imported in _imports(path)
        if imported.split(".")[0] in FORBIDDEN_IN_PROTO and not imported.startswith(PURE_PARTS)
    ]
    for path in _modules("proto"):
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            if not isinstance(node, ast.Call):
                continue
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in FORBIDDEN_CALLS_IN_PROTO:
                wrong.append(f"{_name(path)}:{node.lineno} calls {name}")
    assert not wrong, "\n".join(wrong)


def test_what_executors_get_needs_nothing_else() -> None:
    """`relay.analytics.spark` imports only itself: clusters get it as a zip, without Django."""
    package = "relay.analytics.spark"
    wrong = [
        f"{_name(path)} imports {imported}"
        for path in (ROOT / package.replace(".", "/")).rglob("*.py")
        for imported in _imports(path)
        if imported.split(".")[0] == "django"
        or (
            imported.split(".")[0] in PACKAGES
            and not f"{imported}.".startswith(f"{package}.")
            and imported != "relay.analytics"  # of `from relay.analytics import spark`
        )
    ]
    assert not wrong, "\n".join(wrong)


def test_the_relay_does_not_need_the_test_tree() -> None:
    wrong = [
        f"{_name(path)} imports {imported}"
        for path in _all_modules()
        for imported in _imports(path)
        if imported.split(".")[0] == "tests"
    ]
    assert not wrong, "\n".join(wrong)


def test_modules_stay_small() -> None:
    long = {
        _name(path): lines
        for path in [*_all_modules(), *_modules("tests")]
        if (lines := path.read_text().count("\n")) > MAX_LINES
    }
    assert not long, f"over {MAX_LINES} lines: {long}"


def test_modules_are_named_after_what_they_are() -> None:
    vague = [_name(path) for path in _all_modules() if path.stem in VAGUE_NAMES]
    # Django looks for management commands in a package of that very name.
    folders = {path.parent for path in _all_modules() if path.parent.name in VAGUE_NAMES}
    assert not vague and not folders, f"{vague} {sorted(map(str, folders))}"


def test_modules_say_what_they_are_for() -> None:
    silent = [
        _name(path)
        for path in [*_all_modules(), *_modules("tests")]
        if path.stat().st_size and ast.get_docstring(ast.parse(path.read_text())) is None
    ]
    assert not silent, f"no module docstring: {silent}"


def test_nothing_names_one_machine() -> None:
    """Tracked files contain no absolute path of a developer's machine and no private address.

    Whole networks and those below 10.0.0.0/8 are fine: they are examples and test data.
    """
    patterns = [
        re.compile(r"/(?:home|Users|root|work)/[\w.-]+/"),
        re.compile(
            r"\b(?:10\.\d{1,3}|192\.168|172\.(?:1[6-9]|2\d|3[01]))\.\d{1,3}\.\d{1,3}\b(?!/)"
        ),
    ]
    wrong = []
    for path in _tracked_files():
        if path == Path(__file__):
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            wrong += [
                f"{_name(path)}:{number}: {found.group()}"
                for pattern in patterns
                if (found := pattern.search(line))
            ]
    assert not wrong, "\n".join(wrong)


def test_requirement_files_name_no_index() -> None:
    files = sorted(ROOT.glob("requirements*.txt"))
    assert files
    wrong = [path.name for path in files if "://" in path.read_text()]
    assert not wrong
