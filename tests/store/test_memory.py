"""The memory store's own services: faults on demand, counted calls, a clock that tests drive."""

from __future__ import annotations

import pytest

from durable.errors import StoreUnavailable
from durable.store import Store
from durable.store.memory import Bucket, Call, Fault, Kind, MemoryBackend, steady_clock
from durable.system import System
from tests.virtual_time import virtual_seconds

pytestmark = pytest.mark.anyio


def faulty(*faults: Fault, bucket: Bucket | None = None) -> MemoryBackend:
    """A backend whose first calls suffer `faults` in turn."""
    left = iter(faults)
    return MemoryBackend(bucket, faults=lambda _call: next(left, None))


async def test_calls_are_counted_and_logged() -> None:
    """Every call of every backend on a bucket is counted by verb and logged with its name."""
    bucket = Bucket()
    first, second = MemoryBackend(bucket), MemoryBackend(bucket)

    await first.create("a", b"", {}, True)
    await second.create("a", b"", {}, True)
    await second.list("p/", None)

    assert bucket.calls == {"create": 2, "list": 1}
    assert bucket.log == [("create", "a"), ("create", "a"), ("list", "p/")]


async def test_the_hook_sees_each_call_with_its_number() -> None:
    """A hook is told verb, name and which call of that verb on that name it is."""
    seen: list[Call] = []
    backend = MemoryBackend(faults=seen.append)

    await backend.read("a")
    await backend.read("b")
    await backend.read("a")

    assert seen == [Call("read", "a", 1), Call("read", "b", 1), Call("read", "a", 2)]


async def test_unsent_changes_nothing_and_reply_lost_does() -> None:
    """Both are unanswered; only the second was applied."""
    backend = faulty(Fault("unsent"), Fault("reply_lost"))

    with pytest.raises(StoreUnavailable):
        await backend.create("a", b"", {}, True)
    assert backend.bucket.read("a") is None
    with pytest.raises(StoreUnavailable):
        await backend.create("a", b"", {}, True)
    assert backend.bucket.read("a") is not None


async def test_a_late_call_lands_when_told() -> None:
    """A late call changes nothing until `land`, and then keeps its precondition."""
    backend = faulty(Fault("late"), Fault("late"))
    for name in ("a", "b"):
        with pytest.raises(StoreUnavailable):
            await backend.create(name, b"late", {}, True)
    await backend.create("b", b"in time", {}, True)
    assert await backend.read("a") is None

    assert backend.land() == 2

    a, b = backend.bucket.read("a"), backend.bucket.read("b")
    assert a is not None
    assert b is not None
    assert (a.body, b.body) == (b"late", b"in time")
    assert backend.land() == 0


async def test_a_late_call_lands_by_the_buckets_clock() -> None:
    """With `seconds` it lands at the first call after that time."""
    time = [100.0]
    backend = faulty(Fault("late", seconds=5.0), bucket=Bucket(now=lambda: time[0]))
    with pytest.raises(StoreUnavailable):
        await backend.create("a", b"", {}, True)

    time[0] = 104.9
    assert await backend.read("a") is None
    time[0] = 105.0
    stored = await backend.read("a")

    assert stored is not None
    assert stored.updated == 105.0


async def test_twice_answers_for_the_second_time() -> None:
    """A create carried out twice is refused by itself."""
    backend = faulty(Fault("twice"))

    assert await backend.create("a", b"", {}, True) is None
    assert backend.bucket.read("a") is not None


async def test_a_truncated_read_is_cut_and_the_object_is_not() -> None:
    """A truncated body is seen by one reader only."""
    backend = faulty(Fault("truncated", size=2))
    backend.bucket.create("a", b"body", {"nonce": "n"}, True)

    cut, whole = await backend.read("a"), await backend.read("a")

    assert cut is not None
    assert whole is not None
    assert (cut.body, whole.body) == (b"bo", b"body")
    assert cut.meta == {"nonce": "n"}


@pytest.mark.parametrize("page_size", [1, 2, 3, 7])
async def test_any_page_size_lists_everything(page_size: int) -> None:
    """Short pages, and even empty ones in between, leave nothing out."""
    names = [f"p/{number}" for number in range(7)]
    bucket = Bucket()
    for name in ["o", *names, "q"]:
        bucket.create(name, b"", {}, True)
    backend = MemoryBackend(
        bucket,
        page_size=page_size,
        faults=lambda call: Fault("short_page", size=0) if call.nth % 2 else None,
    )

    listed = [item.name async for item in Store(backend).list("p/")]

    assert listed == names


@pytest.mark.requires("trio")
@pytest.mark.parametrize("kind", ["delayed", "slow_reply"])
def test_delays_wait_before_or_after_the_effect(kind: Kind) -> None:
    """A delayed call takes effect after its wait, a slow reply before it."""
    import trio
    import trio.testing

    async def main() -> bool:
        backend = faulty(Fault(kind, seconds=3600.0))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(backend.create, "a", b"", {}, True)
            await virtual_seconds(3599)
            return backend.bucket.read("a") is not None

    clock = trio.testing.MockClock(autojump_threshold=0)
    assert trio.run(main, clock=clock) == (kind == "slow_reply")


async def test_generations_are_in_no_order() -> None:
    """Nothing can come to rely on rising generations by accident."""
    bucket = Bucket()
    written = [bucket.create(str(number), b"", {}, True) for number in range(100)]
    generations = [item.generation for item in written if item is not None]

    assert len(set(generations)) == 100
    assert generations != sorted(generations)
    assert Bucket(ordered=True).create("a", b"", {}, True).generation == 1  # type: ignore[union-attr]  # nobody was before it


async def test_the_clock_is_the_wall_at_first_and_then_the_boot_clock() -> None:
    """A step of the wall clock after the start changes nothing."""
    wall, boot = [1000.0], [5.0]
    now = steady_clock(System(wall=lambda: wall[0], boot=lambda: boot[0]))
    assert now() == 1000.0

    wall[0] = 90_000.0
    boot[0] = 7.5

    assert now() == 1002.5
