"""Something at a port that is no bucket: it says the same to everybody."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from durable.testing.gcs.wire import Response


class Parrot:
    """Reads a little, answers `saying`, closes.

    Attributes:
        heard: the beginning of what each connection said.
    """

    def __init__(self, saying: bytes) -> None:
        self._saying = saying
        self.heard: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._talk)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._saying = b""
        socket.create_connection(("127.0.0.1", self.port)).close()
        self._thread.join()
        self._socket.close()

    def _talk(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            with connection:
                if not self._saying:
                    return
                self.heard.append(connection.recv(65_536))
                connection.sendall(self._saying)


def answered(response: Response) -> bytes:
    """That answer, as it comes over a connection."""
    head = f"HTTP/1.1 {response.status} Said\r\nContent-Length: {len(response.body)}\r\n\r\n"
    return head.encode() + response.body


@contextmanager
def closed_port() -> Iterator[int]:
    """A port at which nobody listens, and which nobody else is given meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield int(taken.getsockname()[1])
