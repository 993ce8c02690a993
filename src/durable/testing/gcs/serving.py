"""The server in this process: in the running asyncio loop, or in a thread of its own."""

from __future__ import annotations

import asyncio  # noqa: TID251  (as in durable.testing.gcs.server)
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

from durable.store.memory import Bucket
from durable.testing.gcs.buckets import BucketState
from durable.testing.gcs.server import Server
from durable.testing.gcs.service import Service

T = TypeVar("T")
Served = Service | Mapping[str, Bucket | BucketState]


@asynccontextmanager
async def serve(served: Served, *, port: int = 0, latency: float = 0.0) -> AsyncIterator[str]:
    """Serve in the running asyncio loop; gives the URL.

    Args:
        served: a `Service`, or buckets by name.
        port: 0 for any that is free.
        latency: seconds that each call takes.
    """
    server = Server(_service(served), port=port, latency=latency)
    await server.start()
    try:
        yield server.url
    finally:
        await server.stop()


class Handle:
    """A server that runs in another thread; may be used from any."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self.service = server.service
        self.url = server.url

    def land(self) -> int:
        """As `Server.land`."""
        return self._ask(self._server.land)

    def close_idle(self) -> int:
        """As `Server.close_idle`."""
        return self._ask(self._server.close_idle)

    def set_latency(self, seconds: float) -> None:
        """From the next call on each takes so long."""
        self._server.latency = seconds

    def _ask(self, question: Callable[[], T]) -> T:
        answer: Future[T] = Future()
        self._loop.call_soon_threadsafe(lambda: answer.set_result(question()))
        return answer.result()


@contextmanager
def serving(served: Served, *, port: int = 0, latency: float = 0.0) -> Iterator[Handle]:
    """Serve in a thread; for tests that are not asynchronous, or not on asyncio."""
    started: Future[tuple[Handle, Callable[[], object]]] = Future()

    server = Server(_service(served), port=port, latency=latency)

    async def run() -> None:
        try:
            await server.start()
        except OSError as e:
            started.set_exception(e)  # raised where the server was asked for
            return
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        started.set_result((Handle(server, loop), lambda: loop.call_soon_threadsafe(stop.set)))
        try:
            await stop.wait()
        finally:
            await server.stop()

    thread = threading.Thread(target=lambda: asyncio.run(run()), name="gcs-server", daemon=True)
    thread.start()
    handle, stop = started.result()
    try:
        yield handle
    finally:
        stop()
        thread.join()


def _service(served: Served) -> Service:
    return served if isinstance(served, Service) else Service(served)
