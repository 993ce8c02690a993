"""The client of a test environment: the real one, which is told of news instead of polling."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import anyio

from durable.client import Client, Handle
from durable.client.requests import Request
from durable.decorators import WorkflowFunction
from durable.protocol import durations
from durable.protocol.durations import Duration
from durable.runtime.identity import Options
from durable.store import Store
from durable.testing import sources

P = ParamSpec("P")
R = TypeVar("R")

# Asked before a look: the event of the first news after that.
News = Callable[[], anyio.Event]


class TestHandle(Handle[R]):
    """A handle whose `result` looks again when something has changed, and at no other time."""

    __test__ = False  # its name starts as pytest's classes do

    def __init__(self, handle: Handle[R], news: News) -> None:
        super().__init__(handle._store, handle._run, handle._start, handle._definition)
        self._news = news

    async def result(self, timeout: Duration | None = None) -> R:
        seconds = math.inf if timeout is None else durations.seconds(timeout)
        until = anyio.current_time() + seconds
        while True:
            since = self._news()
            try:
                return await super().result(timeout=0)
            except TimeoutError:
                if anyio.current_time() >= until:
                    raise TimeoutError(
                        f"run {self.id!r} is not over after {seconds:g} s of virtual time"
                    ) from None
            with anyio.move_on_after(until - anyio.current_time()):
                await since.wait()


class TestClient(Client):
    """A client whose runs are all carried by the environment's worker."""

    __test__ = False

    def __init__(self, store: Store, news: News) -> None:
        super().__init__(store, options=Options(renew_in_thread=False))
        self._news = news

    async def run(
        self, workflow: WorkflowFunction[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Start a run and wait for what it returns."""
        handle = await self.start(workflow, *args, **kwargs)
        return await handle.result()

    def _request(self, workflow: WorkflowFunction[..., Any], *call: Any) -> Request:
        request = super()._request(workflow, *call)
        sources.warn_of(request.definition)
        return request

    def _handle_of(self, *args: Any) -> Handle[Any]:
        return TestHandle(super()._handle_of(*args), self._news)

    async def get(self, id: str) -> Handle[Any]:
        return TestHandle(await super().get(id), self._news)
