"""One request on the running event loop's own connections.

aiohttp's sessions belong to one event loop, so each loop gets its own when it first asks: the
workers' loops, the loops of lease renewals, a process that was forked. A session is closed with
its loop: event loops finish their asynchronous generators before they are closed, and each
session has one that waits for that. So nothing is left open, whoever's loop it was.
"""

from __future__ import annotations

import os
import weakref
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import suppress
from contextvars import Context
from functools import partial
from io import BytesIO
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import anyio
import anyio.lowlevel
from yarl import URL

from durable.errors import StoreRefused
from durable.loops import io_thread, native_loop, runs_asyncio
from durable.store.gcs.answers import Answer, silence
from durable.store.gcs.clock import StoreClock
from durable.store.gcs.place import Place
from durable.store.gcs.tokens import Tokens
from durable.system import System

CONNECT_SECONDS = 5.0  # to find, reach and greet the host; two lost packets are made good by then
ANSWER_SECONDS = 10.0  # of a small request; the slowest of a thousand take 0.3 s
LIST_SECONDS = 30.0  # of a page, which may have 5 MB
BYTES_PER_SECOND = 1024 * 1024  # the slowest line on which large bodies are given time
CONNECTIONS = 128  # of one event loop; at 30 ms more of them would not make one core faster
IDLE_SECONDS = 60.0  # a connection is kept; GCS closes its side later, and a renewal is due sooner
WHOLE_BYTES = 1024 * 1024  # larger bodies are sent in parts, so that the event loop runs in between

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
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


class _Connections(NamedTuple):
    session: aiohttp.ClientSession
    turns: anyio.Semaphore  # so that waiting for a connection is no part of a request's time
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
        self._by_loop: dict[Any, _Connections] = {}
        self._proxy, self._proxy_headers = _proxy(place.endpoint)
        self._is_plain = place.endpoint.startswith("http:")  # then a proxy sees each request
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
        for loop, connections in self._by_loop.copy().items():
            self._forget(loop)
            if loop is here:
                await connections.lifetime.aclose()
            elif not runs_asyncio(here) and loop is io_thread().loop:
                await io_thread().call(connections.lifetime.aclose)
            else:
                with suppress(RuntimeError):  # it has ended
                    loop.call_soon_threadsafe(_begin, loop, connections.lifetime, context=Context())

    def after_fork(self) -> None:
        """Leave the parent's connections alone: a child's data on them would corrupt both."""
        _left_behind.append(self._by_loop)
        self._by_loop = {}
        if self._tokens is not None:
            self._tokens.after_fork()

    async def _send(self, loop: Any, request: Request, headers: dict[str, str]) -> Answer:
        connections = self._by_loop.get(loop) or await self._open(loop)
        data: bytes | BytesIO | None = request.data
        if request.data is not None:
            headers = {**headers, "Content-Type": request.content_type}
            if len(request.data) > WHOLE_BYTES:
                data = BytesIO(request.data)
        try:
            async with connections.turns:
                response = await connections.session.request(
                    request.method,
                    URL(request.url, encoded=True),
                    data=data,
                    headers=headers,
                    allow_redirects=False,  # the token is for this host alone
                    proxy=self._proxy,
                    proxy_headers=self._proxy_headers,
                    timeout=_TIMEOUTS.get(request.seconds) or _timeout(request.seconds),
                )
                received = self._system.boot()
                body = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as e:
            raise silence(self._place, request.what, e) from e
        except Exception as e:
            if connections.session.closed:  # meanwhile, which aiohttp reports in several ways
                raise self._is_closed() from e
            raise
        self._clock.saw_date(response.headers.get("Date"), received)
        return Answer(response.status, body, received)

    async def _open(self, loop: Any) -> _Connections:
        if self._closed:
            raise self._is_closed()
        for other in self._by_loop.copy():
            if other.is_closed():  # by somebody who did not let its generators finish
                self._forget(other)
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={**_HEADERS, **self._proxy_headers} if self._is_plain else _HEADERS,
        )
        lifetime = self._lifetime(loop, session)
        turns = anyio.Semaphore(CONNECTIONS, fast_acquire=True)
        self._by_loop[loop] = connections = _Connections(session, turns, lifetime)
        _lifetimes.add(lifetime)
        await anext(lifetime)  # from here on the event loop knows it
        return connections

    def _forget(self, loop: Any) -> None:
        connections = self._by_loop.pop(loop, None)
        if connections is not None:
            _lifetimes.discard(connections.lifetime)

    def _is_closed(self) -> StoreRefused:
        return StoreRefused(f"the store {self._place} is closed", hint="Open it again.")

    async def _lifetime(
        self, loop: Any, session: aiohttp.ClientSession
    ) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self._forget(loop)
            await session.close()
            for _ in range(2):  # turns in which the event loop notices that sockets were closed
                await anyio.lowlevel.checkpoint()


def _timeout(seconds: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=seconds, connect=CONNECT_SECONDS)


_TIMEOUTS = {seconds: _timeout(seconds) for seconds in (ANSWER_SECONDS, LIST_SECONDS)}
_NO_HEADERS: dict[str, str] = {}
_HEADERS = {"User-Agent": "durable", "Accept-Encoding": "identity"}
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


def _proxy(endpoint: str) -> tuple[URL | None, dict[str, str]]:
    """The proxy that the environment names for this host, and what authorises us there.

    Looked up once: aiohttp's own `trust_env` reads the environment and ~/.netrc for each request.
    """
    url = urlsplit(endpoint)
    host = url.hostname or ""
    found = getproxies().get(url.scheme) or getproxies().get("all")
    if not found or host in _LOOPBACK or proxy_bypass(host):
        return None, {}
    proxy = urlsplit(found if "://" in found else f"http://{found}")
    headers = {}
    if proxy.username:
        login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()
        headers["Proxy-Authorization"] = f"Basic {b64encode(login).decode()}"
    bare = proxy._replace(netloc=proxy.netloc.rpartition("@")[2])
    return URL(urlunsplit(bare)), headers
