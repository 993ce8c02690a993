"""Starting runs, asking for their outcome, and looking at what is recorded.

async with connect() as client:
    handle = await client.start(checkout.options(id="order-1"), "A-1")
    receipt = await handle.result(timeout=60)
"""

from __future__ import annotations

from durable.client.cancelling import CancelAnswer as CancelAnswer
from durable.client.connection import Client as Client
from durable.client.connection import connect as connect
from durable.client.coordination import Coordination as Coordination
from durable.client.handles import Ended as Ended
from durable.client.handles import Handle as Handle
from durable.client.listing import RunSummary as RunSummary
from durable.client.locks import Locks as Locks
from durable.client.locks import LockSummary as LockSummary
from durable.client.queues import Queues as Queues
from durable.client.queues import QueueSummary as QueueSummary
from durable.client.reading import Status as Status
from durable.client.reading import StepSummary as StepSummary
from durable.client.schedules import Schedules as Schedules
from durable.client.schedules import ScheduleSummary as ScheduleSummary
from durable.client.sending import SendAnswer as SendAnswer
from durable.client.skipping import Skipped as Skipped

__all__ = [
    "CancelAnswer",
    "Client",
    "Coordination",
    "Ended",
    "Handle",
    "LockSummary",
    "Locks",
    "QueueSummary",
    "Queues",
    "RunSummary",
    "ScheduleSummary",
    "Schedules",
    "SendAnswer",
    "Skipped",
    "Status",
    "StepSummary",
    "connect",
]
