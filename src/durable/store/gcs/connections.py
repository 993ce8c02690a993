"""Connections of one event loop to one place, and requests on them.

aiohttp opens them: it finds the host, tries its addresses, greets with TLS, goes through proxies.
What goes over them is written here, because that takes half the CPU time of aiohttp's session, and
because the session sends some requests twice unasked (docs/decisions/0026).
"""

from __future__ import annotations

import asyncio  # noqa: TID251  # what aiohttp opens is asyncio's
import select
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

from durable.store.gcs.responses import BadResponse, Response, ResponseReader

CONNECTIONS = 128  # of one event loop; at 30 ms more of them would not make one core faster
IDLE_SECONDS = 60.0  # a connection is kept; GCS closes its side later, and a renewal is due sooner
PART_BYTES = 256 * 1024  # of a large body, between which the event loop runs
SURE_BYTES = 16 * 1024  # of a body that no socket keeps waiting


class Opened(Protocol):
    """A connection as aiohttp gives it."""

    @property
    def transport(self) -> asyncio.Transport | None: ...

    def close(self) -> None: ...


class Connection(asyncio.Protocol):
    """One that is open; it carries one request at a time.

    Args:
        loop: the one that runs.
        opened: by aiohttp.
        transport: of it; this becomes its protocol, in place of aiohttp's own.
        lost: is told when it has ended.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        opened: Opened,
        transport: asyncio.Transport,
        lost: Callable[[Connection], object],
    ) -> None:
        self._loop = loop
        self._opened = opened
        self._transport = transport
        self._lost = lost
        self._reader = ResponseReader()
        self._unread = _unread(transport.get_extra_info("socket"))
        self._sent = True  # the whole request, as far as is known
        # While a request is under way, and while the transport has enough to send.
        self._outcome: asyncio.Future[Response | Exception] | None = None
        self._room: asyncio.Future[None] | None = None
        transport.set_protocol(self)

    @property
    def is_free(self) -> bool:
        """Whether it can carry another request."""
        transport = self._transport
        return self._sent and not transport.is_closing() and not transport.get_write_buffer_size()

    @property
    def is_quiet(self) -> bool:
        """Whether nothing waits in the socket that the event loop has had no turn to read.

        It would be the end of the connection, or taken for the answer to the next request.
        """
        return not self._unread()

    async def ask(self, head: bytes, body: bytes, deadline: float) -> Response:
        """Send a request and wait for its response, until `deadline` on the loop's clock.

        If it raises, the connection is of no more use.

        Raises:
            TimeoutError: the response is not whole by then.
            OSError: the connection ended.
            BadResponse: what came is no response.
        """
        outcome: asyncio.Future[Response | Exception] = self._loop.create_future()
        self._outcome = outcome
        timer = self._loop.call_at(deadline, self._end, TimeoutError("no answer in time"))
        try:
            if len(body) <= PART_BYTES:
                self._transport.write(head + body)
            else:
                await self._send_parts(head, body, outcome)
            response = _final(await outcome)
            if len(body) > SURE_BYTES and response.status >= 300:
                self._sent = False  # it may have been refused early, and TLS hides what waits
            return response
        finally:
            timer.cancel()
            self._outcome = None
            self._reader = ResponseReader()  # the body of a page is not kept with the connection
            del outcome  # else an error and its traceback, with the body, live until collected

    def close(self) -> None:
        """End it at once, without TLS's farewells; a request under way fails."""
        self._end(_nothing_came())
        self._transport.abort()
        self._opened.close()

    # -- as the transport's protocol ---------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._outcome is None or self._outcome.done():
            self.close()  # nothing was asked for
            return
        try:
            response = self._reader.feed(data)
        except BadResponse as e:
            self._end(e)
        else:
            if response is not None:
                self._end(response)

    def eof_received(self) -> None:
        # The transport's own way is to send what it still has before it ends, which may be never.
        self._end(self._reader.end() or _nothing_came())
        self.close()

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None:
            error = error.with_traceback(None)  # asyncio's, with our frames and the body in it
        self._end(error or _nothing_came())
        self._opened.close()
        self._lost(self)

    def pause_writing(self) -> None:
        self._room = self._loop.create_future()

    def resume_writing(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    async def _send_parts(
        self, head: bytes, body: bytes, outcome: asyncio.Future[Response | Exception]
    ) -> None:
        """Send it bit by bit, until all is sent or an answer is there."""
        self._sent = False
        self._transport.write(head)
        view = memoryview(body)
        for at in range(0, len(body), PART_BYTES):
            self._transport.write(view[at : at + PART_BYTES])
            await (self._room or asyncio.sleep(0))
            if outcome.done():
                return
        self._sent = True

    def _end(self, outcome: Response | Exception) -> None:
        if self._outcome is not None and not self._outcome.done():
            self._outcome.set_result(outcome)
            self.resume_writing()


class Connections:
    """Those that one event loop has to one place.

    Args:
        loop: the one that runs.
        opening: opens one more.
        idle: seconds for which one that nobody uses is kept.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        opening: Callable[[], Awaitable[Opened]],
        idle: float = IDLE_SECONDS,
    ) -> None:
        self._loop = loop
        self._opening = opening
        self._idle_seconds = idle
        self._turns = asyncio.Semaphore(CONNECTIONS)
        self._open: set[Connection] = set()
        self._idle: dict[Connection, float] = {}  # since when; who was used last is used next
        self._sweeping: asyncio.TimerHandle | None = None
        self._closed = False

    async def ask(self, head: bytes, body: bytes, seconds: float) -> Response:
        """Send a request on a connection that is free, or on a new one.

        Waiting for the connection is no part of the request's time.

        Raises:
            TimeoutError: there was no whole response in that time.
            OSError, aiohttp.ClientError: there was no connection, or it ended.
            BadResponse: what came is no response.
        """
        async with self._turns:
            if self._closed:
                raise _nothing_came()
            deadline = self._loop.time() + seconds
            connection = self._take() or await self._open_one()
            reusable = False
            try:
                response = await connection.ask(head, body, deadline)
                reusable = response.reusable
            except TimeoutError:
                # What silenced this connection may have silenced all that were not heard of since.
                self._close_idle(deadline - seconds)
                raise
            finally:
                if reusable and connection.is_free:
                    self._keep(connection)
                else:
                    connection.close()
            return response

    def close(self) -> None:
        """End all of them for good; requests under way, and those that wait for a turn, fail."""
        self._closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        for connection in tuple(self._open):
            connection.close()

    async def _open_one(self) -> Connection:
        try:
            opened = await self._opening()
        except TimeoutError as e:
            raise TimeoutError("no connection in time") from e
        except asyncio.CancelledError:
            # Closing cancels what looks for the host, which is not to cancel who waits for it.
            task = asyncio.current_task()
            if self._closed and task is not None and not task.cancelling():
                raise _nothing_came() from None
            raise
        transport = opened.transport
        if transport is None or transport.is_closing():  # of which the end may be told already
            opened.close()
            raise _nothing_came()
        connection = Connection(self._loop, opened, transport, self._forget)
        self._open.add(connection)
        return connection

    def _take(self) -> Connection | None:
        while self._idle:
            connection, since = self._idle.popitem()
            is_old = self._loop.time() - since >= self._idle_seconds
            if connection.is_free and connection.is_quiet and not is_old:
                return connection
            connection.close()  # the event loop has not noticed yet
        return None

    def _keep(self, connection: Connection) -> None:
        self._idle[connection] = self._loop.time()
        if self._sweeping is None:
            self._sweeping = self._loop.call_later(self._idle_seconds, self._sweep)

    def _sweep(self) -> None:
        """Close those that nobody has used for a while."""
        self._sweeping = None
        self._close_idle(self._loop.time() - self._idle_seconds)
        if self._idle:
            oldest = next(iter(self._idle.values()))
            self._sweeping = self._loop.call_at(oldest + self._idle_seconds, self._sweep)

    def _close_idle(self, until: float) -> None:
        """Those whose last use was before that."""
        for connection, since in list(self._idle.items()):
            if since > until:
                break
            del self._idle[connection]
            connection.close()

    def _forget(self, connection: Connection) -> None:
        self._open.discard(connection)
        self._idle.pop(connection, None)


def _unread(socket: Any) -> Callable[[], object]:
    """Tells whether there is something to read, or the end, without a turn of the event loop."""
    if not hasattr(select, "poll"):  # Windows
        return lambda: select.select([socket], [], [], 0)[0]
    poll = select.poll()
    poll.register(socket, select.POLLIN)
    return partial(poll.poll, 0)


def _final(outcome: Response | Exception) -> Response:
    if isinstance(outcome, Exception):
        try:
            raise outcome
        finally:
            del outcome  # as above
    return outcome


def _nothing_came() -> ConnectionResetError:
    return ConnectionResetError("the connection ended before the answer was there")
