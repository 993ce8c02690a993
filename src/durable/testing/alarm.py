"""Wakes parked runs on time, whoever parked them: the environment's worker does not poll."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime

import anyio

from durable.protocol import moments, names
from durable.runtime import timers
from durable.store import Store
from durable.store.memory import Bucket
from durable.testing.client import News


class Alarm:
    """Promotes each timer hint of a bucket when it is due, and again when something changes.

    Args:
        news: the event of the next change in the bucket.
    """

    def __init__(self, bucket: Bucket, store: Store, news: News) -> None:
        self._bucket = bucket
        self._store = store
        self._news = news

    async def ring(self) -> None:
        """For ever."""
        while True:
            since = self._news()
            for name in [name for name in self._hints() if self._is_due(name)]:
                stored = self._bucket.read(name)
                if stored is not None:
                    await timers.promote(self._store, stored)
            with anyio.move_on_after(self._until_next()):
                await since.wait()

    def _hints(self) -> Iterator[str]:
        with self._bucket.lock:
            for name in self._bucket.names.since(names.TIMERS):
                if not name.startswith(names.TIMERS):
                    return
                yield name

    def _is_due(self, name: str) -> bool:
        return names.timer_due(name) <= moments.stamp(self._store.now())

    def _until_next(self) -> float:
        now = self._store.now()
        for name in self._hints():
            due = names.timer_due(name)
            if due == names.NEVER:
                break
            seconds = datetime.fromisoformat(due).timestamp() - now
            if seconds > 0:
                return seconds
        return math.inf
