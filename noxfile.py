"""Every check of the project. `nox -s tests` is all of them; each has a session of its own too.

`nox -s tests -- ARGS` hands ARGS to pytest and runs nothing else. The checks are plain functions
over a session whose environment is ready, so `tests` needs one environment, not eight.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2024.10.9"
nox.options.sessions = ["tests"]
nox.options.error_on_external_run = True
nox.options.reuse_venv = "yes"

ROOT = Path(__file__).parent
PROJECT = nox.project.load_toml("pyproject.toml")
VERSIONS = nox.project.python_versions(PROJECT)
CRASH = "tests/crash/run.py"
GATE = "benchmarks/gate.py"
SIMULATE = "tests/simulation/run.py"
PLANTED = "tests/simulation/hunt.py"
# `pip` is quiet and does not ask for a newer self: a log is read for what went wrong.
PIP_ENV = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_QUIET": "1"}


@nox.session
def tests(session: nox.Session) -> None:
    """Everything that must be green; with ARGS, pytest alone."""
    _install(session, "-e", ".[test,dev]")
    if session.posargs:
        _pytest(session, *session.posargs)
        return
    _lint(session)
    _types(session)
    _layers(session)
    _pytest(session, "-n", str(_cores()), "--dist", "loadfile")
    session.run("python", CRASH, "--kills", "6")
    session.run("python", GATE)


@nox.session
def lint(session: nox.Session) -> None:
    """Style, formatting and banned calls."""
    _install(session, *_extra("dev", "ruff"))
    _lint(session)


@nox.session
def banned(session: nox.Session) -> None:
    """Clocks, chance, asyncio and pickle where they do not belong, and nothing else."""
    _install(session, *_extra("dev", "ruff"))
    session.run("ruff", "check", "--select", "TID251", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Both type checkers, and the proof that they reject wrong code."""
    _install(session, "-e", ".[test,dev]")
    _types(session)
    session.run("pytest", "tests/typing")


@nox.session
def layers(session: nox.Session) -> None:
    """Imports go one way, and the protocol does no IO."""
    _install(session, "-e", ".", *_extra("dev", "import-linter"))
    _layers(session)


@nox.session
def docs(session: nox.Session) -> None:
    """Every code block of the README and the documentation."""
    _install(session, "-e", ".[test]")
    session.run("pytest", "tests/test_docs.py", *session.posargs)


@nox.session
def examples(session: nox.Session) -> None:
    """Every example prints what its header says."""
    _install(session, "-e", ".[test]")
    session.run("pytest", "tests/test_examples.py", *session.posargs)


@nox.session
def crash(session: nox.Session) -> None:
    """Kill workers at random moments: `nox -s crash -- --kills 50`."""
    _install(session, "-e", ".[test]")
    session.run("python", CRASH, *session.posargs)


@nox.session
def always_park(session: nox.Session) -> None:
    """The tests of runs in the mode in which every wait parks, however short.

    Those of waits (`tests/waits`) run in both modes in `tests` already. The simulation chooses
    for each scenario whether its waits park.
    """
    _install(session, "-e", ".[test]")
    folders = ("runtime", "client", "cli", "bugs", "testing", "golden", "test_examples.py")
    args = session.posargs or ("-n", str(_cores()), "--dist", "loadfile", *_tests(*folders))
    session.run("pytest", *args, env={"DURABLE_ALWAYS_PARK": "1"})


@nox.session
def cron(session: nox.Session) -> None:
    """Cron around every change of the clock from 2024 to 2037, in every time zone."""
    _install(session, "-e", ".[test]")
    session.run(
        "pytest", "tests/protocol/test_cron_zones.py", *session.posargs,
        env={"DURABLE_CRON_ZONES": "all"},
    )  # fmt: skip


@nox.session
def simulate(session: nox.Session) -> None:
    """Random schedules, single faults: `nox -s simulate -- --seeds 1000`, `-- --exhaustive`."""
    _install(session, "-e", ".[test]")
    session.run("python", SIMULATE, *session.posargs)


@nox.session
def planted(session: nox.Session) -> None:
    """Bugs planted in the code, each of which the simulation must find."""
    _install(session, "-e", ".[test]")
    session.run("python", PLANTED, *session.posargs)


@nox.session
def gate(session: nox.Session) -> None:
    """Whether a step costs more processor time, relative to its floor, than it did."""
    _install(session, "-e", ".[test]")
    session.run("python", GATE)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure beside the peers: `nox -s bench -- steps --json`."""
    _install(session, "-e", ".[test]")
    # A peer that does not install is no error: the benchmark names those it measured without.
    for peer in (["dbos", "psycopg[binary]"], ["restate-sdk", "hypercorn"]):
        session.run("python", "-m", "pip", "install", *peer, env=PIP_ENV, success_codes=[0, 1])
    env = {"BENCH_RESTATE": _restate_server(session)}
    session.run("python", "benchmarks/run.py", *session.posargs, env=env)


# -- the checks ------------------------------------------------------------------------------------


def _lint(session: nox.Session) -> None:
    session.run("ruff", "check", ".")  # banned calls are its rule TID251
    session.run("ruff", "format", "--check", ".")


def _types(session: nox.Session) -> None:
    session.run("mypy")
    session.run("basedpyright")


def _layers(session: nox.Session) -> None:
    session.run("lint-imports", "--no-cache")


def _tests(*names: str) -> list[str]:
    return [f"tests/{name}" for name in names]


def _pytest(session: nox.Session, *args: str) -> None:
    others = os.pathsep.join(_interpreters(session))
    env = {"DURABLE_PYTHONS": others, "DURABLE_ROTATION": _commit()}
    session.run("pytest", *args, env=env)


def _commit() -> str:
    """The commit that is checked out: which part of the simulated faults takes its turn."""
    git = shutil.which("git")
    if git is None:
        return ""
    command = [git, "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT).stdout


def _cores() -> int:
    """Processes that share the tests; each file's stay together and in order."""
    available = getattr(os, "sched_getaffinity", None)  # what a container may use of the machine
    return min(4, len(available(0)) if available else os.cpu_count() or 1)


def _restate_server(session: nox.Session) -> str:
    """The server of Restate, which npm has; empty if it does not come."""
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), "")
    package = f"@restatedev/restate-server-{sys.platform}-{machine}"
    folder = Path(session.cache_dir).resolve() / "restate"
    program = folder / "node_modules" / package / "bin" / "restate-server"
    if not program.exists() and shutil.which("npm") is not None:
        npm = ("npm", "install", "--silent", "--prefix", str(folder), package)
        session.run(*npm, external=True, success_codes=range(256))
    return str(program) if program.exists() else ""


# -- environments ----------------------------------------------------------------------------------


def _install(session: nox.Session, *args: str) -> None:
    session.install(*args, env=PIP_ENV)


def _extra(extra: str, name: str) -> list[str]:
    """One tool of an extra, with the bounds pyproject.toml gives it."""
    wanted = PROJECT["project"]["optional-dependencies"][extra]
    return [r for r in wanted if r.startswith(name)]


def _interpreters(session: nox.Session) -> list[str]:
    """Pythons of the other supported versions that can import durable; absent ones are named.

    Replay must not depend on the interpreter, so a test replays here what ran there.
    """
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    ready = []
    for version in VERSIONS:
        if version == here:
            continue
        base = _find_python(version)
        if base is None:
            session.warn(f"python{version} was not found: no replay across it")
        else:
            ready.append(_replay_python(session, version, base))
    return ready


def _find_python(version: str) -> str | None:
    """A python of that version that pyenv or PATH has, if it really starts and makes venvs."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    places = sorted(pyenv.glob(f"versions/{version}.*/bin/python"), reverse=True)
    on_path = shutil.which(f"python{version}")
    for python in [*map(str, places), *([on_path] if on_path else [])]:
        # pyenv leaves shims on PATH for versions that are not selected: they exist and fail.
        # Debian's pythons make no venv until a package of their version is installed.
        ask = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"
        try:
            asked = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
        except OSError:
            continue
        if asked.stdout.strip() == version:
            return python
    return None


def _replay_python(session: nox.Session, version: str, base: str) -> str:
    """An environment with durable and the three packages it cannot be imported without."""
    folder = Path(session.cache_dir).resolve() / f"replay-{version}"
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if not ready.exists():
        needed = [
            r
            for r in PROJECT["project"]["dependencies"]
            if r.startswith(("anyio", "cronsim", "msgspec"))
        ]
        pip = (str(python), "-m", "pip", "install")
        session.run(base, "-m", "venv", "--clear", str(folder), external=True)
        session.run(*pip, *needed, env=PIP_ENV, external=True)
        session.run(*pip, "--no-deps", "-e", str(ROOT), env=PIP_ENV, external=True)
        ready.touch()
    return str(python)
