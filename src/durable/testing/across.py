"""Objects of the environment's event loop, awaited from the test's own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any

import anyio
import anyio.to_thread

from durable import catalog, documents, leases
from durable.client import Coordination, Handle
from durable.testing.hosting import Host

# What has methods to await; anything else is a value.
_KINDS = (Coordination, Handle, catalog.Catalog, documents.Document, leases.Lease)


def bridged(host: Host, value: Any) -> Any:
    """The same for another event loop: what would be awaited there is awaited here."""
    if isinstance(value, _KINDS):
        return Across(host, value)
    if isinstance(value, AsyncIterator):
        return _Items(host, value)
    if isinstance(value, AbstractAsyncContextManager):
        return _Entered(host, value)
    return value


class Across:
    """An object with methods to await. It has every attribute of the one it stands for."""

    def __init__(self, host: Host, there: Any) -> None:
        self._host = host
        self._there = there

    def __repr__(self) -> str:
        return repr(self._there)

    def __bool__(self) -> bool:
        return bool(self._there)

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._there, name)
        if not inspect.ismethod(member):
            return bridged(self._host, member)
        if inspect.iscoroutinefunction(member):
            return functools.wraps(member)(functools.partial(_awaited, self._host, member))

        @functools.wraps(member)
        def method(*args: Any, **kwargs: Any) -> Any:
            return bridged(self._host, member(*args, **kwargs))

        return method


async def _awaited(host: Host, member: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return bridged(host, await host.across(functools.partial(member, *args, **kwargs)))


class _Items:
    def __init__(self, host: Host, items: AsyncIterator[Any]) -> None:
        self._host = host
        self._items = items

    def __aiter__(self) -> _Items:
        return self

    async def __anext__(self) -> Any:
        async def next_item() -> Any:
            # An end is handed over as a value: no future may hold a StopAsyncIteration.
            return await anext(self._items, _END)

        item = await self._host.across(next_item)
        if item is _END:
            raise StopAsyncIteration
        return bridged(self._host, item)


_END = object()


class _Entered:
    def __init__(self, host: Host, manager: AbstractAsyncContextManager[Any]) -> None:
        self._host = host
        self._manager = host.wrap_async_context_manager(manager)

    async def __aenter__(self) -> Any:
        return bridged(self._host, await anyio.to_thread.run_sync(self._manager.__enter__))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Any:
        with anyio.CancelScope(shield=True):
            return await anyio.to_thread.run_sync(self._manager.__exit__, kind, error, traceback)
