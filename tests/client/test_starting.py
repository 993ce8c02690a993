"""Starting a run: accepted once, the same again is the same run, anything else is an error."""

from __future__ import annotations

import anyio
import pytest

from durable import step, workflow
from durable.client import Client
from durable.errors import (
    Conflict,
    InvalidArguments,
    InvalidDefinition,
    InvalidId,
    StoreUnavailable,
    UsageError,
)
from durable.store import Store
from durable.store.memory import Bucket, Call, Fault, MemoryBackend
from tests.client import shop
from tests.client.shop import checkout, other

pytestmark = pytest.mark.anyio


def names_in(bucket: Bucket) -> list[str]:
    return [item.name for item in bucket.list("", None).items]


async def test_start_leaves_marker_start_and_bell(bucket: Bucket, client: Client) -> None:
    """A start is a marker, a `start` and one ring, and executes nothing."""
    handle = await client.start(checkout.options(id="order 1"), "A-1")

    kinds = [name.split("/", 1)[0] for name in names_in(bucket)]
    assert kinds == ["bells", "live", "runs"]
    assert handle.id == "order 1"
    assert shop.ran == []


async def test_a_start_costs_two_creates_and_a_ring(bucket: Bucket, client: Client) -> None:
    """Three creates and nothing else, whether or not the bell rings already."""
    await client.start(checkout, "A-1")
    await client.start(checkout, "A-2")

    assert bucket.calls == {"create": 6}


async def test_ids_left_to_chance_differ(client: Client) -> None:
    """Without an id each start is a run of its own."""
    one = await client.start(checkout, "A-1")
    two = await client.start(checkout, "A-1")

    assert one.id != two.id


async def test_the_same_again_is_the_same_run(client: Client) -> None:
    """Same id, workflow and input: a handle of the instance that exists."""
    one = await client.start(checkout.options(id="x"), "A-1")
    two = await client.start(checkout.options(id="x"), "A-1")

    assert two.instance == one.instance


@pytest.mark.parametrize("spelt", ["keyword", "default"])
async def test_spelling_of_arguments_does_not_matter(client: Client, spelt: str) -> None:
    """Positional or keyword, a default given or left out: the same call."""
    workflow = checkout.options(id="x")
    one = await client.start(workflow, "A-1")
    if spelt == "keyword":
        two = await client.start(workflow, order="A-1")
    else:
        two = await client.start(workflow, "A-1", express=False)

    assert two.instance == one.instance


async def test_many_starts_of_one_id_make_one_run(store: Store) -> None:
    """Concurrent starts agree on one instance."""
    instances = []

    async def start() -> None:
        async with Client(store) as client:
            instances.append((await client.start(checkout.options(id="x"), "A-1")).instance)

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(start)

    assert len(instances) == 20
    assert len(set(instances)) == 1


async def test_another_workflow_is_a_conflict(client: Client) -> None:
    """The error names the workflow that has the id and the one that was asked for."""
    await client.start(checkout.options(id="x"), "A-1")

    with pytest.raises(Conflict, match=r"'shop\.checkout'.*'shop\.other'") as caught:
        await client.start(other.options(id="x"), "A-1")

    assert caught.value.run == "x"


async def test_another_input_is_a_conflict(client: Client) -> None:
    """The error does not show the inputs, which may be secret."""
    await client.start(checkout.options(id="x"), "A-1")

    with pytest.raises(Conflict, match="another input") as caught:
        await client.start(checkout.options(id="x"), "hunter2")

    assert "hunter2" not in str(caught.value)
    assert "A-1" not in str(caught.value)


async def test_an_answer_that_is_lost_changes_nothing(bucket: Bucket) -> None:
    """Every first answer is lost: the run is started once, and known to be."""

    def lose_first(call: Call) -> Fault | None:
        return Fault("reply_lost") if call.nth == 1 and call.verb == "create" else None

    async with Client(Store(MemoryBackend(bucket, faults=lose_first))) as client:
        handle = await client.start(checkout.options(id="x"), "A-1")
        again = await client.start(checkout.options(id="x"), "A-1")

    assert handle.instance == again.instance


async def test_a_store_that_is_silent_may_have_started_it(bucket: Bucket) -> None:
    """The error says so, and what to do; the same id then finds the run."""
    silent = MemoryBackend(bucket, faults=lambda call: Fault("reply_lost"))

    async with Client(Store(silent, patience=0)) as client:
        with pytest.raises(StoreUnavailable, match="may have started") as caught:
            await client.start(checkout.options(id="x"), "A-1")
    async with Client(Store(MemoryBackend(bucket))) as client:
        handle = await client.start(checkout.options(id="x"), "A-1")

    assert "same id" in (caught.value.hint or "")
    assert handle.id == "x"


async def test_a_bell_that_cannot_be_rung_is_left(bucket: Bucket) -> None:
    """The ring is tried twice; the start is accepted without it."""

    def no_bells(call: Call) -> Fault | None:
        return Fault("unsent") if call.name.startswith("bells/") else None

    async with Client(Store(MemoryBackend(bucket, faults=no_bells))) as client:
        await client.start(checkout.options(id="x"), "A-1")

    assert sum(name.startswith("bells/") for _, name in bucket.log) == 2
    assert "runs/x/start" in names_in(bucket)


async def test_a_start_whose_marker_exists_already_is_accepted(
    bucket: Bucket, client: Client
) -> None:
    """A marker that somebody made before does not stand in the way of `start`."""
    await client.start(checkout.options(id="x"), "A-1")
    start = bucket.read("runs/x/start")
    assert start is not None
    bucket.delete("runs/x/start", start.generation)

    handle = await client.start(checkout.options(id="x"), "A-2")

    assert (await client.get("x")).instance == handle.instance


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), (("a", True, "more"), {}), (("a",), {"unknown": 1})],
    ids=["missing", "extra", "unknown"],
)
async def test_arguments_that_do_not_fit_write_nothing(
    bucket: Bucket, client: Client, args: tuple[object, ...], kwargs: dict[str, object]
) -> None:
    """The message shows the signature."""
    with pytest.raises(InvalidArguments, match=r"shop\.checkout\(order: '?str'?, express: '?bool"):
        await client.start(checkout, *args, **kwargs)  # type: ignore[arg-type]  # arguments are passed on

    assert names_in(bucket) == []


async def test_arguments_that_cannot_be_stored_write_nothing(
    bucket: Bucket, client: Client
) -> None:
    """An input that has no stored form is refused at once, and names the parameter."""
    with pytest.raises(InvalidArguments, match="order"):
        await client.start(checkout, object())  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(InvalidArguments, match="order"):
        await client.run(checkout, object())  # type: ignore[arg-type]  # wrong on purpose

    assert names_in(bucket) == []


@pytest.mark.parametrize("bad", ["", ".", "..", "a\nb", "x" * 201, "\u00e9" * 40])
async def test_a_bad_id_writes_nothing(bucket: Bucket, client: Client, bad: str) -> None:
    """Empty, dots, control characters, too long once encoded."""
    with pytest.raises(InvalidId):
        await client.start(checkout.options(id=bad), "A-1")
    with pytest.raises(InvalidId):
        await client.get(bad)

    assert names_in(bucket) == []


@pytest.mark.parametrize(
    "odd", ["a/b", "a#b?c", "100 %", "it's (it)", "../../other/run", "日本", "🙂"]
)
async def test_odd_ids_work_everywhere(bucket: Bucket, client: Client, odd: str) -> None:
    """Whatever characters an id has, it is started, found, listed and run, in its own folder."""
    await client.start(checkout.options(id=odd), "A-1")
    receipt, _ = await client.run(checkout.options(id=odd), "A-1")
    handle = await client.get(odd)

    assert receipt == "receipt A-1"
    assert await handle.status() == "completed"
    assert [run.id async for run in client.list()] == [odd]
    assert not [n for n in names_in(bucket) if n.startswith("runs/") and n.count("/") > 5]


async def test_a_step_cannot_be_started(bucket: Bucket, client: Client) -> None:
    """Only workflows are started."""
    with pytest.raises(UsageError, match="only workflows"):
        await client.start(shop.charge, "A-1")  # type: ignore[arg-type]  # wrong on purpose

    assert names_in(bucket) == []


async def test_tags_that_are_no_text_write_nothing(bucket: Bucket, client: Client) -> None:
    """Tags are checked where they are written, so children's and ticks' runs have none either."""
    with pytest.raises(UsageError, match="a tag must be text"):
        await client.start(checkout.options(tags={"n": 1}), "A-1")  # type: ignore[dict-item]  # wrong on purpose

    assert names_in(bucket) == []


def test_two_functions_under_one_name_are_refused() -> None:
    """The second decoration fails and names both places."""
    with pytest.raises(InvalidDefinition, match="two workflows are named"):

        @workflow(name="shop.checkout")
        async def impostor() -> None: ...


def test_a_generator_function_is_refused() -> None:
    """Neither a step nor a workflow can yield."""
    with pytest.raises(InvalidDefinition, match="generator"):

        @step(name="yields")
        def yields() -> object:
            yield 1
