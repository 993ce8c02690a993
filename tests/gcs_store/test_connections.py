"""Connections to servers that answer early, late, never, too much, or go away."""

from __future__ import annotations

import asyncio
import select
import tracemalloc
from contextlib import suppress

import anyio.lowlevel
import pytest

from durable.store.gcs.connections import CONNECTIONS, PART_BYTES, Connections, Opened
from durable.store.gcs.responses import BadResponse
from tests.gcs_store.certificates import Certificates
from tests.gcs_store.peers import Line, Slow, talking

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
ASK = b"GET / HTTP/1.1\r\n\r\n"
LARGE = bytes(64 * PART_BYTES)  # more than all buffers on the way take


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


@pytest.mark.parametrize("saying", [b"HTTP/1.1 503 Busy\r\n\r\nfull", OK[:-1]])
def test_a_server_that_says_no_more_is_not_waited_for(saying: bytes) -> None:
    """It reads no more either, so what it is still sent would never be out."""
    stuck, seen = asyncio.Event(), asyncio.Event()

    async def talk(line: Line) -> None:
        await line.hear()
        await stuck.wait()
        line.say(saying)
        line.say_no_more()
        await seen.wait()
        await line.hear_out()

    async def main() -> None:
        async with talking(talk) as (_, connections):
            request = asyncio.create_task(connections.ask(ASK, LARGE, 5))
            await _stuck(connections)
            stuck.set()
            if saying.endswith(b"full"):
                response = await request
                assert (response.status, response.body) == (503, b"full")
            else:
                with pytest.raises(ConnectionResetError, match="before the answer was there"):
                    await request
            seen.set()

    asyncio.run(main())


async def _stuck(connections: Connections) -> None:
    """Until the one connection has had as much to send for many turns of the event loop."""
    waiting = [0]
    while len(waiting) < 100 or not waiting[-1]:
        await anyio.lowlevel.checkpoint()
        left = sum(each._transport.get_write_buffer_size() for each in connections._open)
        waiting = [*waiting, left] if left == waiting[-1] else [left]


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


@pytest.fixture(params=["plain", "tls"])
def tls(request: pytest.FixtureRequest, certificates: Certificates) -> Certificates | None:
    return certificates if request.param == "tls" else None


@pytest.mark.parametrize("body", [b"", LARGE], ids=["waiting", "sending"])
def test_closing_ends_what_is_under_way(body: bytes, tls: Certificates | None) -> None:
    """Both who waits for an answer and who is still sending; later requests fail at once."""
    asked, closed = asyncio.Event(), asyncio.Event()

    async def talk(line: Line) -> None:
        await line.hear()
        asked.set()
        await closed.wait()
        await line.hear_out()

    async def main() -> None:
        async with talking(talk, tls=tls) as (peer, connections):
            request = asyncio.create_task(connections.ask(ASK, body, 5))
            await asked.wait()
            connections.close()
            closed.set()
            for again in (request, connections.ask(ASK, b"", 5)):
                with pytest.raises(ConnectionResetError, match="before the answer was there"):
                    await again
            assert peer.accepted == 1

    asyncio.run(main())


def test_closing_ends_those_that_wait_for_a_turn() -> None:
    """They do not connect afterwards."""
    accepted = asyncio.Semaphore(0)

    async def talk(line: Line) -> None:
        accepted.release()
        await line.hear_out()

    async def main() -> None:
        async with talking(talk) as (peer, connections):
            requests = [
                asyncio.create_task(connections.ask(ASK, b"", 5)) for _ in range(CONNECTIONS + 20)
            ]
            for _ in range(CONNECTIONS):
                await accepted.acquire()
            connections.close()
            ended = await asyncio.gather(*requests, return_exceptions=True)
            assert {type(error) for error in ended} == {ConnectionResetError}
            assert peer.accepted == CONNECTIONS

    asyncio.run(main())


def test_closing_cancels_nobody_who_waits_for_the_host() -> None:
    """Aiohttp cancels its own search; who waits for it gets an error of the connection."""
    resolver = Slow()

    async def main() -> None:
        async with talking(_echo, resolver=resolver) as (_, connections):
            request = asyncio.create_task(connections.ask(ASK, b"", 5))
            await resolver.asked.wait()
        with pytest.raises(ConnectionResetError):
            await request

    asyncio.run(main())


def test_who_is_cancelled_while_the_host_is_found_is_cancelled() -> None:
    """Whether the connections are closed as well or not."""
    resolver = Slow()

    async def main() -> None:
        async with talking(_echo, resolver=resolver) as (_, connections):
            request = asyncio.create_task(connections.ask(ASK, b"", 5))
            await resolver.asked.wait()
            request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request

    asyncio.run(main())


def test_a_host_that_is_not_found_in_time() -> None:
    """The error says that there was no connection."""

    async def main() -> None:
        async with talking(_echo, resolver=Slow(), connect=0.01) as (_, connections):
            with pytest.raises(TimeoutError, match="no connection in time"):
                await connections.ask(ASK, b"", 5)

    asyncio.run(main())


@pytest.mark.parametrize("turns", range(4))
def test_a_connection_that_ends_while_it_is_opened(turns: int, tls: Certificates | None) -> None:
    """However much of its end the event loop has noticed when it is handed over."""

    async def main() -> None:
        async with talking(_echo, tls=tls) as (_, connections):
            opening = connections._opening

            async def open_and_end() -> Opened:
                opened = await opening()
                assert opened.transport is not None
                opened.transport.abort()
                for _ in range(turns):
                    await anyio.lowlevel.checkpoint()
                return opened

            connections._opening = open_and_end
            with pytest.raises(ConnectionResetError, match="before the answer was there"):
                await connections.ask(ASK, b"", 5)
            while connections._open:
                await anyio.lowlevel.checkpoint()

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


@pytest.mark.parametrize("without", ["", "poll"])  # as on Windows
@pytest.mark.parametrize("what", ["an answer", "the end"])
def test_what_came_unseen_ends_the_connection(
    what: str, without: str, tls: Certificates | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop had no turn to read it, as after a body of a step that blocks."""
    if without:
        monkeypatch.delattr(select, without, raising=False)
    lines: list[Line] = []

    async def talk(line: Line) -> None:
        lines.append(line)
        await _echo(line)

    async def main() -> None:
        async with talking(talk, tls=tls) as (peer, connections):
            await connections.ask(ASK, b"", 5)
            if what == "an answer":
                lines[0].say(OK.replace(b"ok", b"no"))
            else:
                lines[0].shut()
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


def test_after_silence_the_connections_that_answered_before_it_are_not_tried() -> None:
    """A network that changed does not say whom it forgot; each would cost a request's time."""
    kept = 5
    all_here = asyncio.Event()

    async def talk(line: Line) -> None:
        if line.number > kept:
            await _echo(line)
            return
        await line.hear()
        if line.number == kept:
            all_here.set()
        await all_here.wait()
        line.say(OK)
        await line.hear_out()

    async def main() -> None:
        async with talking(talk) as (peer, connections):
            await asyncio.gather(*(connections.ask(ASK, b"", 5) for _ in range(kept)))
            with pytest.raises(TimeoutError):
                await connections.ask(ASK, b"", 0.05)
            for _ in range(2):
                assert (await connections.ask(ASK, b"", 5)).body == b"ok"
            assert peer.accepted == kept + 1

    asyncio.run(main())


def test_after_silence_a_connection_that_answered_meanwhile_is_kept() -> None:
    """The server is there; it is one request that takes so long."""
    slow = b"GET /slow HTTP/1.1\r\n\r\n"

    async def talk(line: Line) -> None:
        while (head := await line.hear()) not in (slow, b""):
            assert head == ASK
            line.say(OK)
        await line.hear_out()

    async def main() -> None:
        async with talking(talk) as (peer, connections):
            unanswered = asyncio.create_task(connections.ask(slow, b"", 0.05))
            await connections.ask(ASK, b"", 5)
            with pytest.raises(TimeoutError):
                await unanswered
            await connections.ask(ASK, b"", 5)
            assert peer.accepted == 2

    asyncio.run(main())


@pytest.mark.parametrize("size", [100_000, len(LARGE)])
def test_after_a_refused_upload_a_connection_is_not_used_again(
    size: int, tls: Certificates | None
) -> None:
    """How much of it still waits in the socket cannot be told through TLS."""
    seen = asyncio.Event()

    async def talk(line: Line) -> None:
        await line.hear()
        line.say(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")
        await seen.wait()
        await line.hear_out()

    async def main() -> None:
        async with talking(talk, tls=tls) as (peer, connections):
            for number in (1, 2):
                assert (await connections.ask(ASK, bytes(size), 5)).status == 503
                assert peer.accepted == number
            seen.set()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("saying", "error"),
    [(OK[:-1], ConnectionResetError), (OK[:7], ConnectionResetError), (b"who?\r\n", BadResponse)],
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


@pytest.mark.parametrize("saying", [b"SSH-2.0-OpenSSH_9.2p1\r\n", b"220 mail\r\n", b"\x15\x03\x03"])
def test_another_protocol_is_noticed_at_once(saying: bytes) -> None:
    """The server waits for us to go on."""

    async def talk(line: Line) -> None:
        line.say(saying)
        await line.hear_out()

    async def main() -> None:
        async with talking(talk) as (_, connections):
            with pytest.raises((BadResponse, ConnectionResetError)):
                await connections.ask(ASK, b"", 60)

    asyncio.run(main())


@pytest.mark.parametrize("breaks", [True, False])
def test_a_body_ends_with_a_connection_that_ends_well(*, breaks: bool) -> None:
    """Not with one that was reset: some of it may be missing (RFC 9112, section 8)."""
    there = asyncio.Event()

    async def talk(line: Line) -> None:
        await line.hear()
        line.say(b"HTTP/1.1 200 OK\r\n\r\nhalf of the bo")
        if breaks:
            await there.wait()
            line.break_off()

    async def main() -> None:
        async with talking(talk) as (_, connections):
            request = asyncio.create_task(connections.ask(ASK, b"", 5))
            while not request.done():
                await anyio.lowlevel.checkpoint()
                for connection in connections._open:
                    if connection._reader._head is not None:
                        there.set()
            if breaks:
                with pytest.raises(ConnectionResetError):
                    await request
            else:
                assert (await request).body == b"half of the bo"

    asyncio.run(main())


def test_nothing_of_a_large_body_is_kept() -> None:
    """Neither of one that came, with the idle connection, nor of one that could not be sent."""

    async def talk(line: Line) -> None:
        while await line.hear():
            line.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(LARGE))
            line.say(LARGE)

    async def refuse(line: Line) -> None:
        await line.hear()

    async def traced() -> int:
        await anyio.lowlevel.checkpoint()  # the event loop itself holds what woke us in this turn
        return tracemalloc.get_traced_memory()[0]

    async def kept() -> int:
        before = await traced()
        async with talking(talk) as (_, connections):
            size = len((await connections.ask(ASK, b"", 5)).body)
            idle = await traced()
        async with talking(refuse) as (_, connections):
            with suppress(ConnectionError):
                await connections.ask(ASK, bytes(size), 5)
            failed = await traced()
        assert size == len(LARGE)
        return max(idle, failed) - before

    tracemalloc.start()
    try:
        assert asyncio.run(kept()) < len(LARGE) // 2
    finally:
        tracemalloc.stop()


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
