"""Worker processes for a benchmark, as `durable worker` starts them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from harness import HERE, SOURCE

COMMAND = "import sys, durable_command; sys.exit(durable_command.main())"


@contextlib.contextmanager
def working(url: str, folder: Path, number: int = 1) -> Iterator[None]:
    """So many workers of `dispatch_flow.py` on that store; they are told to stop at the end."""
    path = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))
    command = [
        sys.executable, "-c", COMMAND, "--store", url, "worker", str(HERE / "dispatch_flow.py"),
    ]  # fmt: skip
    with (folder / "errors").open("ab") as errors:
        processes = [
            subprocess.Popen(
                command, cwd=folder, stdout=errors, stderr=errors,
                env={**os.environ, "PYTHONPATH": path},
            )
            for _ in range(number)
        ]  # fmt: skip
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)
