"""Retry, restart, fork, skip, release: what a person does to a run that went wrong."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Awaitable, Callable

import anyio
import msgspec
import pytest

from durable import gather, now, patched, random, step, uuid, wait_event, workflow
from durable.client import Client, archives, purging, reading
from durable.client.handles import Handle
from durable.errors import Conflict, LeaseTaken, NeedsAttention, NotFound, RunFailed, UsageError
from durable.protocol import names, records
from durable.protocol.records import Epoch, Lease
from durable.runtime.worker import Worker
from durable.store import Store
from durable.store.memory import Bucket, MemoryBackend
from durable.system import boot_id
from durable.testing import environment
from tests.client.dying import MODES, Mode, dies
from tests.client.shop import checkout
from tests.virtual_time import virtual_seconds

pytestmark = pytest.mark.anyio

Verb = Callable[[Client], Awaitable[None]]

ran: list[str] = []
broken: set[str] = set()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()
    broken.clear()


@step(name="toil", attempts=1)
async def work(what: str) -> str:
    ran.append(what)
    if what in broken:
        raise ValueError(f"{what} is broken")
    return f"{what} done"


@workflow
async def chain(last: str = "c") -> list[str]:
    return [await work("a"), await work("b"), await work(last)]


@workflow
async def fan() -> tuple[str, ...]:
    return await gather(work("left"), work("right"))


async def _fail(client: Client, run: str = "x") -> None:
    with pytest.raises(RunFailed):
        await client.run(chain.options(id=run))


async def _go_on(client: Client, run: str = "x") -> list[str]:
    return await client.run(chain.options(id=run))


# -- retry ----------------------------------------------------------------------------------------


async def test_a_retried_run_goes_on_from_what_failed(client: Client) -> None:
    """Recorded values are kept; the failed call is made again; the outcome is a new one."""
    broken.add("b")
    await _fail(client)
    broken.clear()
    old = await client.get("x")

    handle = await client.retry("x", reason="mended")

    assert handle.instance != old.instance
    assert await _go_on(client) == ["a done", "b done", "c done"]
    assert ran == ["a", "b", "b", "c"]
    assert await handle.result() == ["a done", "b done", "c done"]
    with pytest.raises(RunFailed):
        await old.result()  # a handle stays with its instance


@workflow
async def chancy() -> list[str]:
    begun = [str(uuid()), str(random()), now().isoformat()]
    await work("".join(begun))
    if patched("new"):
        begun.append("new")
    return [*begun, await work("b")]


async def test_a_retried_run_keeps_its_time_and_its_chance(client: Client) -> None:
    """What the kept records were made with is the same in the new instance: nothing drifts."""
    broken.add("b")
    with pytest.raises(RunFailed):
        await client.run(chancy.options(id="x"))
    broken.clear()

    await client.retry("x")

    *begun, said, last = await client.run(chancy.options(id="x"))
    assert "".join(begun) == ran[0]
    assert (said, last) == ("new", "b done")
    assert ran[1:] == ["b", "b"]
    await client.restart("x")
    assert "".join((await client.run(chancy.options(id="x")))[:3]) != ran[0]


def test_a_run_that_ran_out_of_time_is_given_it_anew() -> None:
    """A retry has as long again as its workflow says."""

    @workflow(name="out of time", timeout="1h")
    async def slow() -> str:
        if not broken:
            return await work("quick")
        await virtual_seconds(7200)
        return ""

    broken.add("time")
    with environment() as env:
        with pytest.raises(RunFailed, match="RunTimeout"):
            env.client.run(slow.options(id="x"))
        broken.clear()

        env.client.retry("x")

        assert env.client.run(slow.options(id="x")) == "quick done"


async def test_a_retry_fails_again_if_nothing_was_mended(client: Client) -> None:
    """The failed call runs once more and its new error is the outcome."""
    broken.add("b")
    await _fail(client)

    await client.retry("x")

    await _fail(client)
    assert ran == ["a", "b", "b"]


async def test_successes_beside_a_failure_are_kept(client: Client) -> None:
    """Of branches side by side only those without a value run again."""
    broken.add("left")
    with pytest.raises(RunFailed):
        await client.run(fan.options(id="x"))
    paths = [s.path for s in await (await client.get("x")).steps() if s.outcome == "value"]
    broken.clear()
    ran.clear()

    await client.retry("x")

    assert await client.run(fan.options(id="x")) == ("left done", "right done")
    assert ran == (["left"] if paths else ["left", "right"])


async def test_epochs_rise_over_instances_and_say_who_made_them(
    client: Client, store: Store
) -> None:
    """An outside system that rejects lower epochs accepts the retried run."""
    broken.add("b")
    await _fail(client)
    for _ in range(2):
        await client.retry("x", reason="again", by="ann")
        await _fail(client)

    facts = await reading.load(store, "x")

    assert [e.epoch for e in sorted(facts.epochs, key=lambda e: e.epoch)] == [2, 3, 4, 5]
    assert [e.label for e in facts.epochs if not e.worker] == ["retry by ann: again"] * 2


@pytest.mark.parametrize("verb", ["retry", "restart"])
async def test_a_run_whose_marker_is_damaged_needs_attention(client: Client, verb: str) -> None:
    """No worker takes it, lists and status say so; retried or restarted it gets a fresh marker."""
    handle = await client.start(chain.options(id="x"))
    name = names.marker("default", "x")
    there = await client.store.read(name)
    assert there is not None
    await client.store.replace(name, there.generation, b"\x80", nonce="x", meta=there.meta)

    status = await handle.status()
    [listed] = [run async for run in client.list()]
    again = await (client.retry("x") if verb == "retry" else client.restart("x"))

    assert (status, listed.status) == ("needs-attention", "needs-attention")
    assert name in status.reason
    assert await again.status() == "waiting"
    assert await _go_on(client) == ["a done", "b done", "c done"]


async def test_only_failures_are_retried(client: Client) -> None:
    """A completed run, a run that goes on and an unknown one are refused, nothing written."""
    await client.run(chain.options(id="done"))
    await client.start(chain.options(id="open"))

    with pytest.raises(Conflict, match="has completed"):
        await client.retry("done")
    with pytest.raises(Conflict, match="is not over: waiting"):
        await client.retry("open")
    with pytest.raises(NotFound):
        await client.retry("nobody")


async def test_those_who_retry_at_once_make_one_new_instance(client: Client) -> None:
    """The others are told that somebody was quicker, or are given what that one made."""
    broken.add("b")
    await _fail(client)
    won: list[Handle[object]] = []
    lost: list[Conflict] = []

    async def retry() -> None:
        try:
            won.append(await client.retry("x"))
        except Conflict as e:
            lost.append(e)

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(retry)

    assert len(won) + len(lost) == 5
    assert {handle.instance for handle in won} == {(await client.get("x")).instance}


# -- restart --------------------------------------------------------------------------------------


async def test_a_restarted_run_begins_anew(client: Client) -> None:
    """Nothing recorded is kept; the old outcome is what the old handle still shows."""
    assert await _go_on(client) == ["a done", "b done", "c done"]

    await client.restart("x")

    assert str(await (await client.get("x")).status()) == "waiting"
    assert [r.status async for r in client.list() if r.id == "x"] == ["waiting"]
    await _go_on(client)
    assert ran == ["a", "b", "c"] * 2


@pytest.mark.parametrize("damaged", ["steps/strange.1", "epochs/7", "result"])
async def test_a_damaged_run_is_restarted(client: Client, store: Store, damaged: str) -> None:
    """Nothing recorded is kept, so nobody has to remove the object from the store before."""
    broken.add("b")
    await _fail(client)
    broken.clear()
    name = names.instance_folder("x", (await client.get("x")).instance) + damaged
    there = await store.read(name)
    if there is None:
        await store.create(name, b"no record", nonce="n")
    else:
        await store.replace(name, there.generation, b"no record", nonce="n")
    with pytest.raises(NeedsAttention):
        await client.retry("x")

    await client.restart("x")

    assert await _go_on(client) == ["a done", "b done", "c done"]
    assert ran == ["a", "b", "a", "b", "c"]


# -- fork -----------------------------------------------------------------------------------------


async def test_a_fork_shares_the_past_up_to_a_call(client: Client) -> None:
    """The new run executes from that call on; the old one stays as it is."""
    await _go_on(client)
    ran.clear()

    handle = await client.fork("x", "toil.2", new_id="y")

    assert await _go_on(client, "y") == ["a done", "b done", "c done"]
    assert ran == ["b", "c"]
    assert await handle.result() == await (await client.get("x")).result()
    assert [r.tags async for r in client.list() if r.id == "y"] == [{"forked-from": "x"}]


@workflow
async def lucky() -> list[str]:
    seen = []
    for number in range(3):
        seen += [str(uuid()), str(random())]
        await work(f"{number} {seen[-1]}")
    return [*seen, str(uuid())]


async def test_a_fork_has_the_chance_of_what_it_shares_and_then_its_own(client: Client) -> None:
    """Recorded arguments fit, and no new id is one that the other run has; a fork's fork too."""
    old = await client.run(lucky.options(id="x"))
    await client.fork("x", "toil.3", new_id="y")
    young = await client.run(lucky.options(id="y"))
    await client.fork("y", "toil.2", new_id="z")
    youngest = await client.run(lucky.options(id="z"))
    await client.fork("y", "toil.3", new_id="yy")
    last = await client.run(lucky.options(id="yy"))

    # The third pair is drawn once all that is shared, `toil.1` and `toil.2`, is handed over.
    assert young[:4] == old[:4]
    assert youngest[:2] == old[:2]
    assert not {*young[4:], *youngest[2:]} & {*old[2:]}
    assert not {*young[4:]} & {*youngest[4:]}
    assert last[:4] == old[:4]
    assert not {*last[4:]} & {*young[4:], *old[4:]}


async def test_a_fork_may_have_another_input(client: Client) -> None:
    """The recorded past stays, what follows sees the new input."""
    await _go_on(client)
    ran.clear()

    await client.fork("x", "toil.3", new_id="y", input=_raw({"args": ["d"], "kwargs": {}}))

    assert await client.run(chain.options(id="y"), "d") == ["a done", "b done", "d done"]
    assert ran == ["d"]


async def test_a_fork_needs_a_call_and_a_free_id(client: Client) -> None:
    """An unknown call and a taken id are refused."""
    await _go_on(client)

    with pytest.raises(NotFound, match=r"no call 'toil\.9'"):
        await client.fork("x", "toil.9")
    with pytest.raises(Conflict, match="taken"):
        await client.fork("x", "toil.2", new_id="x")


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode())


# -- skip -----------------------------------------------------------------------------------------


async def test_a_skipped_call_has_the_given_value(client: Client) -> None:
    """The failed call is not made again: the workflow goes on with what a person said."""
    broken.add("b")
    await _fail(client)

    await client.skip("x", "toil.2", "by hand", reason="the printer burnt", by="ann")

    assert await _go_on(client) == ["a done", "by hand", "c done"]
    assert ran == ["a", "b", "c"]
    notes = [s.note for s in await (await client.get("x")).steps()]
    assert notes == ["", "skip by ann: the printer burnt", ""]


async def test_what_has_a_value_is_not_skipped(client: Client) -> None:
    """What is recorded never changes."""
    broken.add("b")
    await _fail(client)

    with pytest.raises(Conflict, match="has an outcome already: value"):
        await client.skip("x", "toil.1", "other")


@pytest.mark.parametrize("path", ["debounce", "lock", "slot", "", "/x"])
async def test_what_is_no_call_is_not_skipped(client: Client, path: str) -> None:
    """`durable show` lists what a run waits for before it begins, but its code asks for none."""
    await client.start(chain.options(id="x"))

    with pytest.raises(UsageError, match="no "):
        await client.skip("x", path, 1)

    assert await (await client.get("x")).steps() == []


# -- release --------------------------------------------------------------------------------------


async def test_a_run_of_a_dead_worker_is_released(client: Client, store: Store) -> None:
    """Without force: its holder's lease is gone."""
    await client.start(chain.options(id="x"))
    await _hold(store, "x", "gone")

    assert await client.release("x") is True
    assert await client.release("x") is False
    assert await _go_on(client) == ["a done", "b done", "c done"]


async def test_a_live_holder_is_fenced_only_by_force(client: Client, store: Store) -> None:
    """Refused while the holder lives; forced, the next owner has a higher epoch."""
    await client.start(chain.options(id="x"))
    lease = Lease("w", 20, 2, "n", boot=boot_id())
    await store.create(names.worker("w"), records.encode(lease), nonce="n")
    await _hold(store, "x", "w")

    with pytest.raises(LeaseTaken, match="which is alive"):
        await client.release("x")
    assert await client.release("x", force=True) is True
    await _go_on(client)
    facts = await reading.load(store, "x")
    assert [e.epoch for e in facts.epochs] == [2]


async def _hold(store: Store, run: str, worker: str) -> None:
    """As if that worker had taken the run."""
    stored = await store.read(names.marker("default", run))
    assert stored is not None
    record = json.loads(stored.body or b"")
    record |= {"holder": worker, "owner": "token"}
    meta = {**stored.meta, "holder": worker, "owner": "token"}
    del meta["nonce"]
    await store.replace(
        stored.name, stored.generation, json.dumps(record).encode(), nonce="m", meta=meta
    )


# -- dying in the middle --------------------------------------------------------------------------


async def _retry(client: Client) -> None:
    await client.retry("x")


async def _restart(client: Client) -> None:
    await client.restart("x")


async def _skip(client: Client) -> None:
    await client.skip("x", "toil.2", "by hand")


async def _fork(client: Client) -> None:
    await client.fork("x", "toil.2", new_id="y")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("verb", "run", "bodies", "second"),
    [
        (_retry, "x", ["b", "c"], "b done"),
        (_restart, "x", ["a", "b", "c"], "b done"),
        (_skip, "x", ["c"], "by hand"),
        (_fork, "y", ["b", "c"], "b done"),
    ],
)
async def test_a_death_at_any_call_leaves_the_old_run_or_the_new(
    verb: Verb, run: str, bodies: list[str], second: str, mode: Mode
) -> None:
    """Asked again it takes effect once, refused by nobody; no call that is kept runs again."""
    deaths, died = 0, True
    while died:
        bucket = Bucket()
        async with Client(Store(MemoryBackend(bucket))) as client:
            broken.add("b")
            await _fail(client)
            broken.clear()
            ran.clear()
            died = await dies(bucket, mode, deaths, lambda store: verb(Client(store)))
            await verb(client)
            instance = (await client.get(run)).instance
            await verb(client)  # also if it has taken effect already
            assert (await client.get(run)).instance == instance
            assert await _go_on(client, run) == ["a done", second, "c done"]
            assert ran == bodies
        deaths += died
    assert deaths > 5


@pytest.mark.parametrize("purged", [False, True])
@pytest.mark.parametrize("mode", MODES)
async def test_a_death_while_importing_is_made_good_by_importing_again(
    mode: Mode, purged: bool
) -> None:
    """Also of a run that the store had, and that was purged; it is as it was exported."""
    async with Client(Store(MemoryBackend())) as client:
        broken.add("b")
        await _fail(client)
        archive = archives.read(await archives.export(client.store, "x"))
    broken.clear()
    deaths, died = 0, True
    while died:
        bucket = Bucket()
        async with Client(Store(MemoryBackend(bucket))) as client:
            if purged:
                await _go_on(client)
                await purging.purge(client.store, "x")
            died = await dies(bucket, mode, deaths, lambda s: archives.write(s, archive))
            with contextlib.suppress(Conflict):  # nothing but the answer was lost
                await archives.write(client.store, archive)
            assert [(r.id, r.status) async for r in client.list()] == [("x", "failed")]
            again = archives.read(await archives.export(client.store, "x"))
            assert (again.start, again.objects) == (archive.start, archive.objects)
        deaths += died
    assert deaths > 5


# -- needing attention ----------------------------------------------------------------------------


async def test_a_run_that_needs_attention_goes_on_when_retried(
    client: Client, store: Store, bucket: Bucket
) -> None:
    """The same instance is woken; a worker takes it again."""
    handle = await client.start(checkout.options(id="x"), "A-1")
    stranger = names.step("x", handle.instance, "strange.1")
    written = await store.create(stranger, b"not a record", nonce="n")
    async with anyio.create_task_group() as tasks:
        worker = Worker(store, {checkout.name: checkout.definition})
        await tasks.start(worker.run)
        while str(await handle.status()) != "needs-attention":
            await anyio.lowlevel.checkpoint()
        await store.delete(stranger, written.generation)

        again = await client.retry("x")

        assert again.instance == handle.instance
        assert await again.result(timeout=10) == ("receipt A-1", 3)
        worker.stop()
    assert not [name for name in bucket.names.since("attention/") if name.startswith("attention/")]


@workflow
async def expects() -> str:
    await wait_event("go")
    return await work("a")


async def test_what_waited_in_the_old_instance_waits_no_more(
    store: Store, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A parked run that came to need attention, and was restarted: lists show its new end."""
    monkeypatch.setenv("DURABLE_ALWAYS_PARK", "1")
    async with Client(store) as client:

        async def carry() -> None:
            await Worker(store, {expects.name: expects.definition}).run(until_idle=True)

        old = await client.start(expects.options(id="x"))
        await carry()
        await store.create(names.step("x", old.instance, "strange.1"), b"no record", nonce="n")
        await old.send("go")
        await carry()
        assert await old.status() == "needs-attention"
        assert [name for name in bucket.names.since("timers/") if name.startswith("timers/")]

        new = await client.restart("x")
        await new.send("go")
        await carry()

        assert [(run.id, run.status) async for run in client.list()] == [("x", "completed")]
        assert not [name for name in bucket.names.since("timers/") if name.startswith("timers/")]


def test_the_claim_that_closes_a_copy_is_an_epoch() -> None:
    """It is read back like every other."""
    claim = Epoch(3, "", "retry by ann", "wake", "n", 1.0)
    assert msgspec.json.decode(records.encode(claim), type=Epoch) == claim
