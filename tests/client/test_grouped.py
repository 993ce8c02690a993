"""Calls that were recorded together, as people and their repairs meet them."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from durable import step, workflow
from durable.client import Client, archives
from durable.errors import Conflict, RunFailed
from durable.protocol import names, records
from durable.protocol.records import Group, Step
from durable.runtime.facts import load
from durable.store import Store
from durable.store.memory import Bucket, Call, Fault, MemoryBackend

pytestmark = pytest.mark.anyio

ran: list[str] = []
broken: set[str] = set()
numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()
    broken.clear()


@step(name="grouped.draw", durability="group")
async def draw(what: str) -> str:
    """Another value each time."""
    ran.append(what)
    return f"{what}{next(numbers)}"


@step(name="grouped.work", attempts=1)
async def work(what: str) -> str:
    ran.append("work")
    if "work" in broken:
        raise ValueError("work is broken")
    return what


@workflow(name="grouped.sampled")
async def sampled() -> list[str]:
    first = [await draw("a"), await draw("b"), await draw("c")]
    return [*first, await work("-"), await draw("d")]


async def go_on(client: Client, run: str = "x") -> list[str]:
    return await client.run(sampled.options(id=run))


async def places(store: Store, run: str = "x") -> list[tuple[int, list[str]]]:
    """The run's groups: their place in the chain and what they hold."""
    facts = await load(store, run)
    assert facts is not None
    return [(group.k, [step.path for step in group.steps]) for group in facts.groups]


async def test_they_are_shown_as_any_others(client: Client, store: Store) -> None:
    """In their order, each with its value, beside ordinary calls."""
    values = await go_on(client)

    shown = await (await client.get("x")).steps()

    assert [step.value for step in shown] == values
    assert [step.path.removeprefix("grouped%2E") for step in shown] == [
        "draw.1", "draw.2", "draw.3", "work.1", "draw.4",
    ]  # fmt: skip
    assert [len(paths) for _, paths in await places(store)] == [3, 1]


async def test_a_retry_keeps_them(client: Client, store: Store) -> None:
    """Their values are those of the old instance; their bodies do not run again."""
    broken.add("work")
    with pytest.raises(RunFailed):
        await go_on(client)
    before = [step.value for step in await (await client.get("x")).steps()][:3]
    broken.clear()

    await client.retry("x")

    assert (await go_on(client))[:3] == before
    assert ran == ["a", "b", "c", "work", "work", "d"]
    assert [place for place, _ in await places(store)] == [1, 2]


async def test_a_fork_takes_a_part_of_a_group(client: Client, store: Store) -> None:
    """Those before the call are shared, the others are made again."""
    values = await go_on(client)
    ran.clear()

    await client.fork("x", "grouped%2Edraw.3", new_id="y")

    forked = await go_on(client, "y")
    assert forked[:2] == values[:2]
    assert forked[2] != values[2]
    assert ran == ["c", "work", "d"]
    assert await places(store, "y") == [
        (1, ["grouped%2Edraw.1", "grouped%2Edraw.2"]),
        (2, ["grouped%2Edraw.3"]),
        (3, ["grouped%2Edraw.4"]),
    ]


async def test_an_exported_run_replays(client: Client) -> None:
    """From the file alone, and where it is imported."""
    await go_on(client)

    archive = archives.read(await archives.export(client.store, "x"))

    store = await archives.unpacked(archive)
    replayed = await Client(store).replay("x")
    assert replayed.end == "everything recorded fits, to the end"
    assert len(replayed.calls) == 5


async def test_a_skipped_call_is_in_no_group(client: Client, store: Store) -> None:
    """Who does not know of the skip cannot record the call: its place in the chain is taken."""
    await client.start(sampled.options(id="x"))

    await client.skip("x", "grouped%2Edraw.2", "by hand")

    assert await places(store) == [(1, [])]
    assert (await go_on(client))[1] == "by hand"
    assert ran == ["a", "c", "work", "d"]


async def test_a_skip_that_comes_too_late_is_told(bucket: Bucket) -> None:
    """If an owner records the call together with others meanwhile, that counts."""
    client = Client(Store(MemoryBackend(bucket)))
    handle = await client.start(sampled.options(id="x"))

    def meanwhile(call: Call) -> Fault | None:
        name = names.group("x", handle.instance, 1)
        if call.name == name:
            outcome = Step(
                "grouped%2Edraw.1", "grouped.draw", "value", 1, 1, "", 0.0,
                value=msgspec.Raw(b'"theirs"'),
            )  # fmt: skip
            group = Group(1, 1, "theirs", 0.0, [outcome])
            bucket.create(name, records.encode(group), {"nonce": "theirs"}, True)
        return None

    late = Client(Store(MemoryBackend(bucket, faults=meanwhile)))
    with pytest.raises(Conflict, match="got on just now"):
        await late.skip("x", "grouped%2Edraw.1", "by hand")

    async with client:
        assert (await go_on(client))[0] == "theirs"
