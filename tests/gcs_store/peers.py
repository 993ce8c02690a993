"""Servers of a few lines for the tests of connections, and connections to them."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from durable.store.gcs.connections import PART_BYTES, Connections
from tests.gcs_store.certificates import Certificates

Talk = Callable[["Line"], Awaitable[None]]


class Line:
    """One connection, as the server has it; the `number`-th of them."""

    def __init__(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.number = number
        self.reader = reader
        self._writer = writer

    async def hear(self) -> bytes:
        """The head of a request; b"" when the client has closed."""
        try:
            return await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""

    async def hear_out(self) -> None:
        """Read until the client closes."""
        with suppress(ConnectionError):
            while await self.reader.read(PART_BYTES):
                pass

    def say(self, data: bytes) -> None:
        self._writer.write(data)

    def say_no_more(self) -> None:
        """Close this side alone."""
        self._writer.write_eof()

    def shut(self) -> None:
        """Close this side at once, below TLS."""
        fd = self._writer.get_extra_info("socket").fileno()
        with socket.socket(fileno=os.dup(fd)) as same:
            same.shutdown(socket.SHUT_WR)

    def break_off(self) -> None:
        """End it as a machine does that knows nothing of it: with a reset."""
        linger = struct.pack("ii", 1, 0)
        self._writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, linger
        )
        self._writer.transport.abort()


class Peer:
    """A server whose `talk` is carried out on each of its connections, which then ends.

    Attributes:
        accepted: how many connections there were.
        ended: is released by each that is over.
    """

    def __init__(self, talk: Talk) -> None:
        self.accepted = 0
        self.ended = asyncio.Semaphore(0)
        self.lines: list[asyncio.Task[None]] = []
        self._talk = talk

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        line = Line(self.accepted, reader, writer)
        self.lines.append(asyncio.create_task(self._carry(line, writer)))

    async def _carry(self, line: Line, writer: asyncio.StreamWriter) -> None:
        await self._talk(line)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        self.ended.release()


class Slow(AbstractResolver):
    """Finds no host, ever.

    Attributes:
        asked: somebody waits for it.
    """

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def close(self) -> None: ...


@asynccontextmanager
async def talking(
    talk: Talk,
    *,
    idle: float = 60.0,
    connect: float = 5.0,
    tls: Certificates | None = None,
    resolver: AbstractResolver | None = None,
) -> AsyncIterator[tuple[Peer, Connections]]:
    """A server, and connections to it.

    Args:
        talk: what it does on each connection.
        idle: seconds for which an unused connection is kept.
        connect: seconds in which there must be one.
        tls: that of both sides.
        resolver: finds the host.
    """
    peer = Peer(talk)
    server = await asyncio.start_server(
        peer.accept, "127.0.0.1", 0, ssl=tls.for_server() if tls is not None else None
    )
    port = server.sockets[0].getsockname()[1]
    loop = asyncio.get_running_loop()
    ssl = tls.for_client() if tls is not None else True
    connector = aiohttp.TCPConnector(limit=0, ssl=ssl, resolver=resolver)
    url = URL.build(scheme="https" if tls else "http", host="localhost", port=port)
    request = aiohttp.ClientRequest("GET", url, loop=loop)
    timeout = aiohttp.ClientTimeout(total=None, connect=connect)
    connections = Connections(loop, lambda: connector.connect(request, [], timeout), idle)
    try:
        yield peer, connections
    finally:
        connections.close()
        await connector.close()
        server.close()
        await asyncio.gather(*peer.lines)
