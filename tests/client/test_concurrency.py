"""`durable.gather` and `durable.map` as users type them."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from durable import RunFailed, gather, map, step, workflow
from durable.client import Client
from durable.errors import NotInWorkflow, UsageError
from tests.client.shop import charge, weigh

pytestmark = pytest.mark.anyio


async def both(order: str) -> tuple[str, int]:
    return await charge(order), await weigh.call(order)


@workflow(name="concurrency.wide")
async def wide(orders: list[str]) -> list[Any]:
    receipt, size = await gather(charge("A"), weigh.call("AB"))
    pairs = await gather(both("C"), both("D"))
    return [receipt, size, [*pairs], await map(both, orders, limit=2), await map(weigh, orders)]


@step
def number_of(order: str) -> int:
    return len(order)


@workflow(name="concurrency.bad")
async def bad(case: str) -> None:
    match case:
        case "value":
            await gather(1, charge("A"))  # type: ignore[call-overload]  # wrong on purpose
        case "list":
            await gather([charge("A")])  # type: ignore[call-overload]  # wrong on purpose
        case "limit":
            await map(charge, ["A"], limit=0)
        case "plain":
            await map(len, ["A"])  # type: ignore[call-overload]  # wrong on purpose


@workflow(name="concurrency.sync")
def in_sync(word: str) -> None:
    if word == "gather":
        gather(charge("A"))
    else:
        map(charge, ["A"])


WIDE: list[object] = [
    "receipt A", 2, [("receipt C", 1), ("receipt D", 1)], [("receipt E", 1)], [1],
]  # fmt: skip


async def test_results_come_in_the_order_of_the_calls(client: Client) -> None:
    """A tuple from gather, a list from map; branches have scopes of their own."""
    value = await client.run(wide.options(id="x"), ["E"])
    paths = {s.path for s in await (await client.get("x")).steps()}

    assert value == WIDE
    assert {"charge.1", "gather.2/1/weigh.1", "map.1/0/charge.1", "map.2/0/weigh.1"} <= paths


async def test_outside_a_run_they_are_plain_concurrency() -> None:
    """The workflow called as a function does what it does in a run."""
    assert await wide(["E"]) == WIDE


async def test_gather_gives_a_tuple() -> None:
    """Whatever the number of calls."""
    assert await gather() == ()
    assert await gather(*[number_of.call("a" * n) for n in range(7)]) == (0, 1, 2, 3, 4, 5, 6)


@pytest.mark.parametrize(
    ("case", "said"),
    [("value", "not int"), ("list", "not list"), ("limit", "limit=0"), ("plain", "returned int")],
)
@pytest.mark.filterwarnings("ignore:coroutine")  # calls that were made and then refused
@pytest.mark.filterwarnings("ignore::durable.errors.NeverAwaited")  # what they were given
async def test_wrong_use_is_explained(client: Client, case: str, said: str) -> None:
    """A usage error, not a puzzle."""
    with pytest.raises(RunFailed, match=said) as caught:
        await client.run(bad, case)

    assert isinstance(caught.value.__cause__, UsageError)


@pytest.mark.parametrize("word", ["gather", "map"])
@pytest.mark.filterwarnings("ignore::durable.errors.NeverAwaited")  # what they were given
async def test_in_a_sync_workflow_they_are_refused(client: Client, word: str) -> None:
    """The error names durable.sync."""
    with pytest.raises(RunFailed) as caught:
        await client.run(in_sync, word)

    cause = caught.value.__cause__
    assert isinstance(cause, NotInWorkflow)
    assert f"durable.sync.{word}" in (cause.hint or "")


async def test_map_holds_no_more_than_its_limit() -> None:
    """Places free up one by one."""
    busy = most = 0

    async def work(item: int) -> int:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        await anyio.lowlevel.checkpoint()
        busy -= 1
        return item

    assert await map(work, range(20), limit=3) == [*range(20)]
    assert most == 3
