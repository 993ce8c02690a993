"""What scenarios of shared things have in common: clients that ask until they are told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

from durable.client import Client
from durable.errors import NotFound
from durable.testing.simulation.world import World
from tests.virtual_time import virtual_seconds

BETWEEN = 0.4  # seconds between two starts whose order counts


async def ask(world: World, what: str, talk: Callable[[Client], Awaitable[Any]]) -> Any:
    """A client asks until it is told something; nothing is said of what does not exist."""
    for _ in range(20):
        reply = await world.client(what, talk)
        if reply.value is not None or isinstance(reply.error, NotFound):
            return reply.value
        await virtual_seconds(1)
    return None


async def one_by_one(world: World, *starts: tuple[Any, str, tuple[Any, ...]]) -> list[str]:
    """Start runs so that the order of their starts is beyond doubt; returns their ids."""
    for workflow, run, args in starts:
        await world.start(workflow, run, *args)
        await virtual_seconds(BETWEEN)
    return [run for _, run, _ in starts]


def unfinished(world: World) -> list[str]:
    """Runs that were started and are not over."""
    runs = [unquote(n.split("/")[1]) for n in world.there() if n.endswith("/start")]
    return [run for run in runs if not world.result(run)]
