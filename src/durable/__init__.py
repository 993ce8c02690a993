"""Durable Python workflows on nothing but a bucket.

    @step
    async def charge(order: str) -> str: ...

    @workflow
    async def checkout(order: str) -> str:
        return await charge(order)

    async with connect() as client:
        receipt = await client.run(checkout.options(id="order-1"), "A-1")

Everything else that can be raised is in `durable.errors`.
"""

from __future__ import annotations

from durable import sync as sync
from durable.client import Skipped as Skipped
from durable.client import connect as connect
from durable.concurrency import gather as gather
from durable.concurrency import map as map
from durable.concurrency import select as select
from durable.decorators import step as step
from durable.decorators import workflow as workflow
from durable.errors import Fatal as Fatal
from durable.errors import NeedsAttention as NeedsAttention
from durable.errors import RunCancelled as RunCancelled
from durable.errors import RunFailed as RunFailed
from durable.guarding import once as once
from durable.protocol.queues import Queue as Queue
from durable.protocol.retries import Retry as Retry
from durable.protocol.schedules import cron as cron
from durable.protocol.schedules import every as every
from durable.repeatable import now as now
from durable.repeatable import patched as patched
from durable.repeatable import random as random
from durable.repeatable import uuid as uuid
from durable.runtime.publishing import publish as publish
from durable.runtime.scopes import current as current
from durable.runtime.scopes import unwinding as unwinding
from durable.waiting import sleep as sleep
from durable.waiting import sleep_until as sleep_until
from durable.waiting import timeout as timeout
from durable.waiting import wait_event as wait_event

__all__ = [
    "Fatal",
    "NeedsAttention",
    "Queue",
    "Retry",
    "RunCancelled",
    "RunFailed",
    "Skipped",
    "connect",
    "cron",
    "current",
    "every",
    "gather",
    "map",
    "now",
    "once",
    "patched",
    "publish",
    "random",
    "select",
    "sleep",
    "sleep_until",
    "step",
    "sync",
    "timeout",
    "unwinding",
    "uuid",
    "wait_event",
    "workflow",
]
