"""`doctor --runs`: hints that do not match facts are found, and put right."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import pytest

from durable import Queue, sleep, step, workflow
from durable.client import Client, purging
from durable.client.consistency import YOUNG, RunsExamination
from durable.client.load import look_at_load
from durable.doctor import Finding
from durable.doctor.roles import judge
from durable.errors import NotFound
from durable.protocol import names, records
from durable.protocol.records import Attention, Marker, Pending, Presence, Timer
from durable.runtime import markers
from durable.runtime.worker import Worker
from durable.store import Store
from durable.store.memory import Bucket, MemoryBackend

pytestmark = pytest.mark.anyio


@step(name="doctored.note")
async def note(word: str) -> str:
    return word


@workflow(name="doctored")
async def doctored(word: str) -> str:
    return await note(word)


@pytest.fixture
def bucket() -> Bucket:
    bucket = Bucket()
    real, bucket.ahead = bucket.now, 0.0  # type: ignore[attr-defined]  # the test's own
    bucket.now = lambda: real() + bucket.ahead  # type: ignore[attr-defined, method-assign]  # same
    return bucket


@pytest.fixture
def store(bucket: Bucket) -> Store:
    return Store(MemoryBackend(bucket))


async def examined(store: Store, *, repair: bool = False) -> list[Finding]:
    """What is found later than what was made just now could explain."""
    store.backend.bucket.ahead += 2 * YOUNG  # type: ignore[attr-defined]  # a memory backend's
    return await RunsExamination(store, repair=repair).findings()


async def _drop(store: Store, prefix: str) -> None:
    async for stored in store.list(prefix):
        await store.delete(stored.name, stored.generation)


async def test_a_store_in_order_is_ok(store: Store) -> None:
    """Runs that are over, that wait and that were purged raise no question."""
    async with Client(store) as client:
        for run in ("over", "gone"):
            await client.run(doctored.options(id=run), "a")
        await client.start(doctored.options(id="waits"), "a")
        await _drop(store, "live/default/" + names.run_hash("gone"))
        await purging.purge(store, "gone")

    (finding,) = await examined(store)

    assert (finding.level, finding.found) == ("ok", "3 runs; hints and facts agree")


async def test_a_run_that_nobody_would_look_at_is_woken(store: Store) -> None:
    """Its starter died between the two writes; repaired, it is taken like any other."""
    async with Client(store) as client:
        handle = await client.start(doctored.options(id="x"), "a")
        await _drop(store, "live/")

        (found,) = await examined(store)
        (repaired,) = await examined(store, repair=True)

        assert (found.check, found.level, found.fix) == (
            "lost", "warning", "durable doctor --runs --repair",
        )  # fmt: skip
        assert "x" in found.found
        assert (repaired.level, "repaired" in repaired.found) == ("note", True)
        assert [f.level for f in await examined(store)] == ["ok"]
        assert str(await handle.status()) == "waiting"


@workflow(name="doctored.sleeps")
async def sleeps(seconds: float) -> str:
    await sleep(seconds)
    return "rested"


async def test_a_parked_run_whose_timer_is_gone_is_woken(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its wait is recorded, so it looks parked; but nothing would ever wake it."""
    monkeypatch.setenv("DURABLE_ALWAYS_PARK", "1")
    served = {sleeps.name: sleeps.definition}
    async with Client(store) as client:
        handle = await client.start(sleeps.options(id="x"), 3 * YOUNG)
        await Worker(store, served).run(until_idle=True)
        assert [f.level for f in await examined(store)] == ["ok"]  # two periods have passed
        await _drop(store, "timers/")
        assert str(await handle.status()) == "parked"

        (found,) = await examined(store, repair=True)

        assert (found.check, found.level) == ("lost", "note")
        await Worker(store, served).run(until_idle=True)
        assert await handle.result(timeout=0) == "rested"


async def test_a_run_that_is_just_being_started_is_left_alone(store: Store, bucket: Bucket) -> None:
    """What is young may be half of something that goes on."""
    async with Client(store) as client:
        await client.start(doctored.options(id="x"), "a")
        await _drop(store, "live/")

        assert [f.level for f in await RunsExamination(store, repair=True).findings()] == ["ok"]


async def test_a_run_missing_in_the_history_is_listed_again(store: Store) -> None:
    """Its worker died between the result and the history."""
    async with Client(store) as client:
        await client.run(doctored.options(id="x"), "a")
        await _drop(store, "history/")

        (found,) = await examined(store)
        await examined(store, repair=True)

        assert found.check == "unlisted"
        assert [(run.id, run.status) async for run in client.list()] == [("x", "completed")]


async def test_an_attention_hint_of_a_run_that_is_over_goes(store: Store) -> None:
    """It would be shown for ever."""
    async with Client(store) as client:
        await client.run(doctored.options(id="x"), "a")
        handle = await client.get("x")
        hint = Attention("x", handle.instance, "doctored", "drift", "m", "n", store.now())
        name = names.attention("default", "x")
        await store.create(name, records.encode(hint), nonce="n")

        (found,) = await examined(store)
        await examined(store, repair=True)

        assert found.check == "attention"
        assert await store.read(name) is None


async def _wait_of(store: Store, run: str, instance: str) -> str:
    """A hint that the instance waits for an event, as a park makes it."""
    hint = Timer(run, instance, "doctored", "default", "n", "wait.1")
    name = names.timer(names.NEVER, run, instance, "")
    await store.create(name, records.encode(hint), nonce="n")
    return name


async def _place_of(store: Store, run: str, instance: str) -> str:
    """A hint that the instance waits for a slot."""
    name = names.pending("narrow", 0, "2026-11-29T19:04:43.123Z", run)
    pending = Pending(run, instance, "doctored", "n")
    await store.create(name, records.encode(pending), nonce="n")
    return name


@pytest.mark.parametrize("make", [_wait_of, _place_of])
async def test_a_hint_that_a_run_waits_goes_once_it_is_over(
    store: Store, make: Callable[[Store, str, str], Awaitable[str]]
) -> None:
    """It would be shown as waiting for ever. Those of runs that are not over, or of which only
    the hint is there so far, are left alone.
    """
    async with Client(store) as client:
        await client.run(doctored.options(id="over"), "a")
        moved = await client.start(doctored.options(id="moved"), "a")
        stands = await client.start(doctored.options(id="stands"), "a")
        stale = [
            await make(store, "over", (await client.get("over")).instance),
            await make(store, moved.id, "the instance before"),
        ]
        right = [
            await make(store, stands.id, stands.instance),
            await make(store, "comes", "the first instance"),
        ]

        (found,) = await examined(store)
        (repaired,) = await examined(store, repair=True)

        assert (found.check, found.level) == ("leftover", "warning")
        assert found.found == "over, but shown as waiting: moved, over"
        assert (repaired.level, repaired.found) == ("note", f"{found.found}; repaired")
        assert [await store.read(name) for name in stale] == [None, None]
        assert None not in [await store.read(name) for name in right]
        assert [finding.level for finding in await examined(store)] == ["ok"]


async def test_a_purge_that_died_is_finished(store: Store) -> None:
    """Objects behind a tombstone are removed."""
    async with Client(store) as client:
        await client.run(doctored.options(id="x"), "a")
        await purging.purge(store, "x")
        left = names.step("x", "abc", "note.1")
        await store.create(left, b"{}", nonce="n")

        (found,) = await examined(store)
        await examined(store, repair=True)

        assert found.check == "purge"
        assert await store.read(left) is None
        with pytest.raises(NotFound):
            await client.get("x")


@pytest.mark.parametrize("run", ["x", "y"])
async def test_a_folder_that_no_start_names_is_removed(store: Store, run: str) -> None:
    """A retry that died before it pointed the id at its copy leaves one; so does a fork, whose
    id has no start at all.
    """
    async with Client(store) as client:
        await client.run(doctored.options(id="x"), "a")
        left = names.step(run, "abc", "note.1")
        await store.create(left, b"{}", nonce="n")

        (found,) = await examined(store)
        assert await store.read(left) is not None
        await examined(store, repair=True)

        assert (found.check, found.found) == ("orphans", f"with folders that no start names: {run}")
        assert await store.read(left) is None
        assert await (await client.get("x")).result() == "a"
        assert [finding.level for finding in await examined(store)] == ["ok"]


async def test_a_damaged_run_is_named_and_not_touched(store: Store) -> None:
    """A human decides."""
    await store.create(names.start("x"), b"not a record", nonce="n")

    (found,) = await examined(store, repair=True)

    assert (found.check, found.level) == ("damaged", "warning")
    assert await store.read(names.start("x")) is not None


# -- the load -------------------------------------------------------------------------------------


async def test_runs_that_nobody_serves_are_counted_with_the_reason(store: Store) -> None:
    """No worker at all, or none that knows the workflow."""
    async with Client(store) as client:
        await client.start(doctored.options(id="x"), "a")
        (none,) = await look_at_load(store, billed=False)
        shown = Presence("w", "n", queues=["default"], workflows=["other"])
        await store.create(names.presence("w"), records.encode(shown), nonce="n")
        (unknown,) = await look_at_load(store, billed=False)

    assert (none.level, none.found) == ("warning", "1 run waits: no live worker (x)")
    assert "no live worker knows workflow 'doctored'" in unknown.found


async def test_a_few_of_the_runs_that_wait_are_named(store: Store) -> None:
    """Also those that need a label which no live worker has."""
    labelled = doctored.options(queue="gpus")
    async with Client(store) as client:
        for run in "abcde":
            await client.start(labelled.options(id=run), run)
        (found,) = await look_at_load(store, billed=False)

    assert found.found.startswith("5 runs wait: no live worker (")
    assert found.found.endswith(", ...)")


async def test_a_run_that_is_over_does_not_wait(store: Store) -> None:
    """Its process has ended before the marker was deleted, and nobody has looked since."""
    async with Client(store) as client:
        await client.run(doctored.options(id="over"), "a")
        await client.start(doctored.options(id="left"), "a")
        await _drop(store, names.LIVE)
        for run in ("over", "left"):
            instance = (await client.get(run)).instance
            await markers.create(store, Marker(run, instance, "doctored", "n", holder="gone"))
        (found,) = await look_at_load(store, billed=False)

    assert found.found == "1 run waits: its worker is gone; no live worker (left)"


async def test_runs_in_line_that_nobody_serves_are_counted(store: Store) -> None:
    """Those that wait for a slot of a limited queue have no marker."""
    narrow = doctored.options(queue=Queue("narrow", concurrency=1))
    async with Client(store) as client:
        await client.start(narrow.options(id="x"), "a")
        (found,) = await look_at_load(store, billed=False)
        shown = Presence("w", "n", queues=["narrow"], workflows=["doctored"])
        await store.create(names.presence("w"), records.encode(shown), nonce="n")
        (served,) = await look_at_load(store, billed=False)

    assert (found.level, found.found) == ("warning", "1 run waits: no live worker (x)")
    assert (served.level, served.found) == ("ok", "1 live runs; none waits for want of a worker")


async def test_workers_that_hold_runs_cost_more(store: Store) -> None:
    """They renew a lease and list what there is more often: $2.87 a month instead of $0.93."""
    for worker in ("holds", "idles"):
        shown = Presence(worker, "n", queues=["default"], workflows=["doctored"])
        await store.create(names.presence(worker), records.encode(shown), nonce="n")
    marker = Marker("x", "i", "doctored", "n", holder="holds", owner="o")
    await store.create(
        names.marker("default", "x"), records.encode(marker), nonce="n", meta={"holder": "holds"}
    )

    _, cost = await look_at_load(store, billed=True)

    assert cost.found.startswith("about $3.80 a month")
    assert "2 workers, of which 1 hold runs" in cost.found


async def test_a_month_is_estimated_from_the_last_day(store: Store) -> None:
    """Workers and runs with their calls, in dollars."""
    async with Client(store) as client:
        for run in ("a", "b"):
            await client.run(doctored.options(id=run), "a")

        _, cost = await look_at_load(store, billed=True)

    assert cost.check == "cost"
    assert "2 runs with 1 calls each" in cost.found
    assert "$0.93" in cost.found  # a worker's idle month, and little more


# -- roles ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allowed", "can", "lacks"),
    [
        (
            {"create", "read", "list", "replace", "delete"},
            "a viewer, a submitter, a worker and an operator",
            "",
        ),
        (
            {"read", "list"},
            "can be a viewer;",
            "a worker (executes) lacks create, delete and replace",
        ),
        (set(), "nothing", "a viewer (lists and shows) lacks list and read"),
    ],
)
def test_an_account_learns_who_it_can_be(allowed: set[str], can: str, lacks: str) -> None:
    """By the operations that it may do; what others need is named with the least role."""
    tried = [
        Finding(check, "ok" if check in allowed else "refused", "")
        for check in ("create", "read", "list", "replace", "delete")
    ]

    found = judge(tried)

    assert can in found.found
    assert lacks in found.found
    assert msgspec.json.encode(found)
