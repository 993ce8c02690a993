"""Workers on a virtual clock: taking, taking over, giving back, letting go."""

from __future__ import annotations

from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

import durable
from durable.decorators import step, workflow
from durable.protocol import names, records
from durable.protocol.records import Lease, Marker
from durable.runtime import markers
from durable.runtime.sweeper import Sweeper, sweep
from durable.store import REMOTE_PACE, Store
from durable.store.memory import Call, Fault, MemoryBackend
from tests.runtime.clocks import BACKENDS, virtual
from tests.runtime.world import HOUR, world
from tests.stores import chosen
from tests.virtual_time import virtual_seconds

pytestmark = pytest.mark.anyio

TTL, MARGIN = 20.0, 2.0

bodies: Counter[str] = Counter()


@pytest.fixture(params=BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    bodies.clear()
    return virtual(request.param)


@step(name="worker-test slow")
async def slow(name: str, seconds: float) -> str:
    bodies[name] += 1
    await virtual_seconds(seconds)
    return name


@step(name="worker-test quick")
async def quick(number: int) -> int:
    bodies[f"quick {number}"] += 1
    return number * 2


@workflow(name="worker-test three")
async def three(name: str, seconds: float) -> list[str]:
    return [await slow(f"{name}{i}", seconds) for i in range(3)]


@workflow(name="worker-test quickly")
async def quickly(number: int) -> int:
    return await quick(number)


@workflow(name="worker-test none")
async def without_steps() -> str:
    return "done"


@workflow(name="worker-test blocks")
async def blocks() -> None:
    async def block(seconds: float) -> None:
        async with durable.timeout(60.0):
            await durable.sleep(seconds)

    await durable.gather(block(40.0), block(24.0))


async def test_a_started_run_is_executed() -> None:
    """A worker picks up what a client has started, and leaves only facts and history behind."""
    async with world() as w:
        await w.process()
        await w.start("r", quickly, 21)

        assert await w.result("r") == 42
        await w.until(lambda: not {"live", "bells"} & {n.split("/")[0] for n in w.there()})
        left = [n for n in await w.names() if not n.startswith(("runs/", "history/"))]
        assert [n.split("/")[0] for n in left] == ["presence", "workers"]


async def test_store_calls_of_a_run_are_those_of_the_cost_table() -> None:
    """Picking up is 1 CAS and 1 list, a step 1 create, finishing 2 creates; no reads at all."""
    async with world() as w:
        process = await w.process()
        await w.start("warm", quickly, 1)
        await w.result("warm")
        await w.until(lambda: not process.worker.runners)
        before = len(w.bucket.log)
        await w.start("r", quickly, 21)
        await w.until(lambda: any("history/" in n and n.endswith("-r") for n in w.there()))
        await virtual_seconds(5)

        calls = [(verb, n) for verb, n in w.bucket.log[before:] if _of_run(n, "r")]
        start = await w.facts("r")
        folder = f"runs/r/{start.start.instance}/"
        assert Counter(calls[2:]) == Counter(
            [
                ("replace", names.marker("default", "r")),
                ("list", "runs/r/"),
                ("create", f"{folder}steps/{names.encode_part('worker-test quick')}.1"),
                ("create", f"{folder}result"),
                ("create", next(n for n in w.there() if n.endswith("-r"))),
                ("delete", names.marker("default", "r")),
            ]
        )


def _of_run(name: str, run: str) -> bool:
    return name.startswith(f"runs/{run}/") or name.endswith(f"-{run}")


async def test_a_dead_workers_run_is_taken_over_within_ttl_margin_and_two_seconds() -> None:
    """Its lease runs out, a neighbour fences it, and the run goes on at the step in flight."""
    async with world() as w:
        first = await w.process()
        await w.start("r", three, "a", 30.0)
        await w.until(lambda: bodies["a1"] == 1)
        second = await w.process()
        await w.until(lambda: second.worker.id in str(w.there()))
        [lease] = [stored async for stored in w.store.list(names.worker(first.worker.id))]
        renewed = lease.updated
        first.kill()

        await w.until(lambda: bodies["a1"] == 2)
        assert w.store.now() - renewed <= TTL + MARGIN + 2
        assert await w.result("r") == ["a0", "a1", "a2"]
        assert bodies == {"a0": 1, "a1": 2, "a2": 1}
        claims = (await w.facts("r")).epochs
        assert [(c.epoch, c.why) for c in claims] == [(2, "takeover")]
        assert claims[0].seen["1"].highest == 1


async def test_a_zombie_that_wakes_after_the_takeover_changes_nothing() -> None:
    """Its lease is fenced and its deadline past, so it starts no body and writes no outcome."""
    async with world() as w:
        zombie = await w.process()
        await w.start("r", three, "a", 30.0)
        await w.until(lambda: bodies["a0"] == 1)
        id_before = zombie.worker.id
        zombie.pause()
        await w.process()
        await w.until(lambda: bodies["a0"] == 2)
        zombie.wake()

        assert await w.result("r") == ["a0", "a1", "a2"]
        assert bodies["a1"] == bodies["a2"] == 1
        assert zombie.worker.id != id_before
        steps = (await w.facts("r")).steps
        assert {s.epoch for s in steps} == {2}


async def test_a_live_holder_is_never_robbed() -> None:
    """A body of ten ttl runs once, with two other workers looking on."""
    async with world() as w:
        await w.process()
        await w.start("r", three, "long", 10 * TTL)
        await w.until(lambda: bodies["long0"] == 1)
        await w.process()
        await w.process()

        assert await w.result("r") == ["long0", "long1", "long2"]
        assert set(bodies.values()) == {1}


async def test_a_draining_worker_gives_back_runs_at_once_or_after_the_grace() -> None:
    """A body that ends within the grace is recorded; one that does not is run again elsewhere."""
    async with world() as w:
        first = await w.process(grace=8.0)
        await w.start("short", three, "short", 5.0)
        await w.start("long", three, "long", 100.0)
        await w.until(lambda: bodies["short0"] == bodies["long0"] == 1)
        began = anyio.current_time()
        first.worker.stop()
        await first.gone.wait()

        assert anyio.current_time() - began <= 8.0 + 0.1
        assert not await w.names(names.WORKERS)
        assert [s.path.split(".")[-1] for s in (await w.facts("short")).steps] == ["1"]
        assert not (await w.facts("long")).steps
        assert bodies["short1"] == 0
        await w.process()
        assert await w.result("short") == ["short0", "short1", "short2"]
        assert await w.result("long") == ["long0", "long1", "long2"]
        assert bodies["short0"] == 1
        assert {c.why for c in (await w.facts("short")).epochs} == {"drain"}


async def test_a_lost_lease_unwinds_every_run_and_the_worker_goes_on_under_a_new_id() -> None:
    """A fence ends all that runs under the lease; nothing is recorded for what was cut off."""
    async with world() as w:
        process = await w.process()
        await w.start("r", three, "a", 30.0)
        await w.until(lambda: bodies["a0"] == 1)
        id_before = process.worker.id
        [stored] = [s async for s in w.store.list(names.worker(id_before))]
        lease = msgspec.json.decode(stored.body or b"", type=Lease)
        dead = msgspec.structs.replace(lease, state="dead", nonce="fence")
        await w.store.replace(stored.name, stored.generation, records.encode(dead), nonce="fence")

        assert await w.result("r") == ["a0", "a1", "a2"]
        assert process.worker.id != id_before
        assert bodies["a0"] == 2


async def test_a_worker_whose_renewals_are_refused_for_good_stops() -> None:
    """A bucket that keeps its lease as it is: it stops with the reason and leaves one lease."""

    def keep(call: Call) -> Fault | None:
        return Fault("refused") if call.verb == "replace" and "workers/" in call.name else None

    async with world() as w:
        process = await w.process(faults=keep)
        await w.start("r", three, "a", 30.0)
        await w.until(process.gone.is_set)

        assert process.worker.refusal is not None
        assert bodies["a0"] == 1
        assert len(await w.names("workers/")) == 1
        await w.process()
        assert await w.result("r") == ["a0", "a1", "a2"]


async def test_a_worker_that_may_not_look_for_work_stops() -> None:
    """Refused for a whole ttl it stops with the reason; its run is given back as it stands."""
    refusing: list[str] = []

    def deny(call: Call) -> Fault | None:
        return Fault("refused") if call.verb in refusing else None

    async with world() as w:
        process = await w.process(faults=deny)
        await w.start("r", three, "a", 30.0)
        await w.until(lambda: bodies["a0"] == 1)
        refusing.append("list")
        await virtual_seconds(TTL)
        assert not process.gone.is_set()
        refusing.clear()
        await w.until(lambda: bodies["a1"] == 1)
        assert process.worker.refusal is None

        refusing.append("list")
        await w.until(process.gone.is_set)
        assert process.worker.refusal is not None
        assert await w.names("workers/") == []
        await w.process()
        assert await w.result("r") == ["a0", "a1", "a2"]


async def test_a_lock_file_proves_death_at_once(tmp_path: Path) -> None:
    """Where the dead holder's lock can be had, nobody waits for the ttl."""
    async with world() as w:
        first = await w.process(runtime_folder=tmp_path)
        await w.start("r", three, "a", 30.0)
        await w.until(lambda: bodies["a0"] == 1)
        dead = first.worker.id
        first.kill()
        await first.gone.wait()
        (tmp_path / f"{dead}.lock").write_text(dead)  # what kill -9 leaves behind, unlocked
        died = anyio.current_time()
        await w.process(runtime_folder=tmp_path)
        await w.until(lambda: bodies["a0"] == 2)

        assert anyio.current_time() - died < 3


async def test_a_run_that_kills_its_process_is_resumed_alone_and_then_needs_attention() -> None:
    """Only solitary deaths count, so an innocent run beside a poison run is never failed."""
    async with world() as w:
        await w.start("innocent", three, "i", 100.0)
        await w.start("poison", three, "p", 10_000.0)
        deaths = 0
        while not await w.names("attention/"):
            process = await w.process()
            before = bodies["p0"]
            while bodies["p0"] == before and not await w.names("attention/"):
                await virtual_seconds(1)
            if bodies["p0"] > before:
                deaths += 1
                process.kill()
            assert deaths < 30

        hint = await w.attention("poison")
        assert hint.reason == "crash-loop"
        alone = [c.epoch for c in (await w.facts("poison")).epochs if c.alone]
        assert len(alone) == 5
        assert not await w.names("attention/default/innocent")
        assert not (await w.facts("poison")).result


async def test_a_foreign_object_in_a_runs_folder_parks_that_run_alone() -> None:
    """The run needs attention and names the object; every other run goes on."""
    async with world() as w:
        start = await w.start("bad", quickly, 1)
        name = names.step("bad", start.instance, "quick.1")
        await w.store.create(name, b"\x80\x04not json", nonce="x")
        await w.start("good", quickly, 4)
        await w.process()

        hint = await w.attention("bad")
        assert (hint.reason, name in hint.message) == ("corrupt", True)
        assert await w.result("good") == 8
        await w.until(lambda: names.marker("default", "bad") not in w.there())


async def test_strangers_objects_in_shared_folders_stop_nobody() -> None:
    """Junk among markers, leases, hints and bells is passed over; every run goes on."""
    async with world() as w:
        junk = [
            names.marker("default", "stranger"),
            "live/default/no-marker",
            names.worker("stranger"),
            "attention/default/stranger",
            names.presence("stranger"),
        ]
        for name in junk:
            await w.store.create(
                name, b"\x80junk", nonce="x", meta={"workflow": "worker-test quick"}
            )
        await w.process()
        await w.start("r", quickly, 4)
        first = await w.process()
        await w.start("s", three, "s", 30.0)
        await w.until(lambda: bodies["s0"] == 1)
        first.kill()

        assert await w.result("r") == 8
        assert await w.result("s") == ["s0", "s1", "s2"]


async def test_a_lease_stays_small_however_much_its_worker_serves() -> None:
    """It is rewritten every few seconds and comes with every list, so it names no workflows."""
    async with world() as w:
        process = await w.process()
        await w.start("r", three, "a", 30.0)
        await w.until(lambda: bodies["a0"] == 1)

        [stored] = [s async for s in w.store.list(names.worker(process.worker.id))]
        assert len(stored.body or b"") < 500


async def test_a_flagged_run_is_woken_once_by_each_other_code_version() -> None:
    """After the object is repaired and new code is deployed it goes on by itself."""
    async with world() as w:
        start = await w.start("bad", quickly, 1)
        name = names.step("bad", start.instance, "quick.1")
        await w.store.create(name, b"junk", nonce="x")
        old = await w.process(version="v1")
        assert (await w.attention("bad")).tried == ["v1"]
        await virtual_seconds(300)
        assert [verb for verb, n in w.bucket.log if n == names.marker("default", "bad")].count(
            "replace"
        ) == 1  # taken once by v1, and never again
        [stored] = [s async for s in w.store.list(name)]
        await w.store.delete(name, stored.generation)
        old.worker.stop()
        await w.process(version="v2")

        assert await w.result("bad") == 2
        await w.until(lambda: "attention/default/bad" not in w.there())


async def test_an_input_that_no_longer_fits_parks_the_run() -> None:
    """The decode error is shown; nothing ran."""
    async with world() as w:
        start = await w.start("r", quickly, 1)
        token = w.system.token()
        changed = msgspec.structs.replace(
            start, nonce=token, input=msgspec.Raw(b'{"args":["one"],"kwargs":{}}')
        )
        [stored] = [s async for s in w.store.list(names.start("r"))]
        await w.store.replace(stored.name, stored.generation, records.encode(changed), nonce=token)
        await w.process()

        hint = await w.attention("r")
        assert hint.reason == "undecodable"
        assert not bodies
        assert not await w.names("live/")


async def test_a_run_of_an_unknown_workflow_is_left_to_others() -> None:
    """A worker never takes what it cannot run."""
    async with world() as w:
        await w.process(serves=lambda name: "quickly" not in name)
        await w.start("r", quickly, 3)
        await virtual_seconds(120)
        assert not (await w.facts("r")).epochs
        assert bodies == {}
        await w.process()

        assert await w.result("r") == 6


async def test_a_marker_in_another_queue_than_the_runs_own_is_sent_home() -> None:
    """Two starts of one id on two queues make one run, executed once."""
    async with world() as w:
        start = await w.start("r", quickly, 3)
        stray = msgspec.structs.replace(start, queue="other")
        await markers.create(w.store, markers.for_start("r", stray))
        await w.process(queues=("other",))
        await w.until(lambda: names.marker("other", "r") not in w.there())
        assert bodies == {}
        await w.process()

        assert await w.result("r") == 6
        assert bodies == {"quick 3": 1}


async def test_until_idle_returns_when_nothing_needs_a_worker() -> None:
    """`worker --until-idle` carries what there is, more than fits at once, and ends."""
    async with world() as w:
        for i in range(12):
            await w.start(f"r{i}", quickly, i)
        process = await w.process(until_idle=True, concurrency=3)
        await process.gone.wait()

        assert [await w.result(f"r{i}") for i in range(12)] == [2 * i for i in range(12)]
        assert not await w.names("live/")


async def test_a_damaged_marker_does_not_keep_a_worker_from_ending() -> None:
    """Nobody can take it; whoever works until idle carries the rest and returns."""
    async with world() as w:
        await w.start("bad", quickly, 1)
        await w.start("good", quickly, 2)
        name = names.marker("default", "bad")
        [stored] = [s async for s in w.store.list(name)]
        await w.store.replace(name, stored.generation, b"junk", nonce="x", meta=stored.meta)
        process = await w.process(until_idle=True)
        with anyio.fail_after(120):
            await process.gone.wait()

        assert await w.result("good") == 4


async def test_a_missing_start_is_created_from_the_marker() -> None:
    """A starter that died between its two creates has still started the run."""
    async with world() as w:
        start = await w.start("r", quickly, 5)
        [stored] = [s async for s in w.store.list(names.start("r"))]
        await w.store.delete(stored.name, stored.generation)
        await w.process()

        assert await w.result("r") == 10
        assert (await w.facts("r")).start == start


async def test_a_marker_that_lands_again_late_finds_the_run_over() -> None:
    """A repeated create of the marker runs nothing again and is let go."""
    async with world() as w:
        await w.process()
        start = await w.start("r", quickly, 5)
        assert await w.result("r") == 10
        await w.until(lambda: names.marker("default", "r") not in w.there())
        await markers.create(w.store, markers.for_start("r", start))
        await markers.ring(w.store, names.queue_bell("default"), "again")
        await w.until(lambda: names.marker("default", "r") not in w.there())

        assert bodies["quick 5"] == 1


async def test_a_marker_that_names_a_healthy_worker_which_does_not_run_it_is_taken_afresh() -> None:
    """An ambiguous take that landed late leaves no run stuck with a live holder."""
    async with world() as w:
        process = await w.process()
        await w.start("busy", three, "b", 100.0)
        await w.until(lambda: bodies["b0"] == 1)
        start = await w.start("r", quickly, 5)
        name = names.marker("default", "r")
        [stored] = [s async for s in w.store.list(name)]
        marker = msgspec.json.decode(stored.body or b"", type=Marker)
        mine = msgspec.structs.replace(marker, holder=process.worker.id, owner="lost", nonce="l")
        await w.store.replace(
            name,
            stored.generation,
            records.encode(mine),
            nonce="l",
            meta={"holder": mine.holder, "owner": "lost", "workflow": start.workflow},
        )

        assert await w.result("r") == 10


async def test_a_worker_without_runs_gives_up_its_lease() -> None:
    """Idle costs no renewals."""
    async with world() as w:
        process = await w.process()
        await w.start("r", quickly, 5)
        await w.result("r")
        await w.until(lambda: not any(n.startswith("workers/") for n in w.there()))
        before = len(w.bucket.log)
        await virtual_seconds(50)

        written = [n for verb, n in w.bucket.log[before:] if verb in {"create", "replace"}]
        assert not [n for n in written if n.startswith("workers/")]
        await w.start("r2", quickly, 6)
        assert await w.result("r2") == 12
        assert process.worker.id


async def test_what_killed_workers_leave_behind_is_tidied_up() -> None:
    """Presence, bells and dead leases of the killed go; those of the living stay."""
    async with world() as w:
        dead = await w.process()
        await w.start("r", three, "a", 30.0)
        await w.until(lambda: bodies["a0"] == 1)
        gone = dead.worker.id
        await markers.ring(w.store, names.worker_bell(gone), "ring")
        dead.kill()
        alive = await w.process()
        assert await w.result("r") == ["a0", "a1", "a2"]
        assert gone in str(w.there())
        await virtual_seconds(1500)

        assert gone not in str(w.there())
        assert names.presence(alive.worker.id) in w.there()


async def test_an_unanswered_store_delays_but_loses_nothing() -> None:
    """Half of all calls fail before or after they are applied; each run still ends right."""
    kinds = ["unsent", "reply_lost", "twice", "busy"]

    def faults(call: Call) -> Fault | None:
        chance = hash_of(f"{call.verb} {call.name} {call.nth}")
        return Fault(kinds[chance % 4]) if chance % 2 else None  # type: ignore[arg-type]  # a parameter is a plain str

    async with world() as w:
        await w.process(faults=faults)
        await w.process(faults=faults)
        for i in range(10):
            await w.start(f"r{i}", quickly, i)

        assert [await w.result(f"r{i}") for i in range(10)] == [2 * i for i in range(10)]
        assert all(count == 1 for count in bodies.values())


def hash_of(text: str) -> int:
    import zlib

    return zlib.crc32(text.encode()) >> 3


async def test_a_run_that_parks_in_blocks_leaves_its_worker_alone() -> None:
    """What keeps the time of the blocks is unwound with the run, and takes nothing else along."""
    async with world() as w:
        process = await w.process()
        await w.start("r", blocks)
        await w.until(lambda: bool(w.hints("timers/")) and not w.hints("live/"))

        assert await w.result("r") is None
        assert not process.gone.is_set()


async def test_sweep_frees_the_runs_of_the_dead_and_executes_nothing() -> None:
    """One pass by hand makes them unowned, with the reason kept for the next epoch."""
    async with world() as w:
        first = await w.process()
        await w.start("r", three, "a", 30.0)
        await w.until(lambda: bodies["a0"] == 1)
        first.kill()
        sweeper = Sweeper(store=w.store, runtime_folder=None)
        assert await sweep(sweeper, "default") == []
        await virtual_seconds(TTL + MARGIN + 1)

        assert await sweep(sweeper, "default") == ["r"]
        found = await markers.read(w.store, "default", "r")
        assert found is not None
        assert (found[1].holder, found[1].why) == ("", "takeover")
        assert bodies == {"a0": 1}


async def test_sweep_takes_nothing_from_a_worker_that_was_idle_meanwhile() -> None:
    """Who had no lease between two pages of the list is alive, and keeps what it took since."""
    pages = count(1)

    def slow(call: Call) -> Fault | None:
        if call.verb == "list":
            return Fault("delayed", seconds=200.0) if next(pages) == 2 else None
        return Fault("delayed", seconds=60.0) if call.name.startswith("workers/") else None

    async with world() as w:
        worker = (await w.process(serves=lambda name: name == three.definition.name)).worker
        before, after, last = sorted("abc", key=lambda run: names.marker("default", run))
        await w.start(last, quickly, 1)  # nobody serves it, so there is a page behind
        await w.start(before, three, before, 3.0)
        await w.until(lambda: bodies[f"{before}0"] == 1)
        backend = MemoryBackend(chosen(w.bucket), faults=slow, page_size=1)
        sweeper = Sweeper(store=Store(backend, system=w.system), runtime_folder=None)
        freed = ["not known"]

        async def sweep_slowly() -> None:
            freed[:] = await sweep(sweeper, "default")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sweep_slowly)
            await virtual_seconds(100)
            assert w.hints("workers/") == []
            await w.start(after, three, after, 300.0)

        assert freed == []
        found = await markers.read(w.store, "default", after)
        assert found is not None
        assert found[1].holder == worker.id
        assert bodies[f"{after}0"] == 1


async def test_an_idle_worker_that_was_fenced_goes_on_under_another_id() -> None:
    """It could not give its lease back; by the time it has work again the fence is tidied away."""

    def cannot_leave(call: Call) -> Fault | None:
        leaves = call.verb == "delete" and call.name.startswith("workers/")
        return Fault("unsent") if leaves else None

    async with world() as w:
        idle = await w.process(
            serves=lambda name: name == quickly.definition.name, faults=cannot_leave
        )
        fenced = idle.worker.id
        await w.start("first", quickly, 1)
        await w.result("first")
        await w.process(serves=lambda name: name == three.definition.name)
        await virtual_seconds(20 * TTL)
        assert w.hints("workers/") == []
        await w.start("second", quickly, 2)

        assert await w.result("second") == 4
        assert idle.worker.id != fenced
        assert w.hints("workers/") == [names.worker(idle.worker.id)]


async def test_a_full_store_stops_the_run_with_nothing_half_recorded() -> None:
    """A refused write is said once, no outcome is seen, and the run is given back."""

    def full(call: Call) -> Fault | None:
        return Fault("refused") if "/steps/" in call.name and os_full else None

    os_full = True
    async with world() as w:
        first = await w.process(faults=full)
        await w.start("r", quickly, 5)
        await w.until(lambda: bodies["quick 5"] >= 1)
        await w.until(lambda: not first.worker.runners)
        facts = await w.facts("r")
        assert not facts.steps
        assert facts.result is None
        os_full = False

        assert await w.result("r") == 10


@pytest.mark.parametrize("verb", ["create", "replace"])
async def test_what_the_store_would_not_have_is_tried_again_soon(verb: str) -> None:
    """A run that could be neither carried on nor given back; and not more often, if that lasts."""

    def refuse(call: Call) -> Fault | None:
        mine = "/steps/" in call.name or (verb == "replace" and call.name.startswith("live/"))
        return Fault("refused") if call.verb in ("create", verb) and mine and refuses else None

    def lists() -> int:
        return w.bucket.log.count(("list", "live/default/"))

    async with world() as w:
        refuses = False
        await w.process(faults=refuse)
        await w.start("earlier", quickly, 1)
        assert await w.result("earlier") == 2
        await w.start("r", three, "a", 3.0)
        await w.until(lambda: bodies["a0"] >= 1)
        refuses = True
        await virtual_seconds(20)
        refuses = False
        since = anyio.current_time()
        assert await w.result("r") == ["a0", "a1", "a2"]
        assert anyio.current_time() - since < REMOTE_PACE.busy * 1.2 + 3 * 3.0 + 2

        refuses = True
        await w.start("s", quickly, 2)
        before = lists()
        await virtual_seconds(HOUR / 10)
        assert lists() - before < HOUR / 10 / REMOTE_PACE.busy * 1.25
        refuses = False
        assert await w.result("s") == 4


async def test_a_worker_that_starts_in_an_outage_works_after_it() -> None:
    """It asks again until the store answers, whatever it asks first."""
    refused = 0

    def outage(call: Call) -> Fault | None:
        nonlocal refused
        refused += 1
        return Fault("busy") if refused <= 20 else None

    async with world() as w:
        await w.start("r", quickly, 4)
        process = await w.process(faults=outage)

        assert await w.result("r") == 8
        assert not process.gone.is_set()
