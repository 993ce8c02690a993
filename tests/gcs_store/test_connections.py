"""Connections to servers that answer early, late, never, too much, or go away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import aiohttp
import anyio.lowlevel
import pytest
from yarl import URL

from durable.store.gcs.connections import PART_BYTES, Connections
from durable.store.gcs.responses import BadResponse

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
ASK = b"GET / HTTP/1.1\r\n\r\n"
LARGE = bytes(64 * PART_BYTES)  # more than all buffers on the way take

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


@asynccontextmanager
async def talking(talk: Talk, idle: float = 60.0) -> AsyncIterator[tuple[Peer, Connections]]:
    """A server, and connections to it."""
    peer = Peer(talk)
    server = await asyncio.start_server(peer.accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    loop = asyncio.get_running_loop()
    connector = aiohttp.TCPConnector(limit=0)
    request = aiohttp.ClientRequest("GET", URL(f"http://127.0.0.1:{port}"), loop=loop)
    timeout = aiohttp.ClientTimeout(total=None, connect=5)
    connections = Connections(loop, lambda: connector.connect(request, [], timeout), idle)
    try:
        yield peer, connections
    finally:
        connections.close()
        await connector.close()
        server.close()
        await asyncio.gather(*peer.lines)


async def _echo(line: Line) -> None:
    while await line.hear():
        line.say(OK)


def test_one_after_the_other_they_share_a_connection() -> None:
    """And many at once have one each."""

    async def main() -> None:
        async with talking(_echo) as (peer, connections):
            for _ in range(10):
                assert (await connections.ask(ASK, b"", 5)).body == b"ok"
            assert peer.accepted == 1
            await asyncio.gather(*(connections.ask(ASK, b"", 5) for _ in range(10)))
            assert 1 < peer.accepted <= 11

    asyncio.run(main())


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, PART_BYTES + 1, len(LARGE)])
def test_a_request_arrives_as_it_is(size: int) -> None:
    """In one piece or in many, beside others of the event loop."""
    body = (bytes(range(251)) * (size // 251 + 1))[:size]
    heard: list[bytes] = []

    async def talk(line: Line) -> None:
        while await line.hear():
            heard.append(await line.reader.readexactly(size))
            line.say(OK)

    async def main() -> None:
        async with talking(talk) as (peer, connections):
            for _ in range(2):
                assert (await connections.ask(ASK, body, 5)).status == 200
            assert peer.accepted == 1

    asyncio.run(main())
    assert heard == [body, body]


def test_an_answer_ends_the_sending() -> None:
    """A server that refuses a large body before it has it is not sent the rest of it."""
    seen = asyncio.Event()

    async def talk(line: Line) -> None:
        await line.hear()
        line.say(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")
        await seen.wait()  # not a byte of the body is read before that
        await line.hear_out()

    async def main() -> None:
        async with talking(talk) as (peer, connections):
            for number in (1, 2):
                assert (await connections.ask(ASK, LARGE, 5)).status == 503
                assert peer.accepted == number
            seen.set()

    asyncio.run(main())


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("body", [b"", LARGE], ids=["small", "large"])
def test_a_server_that_does_not_answer_is_left_in_time(*, body: bytes, reads: bool) -> None:
    """Whether it reads the request or not; the connection is closed."""
    left = asyncio.Event()

    async def talk(line: Line) -> None:
        if not reads:
            await left.wait()
        await line.hear_out()

    async def main() -> None:
        async with talking(talk) as (peer, connections):
            with pytest.raises(TimeoutError, match="no answer in time"):
                await connections.ask(ASK, body, 0.05)
            left.set()
            await peer.ended.acquire()

    asyncio.run(main())


def test_a_cancelled_request_ends_its_connection() -> None:
    """What it would answer is for nobody."""
    asked = asyncio.Event()

    async def talk(line: Line) -> None:
        while await line.hear():
            asked.set()

    async def main() -> None:
        async with talking(talk) as (peer, connections):
            request = asyncio.create_task(connections.ask(ASK, b"", 5))
            await asked.wait()
            request.cancel()
            with pytest.raises(asyncio.CancelledError):
                await request
            await peer.ended.acquire()
            assert not connections._open

    asyncio.run(main())


@pytest.mark.parametrize("body", [b"", LARGE], ids=["waiting", "sending"])
def test_closing_ends_what_is_under_way(body: bytes) -> None:
    """Both who waits for an answer and who is still sending."""
    asked, closed = asyncio.Event(), asyncio.Event()

    async def talk(line: Line) -> None:
        await line.hear()
        asked.set()
        await closed.wait()
        await line.hear_out()

    async def main() -> None:
        async with talking(talk) as (_, connections):
            request = asyncio.create_task(connections.ask(ASK, body, 5))
            await asked.wait()
            connections.close()
            with pytest.raises(ConnectionResetError, match="before the answer was there"):
                await request
            closed.set()

    asyncio.run(main())


def test_a_connection_that_ended_is_not_used_again() -> None:
    """The server closes it after each answer, without saying so before."""

    async def talk(line: Line) -> None:
        await line.hear()
        line.say(OK)

    async def main() -> None:
        async with talking(talk) as (peer, connections):
            for number in range(3):
                assert (await connections.ask(ASK, b"", 5)).body == b"ok"
                while connections._open:  # each look is a turn of the event loop
                    await anyio.lowlevel.checkpoint()
                assert peer.accepted == number + 1

    asyncio.run(main())


def test_what_nobody_asked_for_ends_the_connection() -> None:
    """Bytes on an idle connection would be taken for the answer to the next request."""
    idle = asyncio.Event()

    async def talk(line: Line) -> None:
        await line.hear()
        line.say(OK)
        if line.number == 1:
            await idle.wait()
            line.say(OK.replace(b"ok", b"no"))
        await line.hear()

    async def main() -> None:
        async with talking(talk) as (peer, connections):
            await connections.ask(ASK, b"", 5)
            idle.set()
            await peer.ended.acquire()
            while connections._open:
                await anyio.lowlevel.checkpoint()
            assert (await connections.ask(ASK, b"", 5)).body == b"ok"
            assert peer.accepted == 2

    asyncio.run(main())


def test_a_request_is_sent_once() -> None:
    """On a kept connection that the server ends without an answer: whoever asks must know."""
    heard: list[bytes] = []

    async def talk(line: Line) -> None:
        heard.append(await line.hear())
        line.say(OK)
        heard.append(await line.hear())

    async def main() -> None:
        async with talking(talk) as (_, connections):
            await connections.ask(ASK, b"", 5)
            with pytest.raises(ConnectionResetError, match="before the answer was there"):
                await connections.ask(ASK, b"", 5)

    asyncio.run(main())
    assert heard == [ASK, ASK]


@pytest.mark.parametrize(
    ("saying", "error"), [(OK[:-1], ConnectionResetError), (b"who are you?\r\n\r\n", BadResponse)]
)
def test_half_an_answer_is_none(saying: bytes, error: type[Exception]) -> None:
    """Nor is what is no HTTP."""

    async def talk(line: Line) -> None:
        await line.hear()
        line.say(saying)

    async def main() -> None:
        async with talking(talk) as (_, connections):
            with pytest.raises(error):
                await connections.ask(ASK, b"", 5)

    asyncio.run(main())


def test_an_idle_connection_is_closed_after_a_while() -> None:
    """By a timer, without another request; those used meanwhile are kept."""

    async def main() -> None:
        async with talking(_echo, idle=0.02) as (peer, connections):
            await asyncio.gather(*(connections.ask(ASK, b"", 5) for _ in range(5)))
            opened = peer.accepted
            for _ in range(opened):
                await peer.ended.acquire()
            assert not connections._open
            assert connections._sweeping is None
            await connections.ask(ASK, b"", 5)
            assert peer.accepted == opened + 1

    asyncio.run(main())
