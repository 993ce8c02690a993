"""Starts that are held back until they have been quiet, on a virtual clock."""

from __future__ import annotations

from collections import Counter
from typing import Any

import anyio
import pytest

from durable import Queue
from durable.client import Client
from durable.client.handles import Handle
from durable.decorators import step, workflow
from durable.errors import Conflict, RunCancelled, UsageError
from durable.protocol import names
from durable.runtime import debouncing, timers
from durable.runtime.scopes import current
from durable.store import Store, Stored
from durable.store.memory import MemoryBackend, Verb
from durable.testing.virtual import virtual_system
from tests.client.dying import MODES, Mode, dies
from tests.runtime.world import DiesAt, World, world
from tests.stores import chosen
from tests.virtual_time import virtual_seconds

pytestmark = [pytest.mark.anyio, pytest.mark.requires("trio")]

ran: list[tuple[str, str, float]] = []  # run, text, when


@pytest.fixture
def anyio_backend() -> Any:
    from trio.testing import MockClock

    ran.clear()
    return "trio", {"clock": MockClock(autojump_threshold=0)}


@step(name="debounce-test note")
async def note(text: str) -> str:
    ran.append((current().run_id, text, anyio.current_time()))
    return text


async def fn(text: str) -> str:
    return await note(text)


QUIET = Queue("default", debounce="10s", debounce_max="35s")
plain = workflow(name="debounce-test plain", queue=QUIET)(fn)
limited = workflow(name="debounce-test limited", queue=Queue("few", concurrency=1, debounce="10s"))(
    fn
)
single = workflow(
    name="debounce-test single", queue=QUIET, singleton="debounce-test", on_conflict="raise"
)(fn)


@step(name="debounce-test last")
async def last(seconds: float) -> None:
    ran.append((current().run_id, "lasts", anyio.current_time()))
    await virtual_seconds(seconds)


@workflow(name="debounce-test lasting", queue=QUIET)
async def lasting() -> None:
    await last(60.0)


@workflow(name="debounce-test parent")
async def parent(texts: list[str]) -> list[str]:
    started = [await plain.options(debounce_key="k").start(text) for text in texts]
    return [handle.id for handle in started]


@workflow(name="debounce-test impatient parent")
async def impatient(text: str) -> str:
    handle = await plain.options(debounce_key="k").start(text)
    return await handle.result()


class Halting(MemoryBackend):
    """A store of a process that stands still before its n-th call."""

    def __init__(self, bucket: Any, at: int, stopped: anyio.Event, go_on: anyio.Event) -> None:
        super().__init__(bucket)
        self.stopped = stopped
        self._left, self._go_on = at, go_on

    async def _begin(self, verb: Verb, name: str) -> Any:
        self._left -= 1
        if not self._left:
            self.stopped.set()
            await self._go_on.wait()
        return await super()._begin(verb, name)


async def start(w: World, text: str, key: str = "k", flow: Any = plain) -> Handle[str]:
    return await Client(w.store).start(flow.options(debounce_key=key), text)


async def due_too_early(w: World) -> tuple[str, Stored]:
    """A parked run whose hint is due, and which a second start holds back for 4 s more."""
    process = await w.process()
    handle = await start(w, "a")
    await w.until(lambda: bool(w.hints("timers/")) and not w.hints("live/"))
    await virtual_seconds(5)
    await start(w, "b")
    process.kill()
    await virtual_seconds(6)
    (hint,) = [stored async for stored in w.store.list(names.TIMERS)]
    return handle.id, hint


async def move(
    store: Store, hint: Stored, ended: list[timers.Promoted], stopped: anyio.Event
) -> None:
    ended.append(await timers.promote(store, hint))
    stopped.set()


async def left(w: World) -> list[str]:
    return [n for n in w.there() if n.startswith(("live/", "timers/", "queues/default/debounce"))]


async def test_the_last_start_counts_under_one_id_too() -> None:
    """An id that every start gives is no reason to drop what the later ones ask for."""
    async with world() as w:
        await w.process()
        handles = [await start(w, text, flow=plain.options(id="page")) for text in "abc"]

        assert {handle.id for handle in handles} == {"page"}
        assert await handles[0].result() == "c"
        assert [text for _, text, _ in ran] == ["c"]
        again = await start(w, "c", flow=plain.options(id="page"))
        assert await again.result() == "c"
        with pytest.raises(Conflict, match="another input"):
            await start(w, "d", flow=plain.options(id="page"))


async def test_the_last_of_several_starts_counts() -> None:
    """Ten seconds after it, once; all of them have the handle of that run; nothing is left."""
    async with world() as w:
        await w.process()
        handles = []
        for text in ("a", "b", "c"):
            handles.append(await start(w, text))
            await virtual_seconds(6)
        last = anyio.current_time() - 6
        other = await start(w, "x", key="other")
        assert len({(h.id, h.instance) for h in handles}) == 1
        assert await w.result(handles[0].id) == "c"
        assert await w.result(other.id) == "x"
        await w.until(lambda: not w.hints("live/") and not w.hints("timers/"))

        texts = [text for _, text, _ in ran]
        assert texts == ["c", "x"]
        assert last + 10 <= ran[0][2] <= last + 12
        assert await left(w) == []


async def test_a_busy_key_begins_after_the_longest_time() -> None:
    """However many starts come; those that come later begin the next run."""
    async with world() as w:
        await w.process()
        began = anyio.current_time()
        handles = []
        for i in range(12):
            handles.append(await start(w, str(i)))
            await virtual_seconds(5)
        ids = list(dict.fromkeys(handle.id for handle in handles))
        for run in ids:
            await w.result(run)

        assert len(ids) == 2
        assert [run for run, _, _ in ran] == ids
        assert began + 35 <= ran[0][2] <= began + 37
        counted = [i for i, handle in enumerate(handles) if handle.id == ids[0]]
        assert [text for _, text, _ in ran] == [str(counted[-1]), "11"]


async def test_without_a_worker_it_collects() -> None:
    """Nobody has begun it, so a late start is not too late; a worker begins it at once."""
    async with world() as w:
        await start(w, "a")
        await virtual_seconds(60)
        handle = await start(w, "b")
        status = await handle.status()
        assert (status, status.reason) == ("waiting", "no live worker")
        await w.process()
        late = anyio.current_time() + 2
        assert await w.result(handle.id) == "b"
        assert [when < late for _, _, when in ran] == [True]


async def test_a_start_under_the_id_of_one_that_is_over_wakes_nobody() -> None:
    """Also if that has never been parked, which is what a start looks for."""
    async with world() as w:
        await start(w, "a", flow=plain.options(id="page"))
        await virtual_seconds(60)
        await w.process()
        assert await w.result("page") == "a"
        await w.until(lambda: not w.hints("live/"))
        w.bucket.log.clear()
        await start(w, "a", flow=plain.options(id="page"))
        with pytest.raises(Conflict):
            await start(w, "b", flow=plain.options(id="page"))

        assert not [name for name in w.writes() if name.startswith(("live/", "bells/"))]


async def test_held_back_it_is_parked() -> None:
    """No worker holds it, and everybody is told what it waits for."""
    async with world() as w:
        process = await w.process()
        handle = await start(w, "a")
        await w.until(lambda: bool(w.hints("timers/")) and not w.hints("live/"))
        assert process.worker.runners == {}
        status = await handle.status()
        assert status == "parked"
        assert "for further starts with debounce key 'k', until" in status.reason
        assert [s.status async for s in Client(w.store).list()] == ["parked"]
        assert await w.result(handle.id) == "a"


async def test_its_timeout_counts_from_the_end_of_the_quiet_time() -> None:
    """One of three seconds is no matter while it is held back, and ends a run that takes longer."""
    async with world() as w:
        await w.process()
        brief = await start(w, "a", flow=plain.options(timeout="3s"))
        again = await start(w, "b", flow=plain.options(timeout="3s"))
        lasts = await Client(w.store).start(lasting.options(debounce_key="k", timeout="3s"))
        assert again.id == brief.id
        assert await w.result(brief.id) == "b"
        assert "not over at the deadline" in await w.result(lasts.id)
        found = await w.facts(lasts.id)
        assert found.result is not None
        assert 13 <= found.result.time - found.start.created < 16


async def test_what_it_waited_for_is_shown_until_it_begins() -> None:
    """Among its calls as long as it is held back, and no more once its code goes on."""
    async with world() as w:
        await w.process()
        handle = await Client(w.store).start(lasting.options(debounce_key="k"))
        await w.until(lambda: bool(w.hints("timers/")) and not w.hints("live/"))
        before = [(call.path, call.outcome) for call in await handle.steps()]
        await w.until(lambda: bool(ran))
        during = [call.path for call in await handle.steps()]

        assert before == [("debounce", "waiting")]
        assert during == []


async def test_a_limited_queue_gives_it_a_slot_after_the_quiet_time() -> None:
    """While it is held back it takes no slot from others."""
    async with world() as w:
        await w.process(queues=("few",))
        held = await start(w, "held", flow=limited)
        await w.until(lambda: bool(w.hints("timers/")))
        await w.start("now", limited, "now")
        assert await w.result("now") == "now"
        assert [text for _, text, _ in ran] == ["now"]
        assert await w.result(held.id) == "held"


async def test_a_singleton_is_asked_for_when_it_begins() -> None:
    """Not at the start, when another run of it goes on that will be over by then."""
    async with world() as w:
        await w.start("first", single, "first")
        handle = await start(w, "second", flow=single)
        await w.process()
        assert await w.result("first") == "first"
        assert await w.result(handle.id) == "second"


async def test_a_cancelled_one_does_not_take_later_starts_with_it() -> None:
    """It ends without its code; the next start opens a run of its own."""
    async with world() as w:
        await w.process()
        first = await start(w, "a")
        await w.until(lambda: bool(w.hints("timers/")))
        assert await first.cancel() == "requested"
        second = await start(w, "b")
        assert second.id != first.id
        with pytest.raises(RunCancelled):
            await first.result()
        assert await w.result(second.id) == "b"
        assert [text for _, text, _ in ran] == ["b"]
        await w.until(lambda: not w.hints("timers/"))


async def test_a_burst_does_not_form_a_line() -> None:
    """Of forty starts at once each is done after one write, whoever wins."""
    async with world() as w:
        await start(w, "first")
        before, ids = len(w.writes()), set()

        async def one(i: int) -> None:
            backend = MemoryBackend(chosen(w.bucket))
            client = Client(Store(backend, system=w.system))
            ids.add((await client.start(plain.options(debounce_key="k"), str(i))).id)

        async with anyio.create_task_group() as tasks:
            for i in range(40):
                tasks.start_soon(one, i)

        assert len(ids) == 1
        assert len(w.writes()) - before <= 40


async def test_what_it_costs() -> None:
    """Class A: 3 and a ring to open, 1 for each further start, then a hint moves, and a wake."""
    async with world() as w:
        w.bucket.log.clear()
        await start(w, "a")
        opened = [name.split("/")[0] for name in w.writes()]
        await w.process()
        await w.until(lambda: bool(w.hints("timers/")) and not w.hints("live/"))
        await virtual_seconds(5)
        w.bucket.log.clear()
        handle = await start(w, "b")
        assert w.writes() == [names.start(handle.id)]
        reads = [name for verb, name in w.bucket.log if verb == "read"]
        assert len([name for name in reads if name in w.there()]) <= 5
        w.bucket.log.clear()
        await w.result(handle.id)
        await w.until(lambda: not w.hints("live/") and not w.hints("timers/"))
        mine = [(v, n) for v, n in w.bucket.log if handle.id in n or n.startswith("bells/queue")]
        again = [f"{v} {n.split('/')[0]}" for v, n in mine if v in {"create", "replace"}]

        assert sorted(opened) == ["bells", "live", "queues", "runs"]
        moved = ["create timers"]  # the first hint is due: "b" has made it a later one
        woken = ["create live", "create bells", "replace live"]
        closed = ["replace runs", "create runs"]  # the request counts; the epoch
        ended = ["create runs", "create runs", "create history"]  # the step, the outcome
        assert Counter(again) == Counter(moved + woken + closed + ended)


async def test_a_busy_key_changes_its_marker_as_often_as_a_quiet_one() -> None:
    """Made, taken and let go twice: when it was opened and when it is due; else a hint moves."""
    changed = {}
    for starts in (1, 10):
        async with world() as w:
            await w.process()
            await w.process()
            w.bucket.log.clear()
            handle = await start(w, "0")
            for i in range(1, starts):
                await virtual_seconds(3)
                assert (await start(w, str(i))).id == handle.id
            assert await w.result(handle.id) == str(starts - 1)
            await w.until(lambda: not w.hints("live/") and not w.hints("timers/"))
            changes = [(v, n) for v, n in w.bucket.log if v not in {"read", "list"}]
            marker = names.marker("default", handle.id)
            changed[starts] = Counter(verb for verb, name in changes if name == marker)
            hints = [name for verb, name in changes if name.startswith("timers/")]

    assert changed[1] == changed[10]
    assert changed[10]["create"] == 2
    assert changed[10].total() <= 2 * 4  # two workers: one may try in vain for what the other takes
    assert len(set(hints)) == 4  # of the first start, then of the last before each was due


async def test_a_hint_that_moves_leaves_the_run_another() -> None:
    """Whoever moves it stands before each of its calls in turn; others carry the run meanwhile."""
    late, at, moves = 0, 0, True
    while moves:
        at += 1
        ran.clear()
        async with world() as w:
            run, hint = await due_too_early(w)
            stopped, go_on = anyio.Event(), anyio.Event()
            slow = Store(Halting(chosen(w.bucket), at, stopped, go_on), system=virtual_system(at))
            ended = list[timers.Promoted]()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(move, slow, hint, ended, stopped)
                await stopped.wait()
                moves = not ended
                await w.process()
                assert await w.result(run) == "b"
                go_on.set()
            late += bool(w.hints("timers/"))
            await w.until(lambda: not w.hints("live/") and not w.hints("timers/"))

            assert [text for _, text, _ in ran] == ["b"]
    assert at > 4
    assert late > 0  # its hint was there after the run was over: it wakes nothing but a look


@pytest.mark.parametrize("mode", MODES)
async def test_whoever_moves_a_hint_may_die(mode: Mode) -> None:
    """At any of its calls: the run is woken in time all the same, and no hint is left."""
    deaths, died = 0, True
    while died:
        ran.clear()
        async with world() as w:
            run, hint = await due_too_early(w)

            async def moves(store: Store, hint: Stored = hint) -> None:
                await timers.promote(store, hint)

            due = 4 + anyio.current_time()
            died = await dies(w.bucket, mode, deaths, moves, system=w.system)
            await w.process()
            assert await w.result(run) == "b"
            assert due - 0.1 <= ran[0][2] <= due + 3
            await w.until(lambda: not w.hints("live/") and not w.hints("timers/"))
        deaths += died
    assert deaths == 3  # the loss of its fourth, a delete, is no matter to it


async def test_a_start_that_joins_makes_what_the_first_did_not() -> None:
    """Whoever opened it died before it had told the workers."""
    async with world() as w:
        first = await start(w, "a")
        (marker,) = w.hints("live/")
        stored = await w.store.read(marker)
        assert stored is not None
        await w.store.delete(marker, stored.generation)
        handle = await start(w, "b")
        await w.process()

        assert handle.id == first.id
        assert await w.result(handle.id) == "b"


async def test_inside_a_workflow_it_is_asked_for_and_not_owned() -> None:
    """The run outlives the parent, does what was asked for last, and is one for both calls."""
    async with world() as w:
        await w.process()
        await w.start("p", parent, ["a", "b"])
        ids = await w.result("p")
        assert ids[0] == ids[1]
        assert await w.result(ids[0]) == "b"
        assert [text for _, text, _ in ran] == ["b"]


async def test_nobody_waits_for_it_inside_a_workflow() -> None:
    """Its end wakes nobody, so `result()` says so at once."""
    async with world() as w:
        await w.process()
        await w.start("p", impatient, "a")
        said = await w.result("p")
        assert "was started with a debounce key: its end wakes nobody" in said


async def test_a_start_while_the_run_is_closed_is_not_lost() -> None:
    """It stands before each of its calls in turn while the run is closed: it counts or opens."""
    joined, opened = 0, 0
    for at in range(1, 40):
        async with world() as w:
            first = await start(w, "a")
            await virtual_seconds(11)
            stopped, go_on = anyio.Event(), anyio.Event()
            slow = Halting(chosen(w.bucket), at, stopped, go_on)
            got: list[Handle[str]] = []

            async def second(store: Store, got: list[Handle[str]], done: anyio.Event) -> None:
                got.append(await Client(store).start(plain.options(debounce_key="k"), "b"))
                done.set()

            store = Store(slow, system=virtual_system(at))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(second, store, got, stopped)
                await stopped.wait()
                if got:
                    break  # it makes no further call
                await debouncing.close(w.store, first.id, (await w.facts(first.id)).start)
                go_on.set()
            request = (await w.facts(got[0].id)).start
            assert b"b" in bytes(request.input)
            assert request.is_collecting
            joined += got[0].id == first.id
            opened += got[0].id != first.id
    assert joined > 0
    assert opened > 3


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("joins", [False, True], ids=["opens", "joins"])
async def test_a_start_that_dies_at_any_call_leaves_no_orphan(mode: Mode, joins: bool) -> None:
    """Its request counts or not, as it raised; what is started after it is done, and only once."""
    deaths, died = 0, True
    while died:
        ran.clear()
        async with world() as w:
            if joins:
                await start(w, "a")

            async def second(store: Store) -> None:
                await Client(store).start(plain.options(debounce_key="k"), "b")

            died = await dies(w.bucket, mode, deaths, second, system=w.system)
            handle = await start(w, "c")
            await w.process()
            assert await w.result(handle.id) == "c"
            assert [text for _, text, _ in ran] == ["c"]
            await w.until(lambda: not w.hints("live/") and not w.hints("timers/"))
            assert await left(w) == []
        deaths += died
    assert deaths > 4


@pytest.mark.parametrize("applied", [False, True], ids=["unsent", "applied"])
async def test_workers_that_die_at_any_call_lose_nothing(applied: bool) -> None:
    """Whatever call of its worker is the last: the last start is done, once, not before time."""
    at, died = 1, True
    while died:
        ran.clear()
        async with world() as w:
            death = DiesAt(at, applied=applied)
            await start(w, "a")
            await w.process(faults=death)
            await virtual_seconds(5)
            handle = await start(w, "b")
            due = anyio.current_time() + 10
            await virtual_seconds(40)
            await w.process()
            assert await w.result(handle.id) == "b"
            await virtual_seconds(90)

            assert {text for _, text, _ in ran} == {"b"}
            assert all(when >= due - 0.01 for _, _, when in ran)
            assert not w.hints("timers/")
            died = death.died and at < 32
        at += 1
    assert at > 20


def test_options_that_cannot_be_are_refused() -> None:
    """At the queue and at the options."""
    for wrong in ({"debounce": 0}, {"debounce": "10s", "debounce_max": "5s"}):
        with pytest.raises(UsageError, match="at most debounce_max"):
            Queue("q", **wrong)  # type: ignore[arg-type]  # that is what is wrong
    with pytest.raises(UsageError, match="bounds no debounce"):
        Queue("q", debounce_max="5s")
    with pytest.raises(UsageError, match="only one can hold"):
        plain.options(debounce_key="k", dedup_key="k")
    assert names.debounce_key("q", "w" * 400, "k").count("/") == 4
