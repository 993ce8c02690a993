"""Whatever happens to a call, its caller learns the truth about it (promise P8)."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from durable.errors import StoreRefused, StoreUnavailable
from durable.store import Refused, Store, Written
from durable.store.memory import Bucket, Call, Fault, Kind, MemoryBackend, Verb
from durable.system import System

pytestmark = pytest.mark.anyio

# What may happen to one attempt and is mended by asking again.
KINDS: tuple[Kind, ...] = ("unsent", "reply_lost", "late", "busy", "twice", "slow_reply", "delayed")
MENDED = [None, *(Fault(kind) for kind in KINDS)]
AT_ONCE = System(uniform=lambda _low, _high: 0.0)  # no waiting between attempts

Hook = Callable[[Call], Fault | None]


def store_on(bucket: Bucket, faults: Hook | None = None, patience: float | None = None) -> Store:
    return Store(MemoryBackend(bucket, faults=faults), system=AT_ONCE, patience=patience)


def in_turn(verb: Verb, *faults: Fault | None, reads: Fault | None = None) -> Hook:
    """The n-th call of `verb` suffers the n-th fault; the first read suffers `reads`."""

    def hook(call: Call) -> Fault | None:
        if call.verb == verb and call.nth <= len(faults):
            return faults[call.nth - 1]
        return reads if call.verb == "read" and call.nth == 1 else None

    return hook


def check(bucket: Bucket, name: str, nonce: str, answer: Written | Refused) -> None:
    """The answer says what is there, now and after everything under way has landed."""
    landed = bucket.land()
    there = bucket.read(name)
    if isinstance(answer, Written):
        assert there is not None
        assert there.meta["nonce"].split()[0] == nonce
        assert (there.generation, there.updated) == (answer.generation, answer.updated)
        assert landed == 0 or not answer.first, "`first` promises that nothing is under way"
    else:
        assert there == answer.current
        assert there is None or nonce not in there.meta["nonce"].split()


def ours(bucket: Bucket, name: str = "a") -> int:
    """An object to replace or delete; its generation."""
    written = bucket.create(name, b"old", {"nonce": "old"}, True)
    assert written is not None
    return written.generation


@pytest.mark.parametrize("reads", [None, Fault("unsent")], ids=["read", "read-fails"])
async def test_create_learns_the_truth(reads: Fault | None) -> None:
    """Any two faults of a create, on a free and on a taken name, end in the true answer."""
    for faults, taken in itertools.product(itertools.product(MENDED, MENDED), [False, True]):
        bucket = Bucket()
        if taken:
            ours(bucket)

        store = store_on(bucket, in_turn("create", *faults, reads=reads))
        answer = await store.create("a", b"new", nonce="mine")

        assert isinstance(answer, Refused if taken else Written), faults
        check(bucket, "a", "mine", answer)


@pytest.mark.parametrize("reads", [None, Fault("unsent")], ids=["read", "read-fails"])
async def test_replace_learns_the_truth(reads: Fault | None) -> None:
    """Any two faults of a replace, with a right and a wrong generation, end in the truth."""
    for faults, wrong in itertools.product(itertools.product(MENDED, MENDED), [0, 1]):
        bucket = Bucket()
        generation = ours(bucket) + wrong

        store = store_on(bucket, in_turn("replace", *faults, reads=reads))
        answer = await store.replace("a", generation, b"new", nonce="mine", earlier="old")

        assert isinstance(answer, Refused if wrong else Written), faults
        check(bucket, "a", "mine", answer)


@pytest.mark.parametrize("reads", [None, Fault("unsent")], ids=["read", "read-fails"])
async def test_delete_learns_the_truth(reads: Fault | None) -> None:
    """Any two faults of a delete, with a right and a wrong generation, end in the truth."""
    for faults, wrong in itertools.product(itertools.product(MENDED, MENDED), [0, 1]):
        bucket = Bucket()
        generation = ours(bucket) + wrong

        store = store_on(bucket, in_turn("delete", *faults, reads=reads))
        deleted = await store.delete("a", generation)
        bucket.land()

        assert deleted == (wrong == 0), faults
        assert (bucket.read("a") is None) == deleted


@pytest.mark.parametrize("fault", MENDED[1:], ids=lambda fault: fault.kind)
async def test_reads_and_lists_are_repeated(fault: Fault) -> None:
    """A read and a list that are not answered are asked again and give what is there."""
    bucket = Bucket()
    ours(bucket)
    store = store_on(bucket, lambda call: fault if call.nth <= 2 else None)

    stored = await store.read("a")

    assert stored == bucket.read("a")
    assert [item async for item in store.list("")] == [stored]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_rival_between_two_attempts(kind: Kind) -> None:
    """A rival that touches our object after us keeps it ours; one that was first has won."""
    bucket = Bucket()
    generation = ours(bucket)

    def rival(call: Call) -> Fault | None:
        if (call.verb, call.nth) == ("replace", 1):
            return Fault(kind)
        there = bucket.read("a")
        assert there is not None
        if there.meta["nonce"].split()[0] != "rival":
            meta = {"nonce": f"rival {there.meta['nonce']}"}
            assert bucket.replace("a", there.generation, b"rival", meta, True)
        return None

    answer = await store_on(bucket, rival).replace(
        "a", generation, b"new", nonce="mine", earlier="old"
    )
    bucket.land()

    there = bucket.read("a")
    assert there is not None
    won = "mine" in there.meta["nonce"].split()
    assert isinstance(answer, Written) == won
    if isinstance(answer, Refused):
        assert answer.current == there
    else:
        assert answer.generation == there.generation


async def test_a_rival_that_creates_first_wins() -> None:
    """A create that lands after a rival's is refused, and shows the rival's object."""
    bucket = Bucket()

    def rival(call: Call) -> Fault | None:
        if (call.verb, call.nth) == ("create", 1):
            return Fault("late")
        if call.verb == "create":
            bucket.create("a", b"rival", {"nonce": "rival"}, True)
        return None

    answer = await store_on(bucket, rival).create("a", b"new", nonce="mine")

    assert answer == Refused(bucket.read("a"))
    check(bucket, "a", "mine", answer)


async def test_a_bell_costs_no_read() -> None:
    """Ringing a bell that rings already is one call, and so is ringing one that does not."""
    bucket = Bucket()
    store = store_on(bucket)

    first = await store.create("bell", b"", nonce="1", read_back=False)
    second = await store.create("bell", b"", nonce="2", read_back=False)

    assert isinstance(first, Written)
    assert second == Refused(None)
    assert bucket.log == [("create", "bell"), ("create", "bell")]


@pytest.mark.parametrize("verb", ["create", "replace", "read", "list", "delete"])
async def test_a_definite_no_goes_up_at_once(verb: Verb) -> None:
    """`StoreRefused` is not repeated, and nothing has changed."""
    bucket = Bucket()
    generation = ours(bucket)
    before = bucket.read("a")
    store = store_on(bucket, in_turn(verb, Fault("refused"), Fault("refused")))

    with pytest.raises(StoreRefused, match=verb):
        await _call(store, verb, generation)

    assert bucket.calls[verb] == 1
    assert bucket.read("a") == before
    assert bucket.read("new") is None


@pytest.mark.parametrize("verb", ["create", "replace", "read", "list", "delete"])
async def test_patience_runs_out(verb: Verb) -> None:
    """A store that never answers is given up after `patience` seconds, not before."""
    bucket = Bucket()
    generation = ours(bucket)
    clock = itertools.count(0.0, 1.0)
    system = System(boot=lambda: next(clock), uniform=lambda _low, _high: 0.0)
    backend = MemoryBackend(bucket, faults=lambda _call: Fault("unsent"))
    store = Store(backend, system=system, patience=5.0)

    with pytest.raises(StoreUnavailable, match=verb):
        await _call(store, verb, generation)

    assert bucket.calls[verb] == 6  # the clock goes on one second with each look at it


async def test_without_patience_only_cancelling_ends_it() -> None:
    """A holder's call is repeated for as long as it takes."""
    bucket = Bucket()
    store = store_on(bucket, lambda call: Fault("busy") if call.nth <= 1000 else None)

    answer = await store.patient(None).create("a", b"", nonce="mine")

    assert isinstance(answer, Written)
    assert bucket.calls["create"] == 1001


async def test_a_name_that_keeps_vanishing_ends_with_patience() -> None:
    """An object deleted before every look at it is not looked for for ever."""
    bucket = Bucket()
    clock = itertools.count(0.0, 1.0)

    def vanish(call: Call) -> Fault | None:
        there = bucket.read("a")
        if call.verb == "create" and there is None:
            ours(bucket)
        elif call.verb == "read" and there is not None:
            bucket.delete("a", there.generation)
        return None

    system = System(boot=lambda: next(clock), uniform=lambda _low, _high: 0.0)
    store = Store(MemoryBackend(bucket, faults=vanish), system=system, patience=5.0)

    with pytest.raises(StoreUnavailable, match="changed between every attempt"):
        await store.create("a", b"", nonce="mine")


@settings(max_examples=100)
@given(st.lists(st.sampled_from(MENDED), max_size=60))
def test_a_shared_counter_counts_every_write(faults: list[Fault | None]) -> None:
    """Four writers that each add two to a register under any faults leave exactly eight."""
    bucket = Bucket()
    ours(bucket, "n")
    left = iter(faults)
    store = store_on(bucket, lambda _call: next(left, None))

    async def add(writer: int) -> None:
        for turn in range(2):
            while True:
                there = await store.read("n")
                assert there is not None
                answer = await store.replace(
                    "n",
                    there.generation,
                    there.body + b"+" if there.body else b"+",
                    nonce=f"{writer}.{turn}",
                    earlier=there.meta["nonce"],
                )
                if isinstance(answer, Written):
                    break

    async def everybody() -> None:
        async with anyio.create_task_group() as tasks:
            for writer in range(4):
                tasks.start_soon(add, writer)

    anyio.run(everybody)
    bucket.land()

    there = bucket.read("n")
    assert there is not None
    assert there.body == b"old" + b"+" * 8


async def _call(store: Store, verb: Verb, generation: int) -> None:
    match verb:
        case "create":
            await store.create("new", b"", nonce="mine")
        case "replace":
            await store.replace("a", generation, b"", nonce="mine")
        case "read":
            await store.read("a")
        case "list":
            async for _ in store.list(""):
                pass
        case "delete":
            await store.delete("a", generation)
