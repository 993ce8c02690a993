"""A port, and the connections that are being made to it.

`asyncio.Server` loses what it accepts in the turn of the event loop in which it is closed: no
protocol ever sees such a connection, and its socket stays open until it is collected (CPython
gh-109564). Here what was accepted is known until its protocol has it.
"""

from __future__ import annotations

import asyncio  # noqa: TID251  (as in durable.testing.gcs.server)
import socket
from collections.abc import Callable

BACKLOG = 1024  # connections that the kernel keeps until they are accepted


class Listener:
    """Accepts connections while it is open.

    Args:
        make: the protocol of a new connection.
    """

    def __init__(self, make: Callable[[], asyncio.Protocol]) -> None:
        self._make = make
        self._socket: socket.socket | None = None
        self._arriving: set[asyncio.Task[object]] = set()

    @property
    def busy(self) -> bool:
        """Whether it is open, or somebody it accepted has no protocol yet."""
        return self._socket is not None or bool(self._arriving)

    def open(self, host: str, port: int) -> int:
        """Listen in the running event loop; gives the port.

        Args:
            port: 0 for any that is free.

        Raises:
            OSError: the port is taken.
        """
        self._socket = opened = socket.create_server((host, port), backlog=BACKLOG)
        opened.setblocking(False)
        asyncio.get_running_loop().add_reader(opened, self._accept, opened)
        return int(opened.getsockname()[1])

    def close(self) -> None:
        """Accept nobody any more."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    async def everybody_arrived(self) -> None:
        """Wait until whoever was accepted has a protocol."""
        while self._arriving:
            await asyncio.wait(self._arriving)

    def _accept(self, opened: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = opened.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            arrival = loop.create_task(loop.connect_accepted_socket(self._make, accepted))
            self._arriving.add(arrival)
            arrival.add_done_callback(self._arriving.discard)
