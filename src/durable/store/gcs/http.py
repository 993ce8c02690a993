"""One request on the running event loop's own connections.

Connections belong to one event loop, so each loop gets its own when it first asks: the workers'
loops, the loops of lease renewals, a process that was forked. They are closed with their loop:
event loops finish their asynchronous generators before they are closed, and there is one for each
that waits for that. So nothing is left open, whoever's loop it was.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import AsyncGenerator
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import aiohttp
import anyio
import anyio.lowlevel
from yarl import URL

from durable.errors import StoreRefused
from durable.loops import io_thread, native_loop, runs_asyncio
from durable.store.gcs.answers import Answer, silence
from durable.store.gcs.clock import StoreClock
from durable.store.gcs.connections import Connections
from durable.store.gcs.place import Place
from durable.store.gcs.proxies import proxy_for
from durable.store.gcs.responses import BadResponse
from durable.store.gcs.tokens import Tokens
from durable.system import System

CONNECT_SECONDS = 5.0  # to find, reach and greet the host; two lost packets are made good by then
ANSWER_SECONDS = 10.0  # of a small request; the slowest of a thousand take 0.3 s
LIST_SECONDS = 30.0  # of a page, which may have 5 MB
BYTES_PER_SECOND = 1024 * 1024  # the slowest line on which large bodies are given time

_left_behind: list[object] = []  # by forks: closing them would disturb the parent's event loops


class Request(NamedTuple):
    """What to send. `what` says it to people; `seconds` is how long it may take in all."""

    method: str
    url: str
    what: str
    seconds: float = ANSWER_SECONDS
    data: bytes | None = None
    content_type: str = ""


class Transport(Protocol):
    """What carries requests; `Http` does, and tests have one without sockets."""

    async def ask(self, request: Request) -> Answer:
        """Send it once.

        Raises:
            StoreUnavailable: there was no answer.
            StoreRefused: it cannot be sent.
        """
        ...

    async def aclose(self) -> None: ...


class _Own(NamedTuple):
    """What one event loop has."""

    connections: Connections
    lifetime: AsyncGenerator[None, None]


class Http(Transport):
    """Makes requests, from any event loop of any thread, on asyncio and on trio.

    Args:
        place: where they go.
        tokens: what authorises them; None for an anonymous place.
        clock: is told what the answers' `Date` says.
        system: clocks.
    """

    def __init__(
        self, place: Place, *, tokens: Tokens | None, clock: StoreClock, system: System
    ) -> None:
        self._place = place
        self._tokens = tokens
        self._clock = clock
        self._system = system
        self._by_loop: dict[Any, _Own] = {}
        # Looked up once: aiohttp's own way reads the environment and ~/.netrc for each request.
        self._proxy = proxy_for(place.endpoint)
        endpoint = urlsplit(place.endpoint)
        self._lines = [f"Host: {endpoint.netloc}", *_HEADERS]
        self._cut = len(f"{endpoint.scheme}://{endpoint.netloc}")  # from URLs
        if self._proxy is not None and endpoint.scheme == "http":  # it sees each request
            self._lines += [f"{name}: {value}" for name, value in self._proxy.headers.items()]
            self._cut = 0
        self._closed = False
        _every.add(self)

    async def ask(self, request: Request) -> Answer:
        """Send it once, and once more if the token was not accepted.

        Raises:
            StoreUnavailable: there was no answer.
            StoreRefused: there are no credentials, or the store is closed.
        """
        loop = native_loop()
        if not runs_asyncio(loop):
            return await io_thread().call(partial(self.ask, request))
        headers = await self._tokens.headers() if self._tokens is not None else _NO_HEADERS
        answer = await self._send(loop, request, headers)
        if answer.status == 401 and self._tokens is not None:
            self._tokens.reject(headers)
            answer = await self._send(loop, request, await self._tokens.headers())
        return answer

    async def aclose(self) -> None:
        """Close the connections of every event loop."""
        self._closed = True
        here = native_loop()
        for loop, own in self._by_loop.copy().items():
            self._forget(loop)
            if loop is here:
                await own.lifetime.aclose()
            elif not runs_asyncio(here) and loop is io_thread().loop:
                await io_thread().call(own.lifetime.aclose)
            else:
                with suppress(RuntimeError):  # it has ended
                    loop.call_soon_threadsafe(_begin, loop, own.lifetime, context=Context())

    def after_fork(self) -> None:
        """Leave the parent's connections alone: a child's data on them would corrupt both."""
        _left_behind.append(self._by_loop)
        self._by_loop = {}
        if self._tokens is not None:
            self._tokens.after_fork()

    async def _send(self, loop: Any, request: Request, headers: dict[str, str]) -> Answer:
        own = self._by_loop.get(loop) or await self._open(loop)
        body = request.data or b""
        head = self._head(request, headers)
        try:
            response = await own.connections.ask(head, body, request.seconds)
        except (aiohttp.ClientError, OSError, UnicodeError, BadResponse) as e:
            raise silence(self._place, request.what, e) from e
        received = self._system.boot()
        self._clock.saw_date(response.date, received)
        return Answer(response.status, response.body, received)

    def _head(self, request: Request, headers: dict[str, str]) -> bytes:
        lines = [f"{request.method} {request.url[self._cut :]} HTTP/1.1", *self._lines]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if request.data is not None:
            lines.append(f"Content-Type: {request.content_type}")
        if request.data is not None or request.method == "POST":
            lines.append(f"Content-Length: {len(request.data or b'')}")
        return "\r\n".join((*lines, "\r\n")).encode("ascii")

    async def _open(self, loop: Any) -> _Own:
        if self._closed:
            raise self._is_closed()
        for other in self._by_loop.copy():
            if other.is_closed():  # by somebody who did not let its generators finish
                self._forget(other)
        connector = aiohttp.TCPConnector(limit=0)
        to_place = aiohttp.ClientRequest(  # asks for nothing; it says what to connect to
            "GET",
            URL(self._place.endpoint),
            loop=loop,
            proxy=URL(self._proxy.url) if self._proxy is not None else None,
            proxy_headers=dict(self._proxy.headers) if self._proxy is not None else None,
        )
        connections = Connections(loop, partial(connector.connect, to_place, [], _TIMEOUT))
        lifetime = self._lifetime(loop, connector, connections)
        self._by_loop[loop] = own = _Own(connections, lifetime)
        _lifetimes.add(lifetime)
        await anext(lifetime)  # from here on the event loop knows it
        return own

    def _forget(self, loop: Any) -> None:
        own = self._by_loop.pop(loop, None)
        if own is not None:
            _lifetimes.discard(own.lifetime)

    def _is_closed(self) -> StoreRefused:
        return StoreRefused(f"the store {self._place} is closed", hint="Open it again.")

    async def _lifetime(
        self, loop: Any, connector: aiohttp.TCPConnector, connections: Connections
    ) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self._forget(loop)
            connections.close()
            await connector.close()
            for _ in range(2):  # turns in which the event loop notices that sockets were closed
                await anyio.lowlevel.checkpoint()


_TIMEOUT = aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS)
_NO_HEADERS: dict[str, str] = {}
_HEADERS = ("User-Agent: durable", "Accept: */*", "Accept-Encoding: identity")
# Kept here, so that a store which nobody closes and nobody uses still ends with its event loop.
_lifetimes: set[AsyncGenerator[None, None]] = set()
_every: weakref.WeakSet[Http] = weakref.WeakSet()


def _after_fork() -> None:
    for http in list(_every):
        http.after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)


def _begin(loop: Any, lifetime: AsyncGenerator[None, None]) -> None:
    """In another event loop: end the lifetime of its connections, without waiting for it."""

    async def end() -> None:
        with suppress(RuntimeError):  # the event loop is doing so itself
            await lifetime.aclose()

    loop.create_task(end())
