"""`make compile`: build the compiled form of the hot path (`hotpath.compiled`).

    sources -> mypyc -> C compiler -> one library, and a stub per module -> trial import
      -> hotpath/_compiled/build-*, then manifest.json, which makes the next start use it

Needs a C compiler, Python's headers, mypy and setuptools. If one of them is missing, or if mypyc
rejects the sources, nothing changes. A running relay keeps the build that it has loaded: the files
of a build are never overwritten, and the previous build is kept.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import fcntl
import functools
import importlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NoReturn

from hotpath import compiled

FAILED: Final = 1
INTERRUPTED: Final = 130

FAILURE: Final = "failed.json"
"""File that records which sources failed to compile, so that they are not tried again in the
background."""
PACKAGES: Final = ("peer", "proto", "redispipe", "relay")
BUILD: Final = "build-"
UNFINISHED: Final = ".unfinished-"

DESCRIPTION: Final = """\
Compile the hot path of the relay: the modules that each message passes. The relay uses the result
from its next start on; RMB_COMPILED=0 in its environment switches it off. Takes some minutes.
"""
EPILOG: Final = """\
needs a C compiler (Debian, Ubuntu: apt install gcc), Python's headers (python3-dev), mypy and
setuptools; `make compile` installs the last two.

exit code: 0 compiled, 1 not compiled; the last line says why
"""

# mypy is used only for type inference here. The type checks have a configuration and stubs that are
# not needed for it.
MYPY: Final = (
    *("--config-file=", f"--cache-dir={os.devnull}", "--ignore-missing-imports"),
    "--follow-imports=silent",  # without the stubs of Django, other modules have errors
    "--explicit-package-bases",  # even if the folders above look like packages
)

TRIAL: Final = """\
import importlib, os
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "rmbsite.settings")
from hotpath import compiled
assert compiled.in_use(), compiled.state()
import django
django.setup()
for name in compiled.MODULES:
    assert importlib.import_module(name).__spec__.origin.endswith(compiled.SUFFIX), name
"""


class CompileError(Exception):
    """The modules cannot be compiled here; the message gives the reason in one line."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, or show the state; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m hotpath.compiling",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--check", action="store_true", help="show the state; compile nothing")
    parser.add_argument("--force", action="store_true", help="compile again what is up to date")
    parser.add_argument("--wanted", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.check:
        print(f"hot path: {compiled.state()}")
        return 0 if compiled.in_use() else FAILED
    if options.wanted:
        return 0 if _wanted() else FAILED
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        print(compile_modules(force=options.force))
    except CompileError as error:
        print(f"not compiled: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def compile_modules(*, force: bool = False, opt_level: str = "3") -> str:
    """Create a build and install it; return a message that says what was done.

    Args:
        force: whether to build even if the current build matches.
        opt_level: optimization level of the C compiler.

    Raises:
        CompileError: The modules cannot be compiled.
    """
    folder = Path(compiled.folder())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            present = _present()
            if present and not force and not compiled.misfit(present):
                return "the compiled hot path is up to date"
            _require_tools()
            return _build(folder, opt_level, former=present.get("build"))
    except OSError as error:
        raise CompileError(f"cannot write to {folder}: {error.strerror or error}") from None


def _build(folder: Path, opt_level: str, *, former: str | None) -> str:
    for left in folder.glob(f"{UNFINISHED}*"):  # left by a killed process
        shutil.rmtree(left, ignore_errors=True)
    names = sources()
    manifest = manifest_of(names)
    with tempfile.TemporaryDirectory(dir=folder, prefix=UNFINISHED) as work:
        try:
            build = Path(work, "lib")
            _run(
                "import os; from hotpath import compiling; "
                f"compiling.run_mypyc({str(build)!r}, {work!r}, {opt_level!r}); "
                "os._exit(0)",  # freeing mypy's objects takes as long as creating them
                os.environ,
            )
            _try(Path(work), build, manifest)
        except CompileError as error:
            failure = {"digest": manifest["digest"], "reason": str(error)}
            _write(folder / FAILURE, failure)
            raise
        if sources() != names or compiled.digest(names) != manifest["digest"]:
            raise CompileError("the sources have changed meanwhile; run it again")
        place = Path(tempfile.mkdtemp(dir=folder, prefix=BUILD))
        place.chmod(0o755)  # the relay may run as another user
        build.rename(place)
    _write(folder / compiled.MANIFEST, manifest | {"build": place.name})
    for old in folder.glob(f"{BUILD}*"):
        if old.name not in (place.name, former):
            shutil.rmtree(old, ignore_errors=True)
    (folder / FAILURE).unlink(missing_ok=True)
    return f"compiled {len(compiled.MODULES)} modules; the next start of the relay uses them"


def manifest_of(names: Sequence[str]) -> dict[str, Any]:
    """Describe a build of these source files by this Python; the caller adds `build`."""
    return {
        "suffix": compiled.SUFFIX,
        "python": ".".join(map(str, sys.version_info[:2])),
        "modules": list(compiled.MODULES),
        "sources": list(names),
        "digest": compiled.digest(names),
    }


def sources() -> list[str]:
    """Return the files that a build depends on, as paths from the root.

    These are the modules, and those from which they import names, as compiled code contains the
    constants of other modules.
    """
    found = {path for name in compiled.MODULES if (path := _source(name))}
    for path in tuple(found):
        for module, name, _ in _imported(path):
            found.update(_origins(module, name))
    return sorted(found)


def _origins(module: str, name: str) -> Iterator[str]:
    """Generate the files of an imported name, including the module that originally defines it."""
    if path := _source(f"{module}.{name}"):
        yield path
    elif path := _source(module):
        yield path
        for origin, its_name, own_name in _imported(path):
            if own_name == name:
                yield from _origins(origin, its_name)


@functools.cache
def _imported(path: str) -> tuple[tuple[str, str, str], ...]:
    """Return the imports of a file: module, name there, and name here."""
    found: list[tuple[str, str, str]] = []
    for node in ast.walk(ast.parse(Path(compiled.ROOT, path).read_text())):
        if isinstance(node, ast.Import):
            found += [(each.name, "", "") for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [(node.module, each.name, each.asname or each.name) for each in node.names]
    return tuple(found)


def _source(module: str) -> str:
    """Return the file of a module of the project, from the root; empty for any other module."""
    base = module.replace(".", "/")
    if base.partition("/")[0] in PACKAGES:
        for path in (f"{base}.pyi", f"{base}.py", f"{base}/__init__.py"):
            if Path(compiled.ROOT, path).is_file():
                return path
    return ""


def run_mypyc(target: str, work: str, opt_level: str) -> None:
    """Compile in this process; exit with the errors of mypyc or the C compiler if it fails."""
    build = importlib.import_module("mypyc.build")
    extensions = build.mypycify(
        [*MYPY, *(_source(name) for name in compiled.MODULES)],
        opt_level=opt_level,
        debug_level="0",
        multi_file=False,
        group_name=compiled.GROUP,
        target_dir=f"{work}/c",
    )
    for extension in extensions:
        # The check for misleading indentation alone takes gcc longer than everything else at -O0.
        extension.extra_compile_args.append("-Wno-all")
    distribution = importlib.import_module("setuptools").Distribution({"ext_modules": extensions})
    command = distribution.get_command_obj("build_ext")
    command.build_lib, command.build_temp = target, f"{work}/objects"
    distribution.run_command("build_ext")


def _try(work: Path, build: Path, manifest: dict[str, Any]) -> None:
    """Import the modules from a build that is not installed yet, with settings of its own."""
    _write(work / compiled.MANIFEST, manifest | {"build": build.name})
    own = {name: value for name, value in os.environ.items() if not name.startswith("RMB_")}
    own |= {compiled.SWITCH: "1", compiled.FOLDER_VARIABLE: str(work)}
    (settings := work / "rmb.toml").touch()
    _run(TRIAL, own | {"RMB_DATA__DIR": str(work / "data"), "RMB_CONFIG": str(settings)})


def _run(program: str, environment: Mapping[str, str]) -> None:
    """Run a Python program at the root of the sources, and kill all processes that it started.

    Raises:
        CompileError: The program failed; its output was printed.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=compiled.ROOT,  # mypyc names modules by their paths from here
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        told, _ = process.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode:
        print(told, file=sys.stderr)
        lines = told.strip().splitlines() or [f"exit code {process.returncode}"]
        errors = [line for line in lines if "error:" in line]
        raise CompileError(errors[0] if errors else lines[-1])


def _wanted() -> bool:
    """Return whether a build could help the next start and these sources have not failed before."""
    if os.environ.get(compiled.SWITCH) == "0" or compiled.in_use():
        return False
    if (present := _present()) and not compiled.misfit(present):
        return False
    try:
        require_compiler()
        failed = json.loads(Path(compiled.folder(), FAILURE).read_text())
    except CompileError:
        return False
    except (OSError, ValueError):
        return True
    return bool(failed["digest"] != compiled.digest(sources()))


def require_compiler() -> None:
    """Check that the system has the required tools.

    Raises:
        CompileError: A tool is missing.
    """
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None:
        raise CompileError(f"no C compiler ({compiler}); Debian, Ubuntu: apt install gcc")
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").exists():
        raise CompileError(
            f"no Python headers in {headers}; Debian, Ubuntu: apt install python3-dev"
        )


def _require_tools() -> None:
    """Check that all required tools and packages are installed.

    Raises:
        CompileError: Something is missing; the message says how to install it.
    """
    require_compiler()
    for name in ("mypyc", "setuptools"):
        if find_spec(name) is None:
            raise CompileError(f"the package of {name} is missing; run make compile")


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock the folder for the duration of the context.

    Raises:
        CompileError: Another process has locked it.
    """
    with open(folder / "lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CompileError("another process compiles at the moment") from None
        yield


def _present() -> dict[str, Any]:
    """Return the manifest of the current build; empty if there is no build or if it is damaged."""
    try:
        if found := compiled.read_manifest():
            compiled.misfit(found)
        return found or {}
    except (OSError, ValueError, KeyError):
        return {}


def _write(path: Path, content: dict[str, Any]) -> None:
    """Write a file atomically, as other processes may read it at any time."""
    draft = path.with_name(f"{UNFINISHED}{path.name}")
    draft.write_text(json.dumps(content, indent=1) + "\n")
    draft.replace(path)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
