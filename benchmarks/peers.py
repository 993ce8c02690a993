"""What the peers need beside their packages: a PostgreSQL cluster of its own, thrown away after."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

RESTATE_NEEDS = ("restate", "hypercorn", "aiohttp")
ACCOUNT = "postgres"  # PostgreSQL refuses to run as root


@dataclass
class Present:
    """Which peers can be measured here.

    Attributes:
        environments: of their processes: by backend of DBOS, and of Restate.
        absent: what is not here, and why.
    """

    environments: dict[str, dict[str, str]] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)


@contextlib.contextmanager
def present(folder: str | None) -> Iterator[Present]:
    """The peers that can be measured, for as long as the block lasts."""
    found = Present()
    _look_for_restate(found)
    if importlib.util.find_spec("dbos") is None:
        found.absent.append("DBOS: the package dbos is not installed")
        yield found
        return
    found.environments["sqlite"] = {}
    with contextlib.ExitStack() as stack:
        try:
            url = stack.enter_context(_postgres(folder))
        except (OSError, subprocess.CalledProcessError) as e:
            found.absent.append(f"DBOS on PostgreSQL: {e}")
        else:
            found.environments["postgres"] = {"BENCH_DATABASE": url}
        yield found


def _look_for_restate(found: Present) -> None:
    program = os.environ.get("BENCH_RESTATE") or shutil.which("restate-server")
    missing = [name for name in RESTATE_NEEDS if importlib.util.find_spec(name) is None]
    if program is None:
        found.absent.append("Restate: no restate-server on PATH or in BENCH_RESTATE (npm has it)")
    elif missing:
        found.absent.append(f"Restate: not installed: {', '.join(missing)}")
    else:
        found.environments["restate"] = {"BENCH_RESTATE": program}


@contextlib.contextmanager
def _postgres(folder: str | None) -> Iterator[str]:
    """A fresh cluster on a Unix socket, with fsync and synchronous commits; its URL.

    Raises:
        OSError: PostgreSQL is not installed, or may not be started.
        CalledProcessError: it does not start.
    """
    programs = _programs()
    with tempfile.TemporaryDirectory(dir=folder, prefix="pg-") as place:
        Path(place).chmod(0o755)
        data = Path(place, "data")
        data.mkdir()
        if os.getuid() == 0:
            shutil.chown(data, ACCOUNT)
        _run(programs / "initdb", "-D", data, "-U", ACCOUNT, "--auth=trust", "-E", "UTF8")
        settings = f"-c listen_addresses= -k {data} -c fsync=on -c synchronous_commit=on"
        log = data / "log"
        _run(programs / "pg_ctl", "-D", data, "-o", settings, "-l", log, "-w", "start")
        try:
            yield f"postgresql://{ACCOUNT}@/dbos?host={data}"
        finally:
            _run(programs / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")


def _programs() -> Path:
    on_path = shutil.which("initdb")
    places = [Path(on_path).parent] if on_path else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)  # Debian's
    if not places:
        raise FileNotFoundError("PostgreSQL's server is not installed")
    return places[0]


def _run(*command: object) -> None:
    words = [str(word) for word in command]
    account = ACCOUNT if os.getuid() == 0 else None
    subprocess.run(
        words, check=True, user=account, cwd="/",
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
