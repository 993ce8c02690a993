"""What every store promises, as tests: subclass `StoreConformance` and say how to open yours.

    class TestMyStore(StoreConformance):
        def open(self, place: str) -> Backend:
            return MyBackend(place)

The suite needs pytest with anyio's plugin, which runs it on each event loop library.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from durable.store import Backend, Refused, Store, Stored, Within, Written
from durable.testing.racing import RACERS, Command, Racers

LAST_WRITERS = 8  # that a register keeps (promise P8)
LISTED_BYTES = 4096  # of a body, at most, that lists carry
ODD_NAMES = [
    "a b",
    "50%",
    "%2F",
    "a//b",
    "/leading",
    "trailing/",
    "quote'\"",
    "back\\slash",
    "_*?[x]",
    "größe/ключ/名前",
    "\U0001f600",
    "x" * 1000,
]


class StoreConformance:
    """The tests. Override `open`, and `url` if several processes may share the store.

    Attributes:
        paged: so many objects make a list of more than one page.
        rounds: of each race.
        clock_slack: seconds by which `now()` may be behind the times of the store's objects.
    """

    pytestmark = pytest.mark.anyio
    paged = 1_100
    rounds = 50
    clock_slack = 0.0

    def open(self, place: str) -> Backend:
        """A backend on the objects of `place`, a folder of the test's own; the same every time."""
        raise NotImplementedError

    def url(self, place: str) -> str | None:  # noqa: ARG002  # overrides use it
        """The URL of the same store for other processes; None: this process has it alone."""
        return None

    @pytest.fixture
    async def backend(self, tmp_path: Path, anyio_backend: object) -> AsyncIterator[Backend]:  # noqa: ARG002  # it starts the event loop
        backend = self.open(str(tmp_path))
        yield backend
        await backend.aclose()

    @pytest.fixture
    def store(self, backend: Backend) -> Store:
        return Store(backend)

    # -- copies ----------------------------------------------------------------------------------

    @pytest.mark.parametrize("size", [10, LISTED_BYTES + 1])
    async def test_a_copy_is_the_same_object_under_another_name(
        self, backend: Backend, size: int
    ) -> None:
        """Body, metadata and whether lists carry the body are the source's; its time is its own."""
        first = await _create(backend, "from", b"x" * size, {"nonce": "n"})

        copied = await backend.copy("from", first.generation, "to/there")

        assert copied is not None
        assert copied.generation != first.generation
        stored = await _read(backend, "to/there")
        assert (stored.body, stored.meta) == (b"x" * size, {"nonce": "n"})
        assert stored.generation == copied.generation
        (listed,) = (await backend.list("to/", None)).items
        assert (listed.body is None) == (size > LISTED_BYTES)

    async def test_a_copy_never_overwrites(self, backend: Backend) -> None:
        """Where an object stands it stays, and of a generation that is gone nothing is copied."""
        first = await _create(backend, "from", b"1", {"nonce": "n"})
        await _create(backend, "there", b"2", {"nonce": "m"})

        assert await backend.copy("from", first.generation, "there") is None
        assert await backend.copy("from", first.generation + 1, "free") is None
        assert await backend.copy("absent", first.generation, "free") is None
        assert (await _read(backend, "there")).body == b"2"
        assert await backend.read("free") is None

    # -- create and read -------------------------------------------------------------------------

    async def test_a_created_object_reads_back(self, backend: Backend) -> None:
        """Reading gives the name, body, metadata, generation and times of what was created."""
        written = await _create(backend, "a/1", b"body", {"nonce": "n", "kind": "größe"})

        stored = await _read(backend, "a/1")

        assert stored == Stored(
            name="a/1",
            generation=written.generation,
            created=written.updated,
            updated=written.updated,
            meta={"nonce": "n", "kind": "größe"},
            body=b"body",
        )

    async def test_nothing_there_reads_as_none(self, backend: Backend) -> None:
        """A name that nobody created, or only a prefix of one, reads as None."""
        await _create(backend, "a/1")

        assert await backend.read("a") is None
        assert await backend.read("a/") is None
        assert await backend.read("a/11") is None

    async def test_create_refuses_an_existing_name(self, backend: Backend) -> None:
        """The second create answers None and changes nothing."""
        await _create(backend, "a", b"first", {"by": "1"})
        before = await _read(backend, "a")

        assert await backend.create("a", b"second", {"by": "2"}, True) is None
        assert await backend.read("a") == before

    @pytest.mark.parametrize("name", ODD_NAMES)
    async def test_odd_names(self, backend: Backend, name: str) -> None:
        """Any name is kept as it is, and is one object."""
        written = await _create(backend, name, b"odd")

        assert (await _read(backend, name)).body == b"odd"
        assert [item.name for item in await _list(backend, name)] == [name]
        assert [item.name for item in await _list(backend, "")] == [name]
        assert await backend.delete(name, written.generation)
        assert await backend.read(name) is None

    @pytest.mark.parametrize("body", [b"", bytes(range(256)), b"x" * 1_000_000])
    async def test_bodies_are_bytes(self, backend: Backend, body: bytes) -> None:
        """An empty, a binary and a large body come back as they were."""
        await _create(backend, "a", body)

        assert (await _read(backend, "a")).body == body

    async def test_metadata_belongs_to_the_store(self, backend: Backend) -> None:
        """Changing the dict that was given, or one that was returned, changes no object."""
        given = {"nonce": "n"}
        await _create(backend, "a", b"", given)
        given["nonce"] = "changed"
        (await _read(backend, "a")).meta["nonce"] = "changed"
        (await _list(backend, "a"))[0].meta["nonce"] = "changed"

        assert (await _read(backend, "a")).meta == {"nonce": "n"}
        assert (await _list(backend, "a"))[0].meta == {"nonce": "n"}

    # -- replace ---------------------------------------------------------------------------------

    async def test_replace_changes_the_named_generation(self, backend: Backend) -> None:
        """A replace gives a new generation, body, metadata and time of change.

        The creation time may be kept, or be that of the generation, as in a bucket: nothing may
        rest on either for an object that is replaced.
        """
        first = await _create(backend, "a", b"1", {"x": "1", "y": "1"})

        second = await backend.replace("a", first.generation, b"2", {"x": "2"}, True)

        assert second is not None
        assert second.generation != first.generation
        assert second.updated >= first.updated
        found = await _read(backend, "a")
        assert found.created in {first.updated, second.updated}
        assert found == Stored(
            "a", second.generation, found.created, second.updated, {"x": "2"}, b"2"
        )

    async def test_replace_refuses_another_generation(self, backend: Backend) -> None:
        """A wrong generation, and one that has been replaced, change nothing."""
        first = await _create(backend, "a", b"1")
        second = await backend.replace("a", first.generation, b"2", {}, True)
        assert second is not None

        assert await backend.replace("a", first.generation, b"3", {}, True) is None
        assert await backend.replace("a", second.generation + 1, b"3", {}, True) is None
        assert (await _read(backend, "a")).body == b"2"

    async def test_replace_refuses_what_is_not_there(self, backend: Backend) -> None:
        """A replace never creates: not at generation 0, not after a delete."""
        first = await _create(backend, "a")
        await backend.delete("a", first.generation)

        assert await backend.replace("a", first.generation, b"", {}, True) is None
        assert await backend.replace("b", 0, b"", {}, True) is None
        assert await _list(backend, "") == []

    # -- delete ----------------------------------------------------------------------------------

    async def test_delete_needs_the_generation(self, backend: Backend) -> None:
        """A wrong generation deletes nothing, the right one does, once."""
        written = await _create(backend, "a")

        assert not await backend.delete("a", written.generation + 1)
        assert (await _read(backend, "a")).generation == written.generation
        assert await backend.delete("a", written.generation)
        assert await backend.read("a") is None
        assert await _list(backend, "") == []
        assert not await backend.delete("a", written.generation)

    async def test_a_late_delete_or_replace_misses_a_reused_name(self, backend: Backend) -> None:
        """After delete and create, the old generation deletes and replaces nothing."""
        old = await _create(backend, "a", b"old")
        await backend.delete("a", old.generation)
        await _create(backend, "a", b"new")

        assert not await backend.delete("a", old.generation)
        assert await backend.replace("a", old.generation, b"late", {}, True) is None
        assert (await _read(backend, "a")).body == b"new"

    async def test_generations_are_never_reused(self, backend: Backend) -> None:
        """Twenty lives of one name have forty generations."""
        seen = []
        for _ in range(20):
            created = await _create(backend, "a")
            replaced = await backend.replace("a", created.generation, b"", {}, True)
            assert replaced is not None
            assert await backend.delete("a", replaced.generation)
            seen += [created.generation, replaced.generation]

        assert len(set(seen)) == 40
        assert all(0 < generation < 2**63 for generation in seen)

    # -- list ------------------------------------------------------------------------------------

    async def test_lists_are_in_byte_order(self, backend: Backend) -> None:
        """Names come in the order of their UTF-8 bytes, whatever order they were made in."""
        names = ["b", "a/2", "a/10", "a", "a.b", "a/", "A", "é", "z", "\U0001f600", "\uffee"]
        for name in names:
            await _create(backend, name)

        listed = [item.name for item in await _list(backend, "")]

        assert listed == sorted(names, key=str.encode)

    @pytest.mark.parametrize(
        ("prefix", "expected"),
        [
            ("", ["a", "a%b", "a/1", "a/10", "a/2", "a_b", "aéb", "b"]),
            ("a/", ["a/1", "a/10", "a/2"]),
            ("a/1", ["a/1", "a/10"]),
            ("a%", ["a%b"]),
            ("a_", ["a_b"]),
            ("aé", ["aéb"]),
            ("a?", []),
            ("c", []),
        ],
    )
    async def test_lists_by_prefix(
        self, backend: Backend, prefix: str, expected: list[str]
    ) -> None:
        """A list has exactly the names that start with the prefix, which is no pattern."""
        for name in ["a", "a%b", "a/1", "a/10", "a/2", "a_b", "aéb", "b"]:
            await _create(backend, name)

        assert [item.name for item in await _list(backend, prefix)] == expected

    async def test_lists_carry_what_reads_carry(self, backend: Backend) -> None:
        """A small object in a list equals the object as read: metadata, times, generation, body."""
        first = await _create(backend, "a", b"1", {"nonce": "n"})
        await backend.replace("a", first.generation, b"2", {"nonce": "m"}, True)
        await _create(backend, "b", b"", {})

        assert await _list(backend, "") == [await _read(backend, "a"), await _read(backend, "b")]

    async def test_lists_carry_small_bodies_only(self, backend: Backend) -> None:
        """Bodies up to the limit are listed; larger ones, and those not inline, are None."""
        await _create(backend, "fits", b"x" * LISTED_BYTES)
        await _create(backend, "large", b"x" * (LISTED_BYTES + 1))
        hidden = await backend.create("hidden", b"x", {"nonce": "n"}, False)
        assert hidden is not None

        listed = {item.name: item.body for item in await _list(backend, "")}

        assert listed == {"fits": b"x" * LISTED_BYTES, "large": None, "hidden": None}
        assert (await _read(backend, "hidden")).body == b"x"
        assert (await _read(backend, "large")).body == b"x" * (LISTED_BYTES + 1)

    async def test_a_replace_decides_anew_what_lists_carry(self, backend: Backend) -> None:
        """A body that grows leaves the list, one that shrinks enters it."""
        grows = await _create(backend, "grows", b"x")
        shrinks = await _create(backend, "shrinks", b"x" * (LISTED_BYTES + 1))

        await backend.replace("grows", grows.generation, b"x" * (LISTED_BYTES + 1), {}, True)
        await backend.replace("shrinks", shrinks.generation, b"y", {}, True)

        listed = {item.name: item.body for item in await _list(backend, "")}
        assert listed == {"grows": None, "shrinks": b"y"}

    async def test_long_lists_come_in_pages(self, backend: Backend, store: Store) -> None:
        """Pages follow one another without gap or repetition, and `Store.list` joins them."""
        names = [f"p/{number:06}" for number in range(self.paged)]
        await _create_all(backend, names)
        await _create(backend, "q")

        pages = []
        token = None
        while True:
            page = await backend.list("p/", token)
            pages.append([item.name for item in page.items])
            token = page.token
            if token is None:
                break

        assert len(pages) > 1
        assert sum(pages, []) == names  # noqa: RUF017  # two or three pages
        assert [item.name async for item in store.list("p/")] == names

    async def test_a_list_keeps_its_place_while_objects_come_and_go(self, backend: Backend) -> None:
        """What is there throughout is listed exactly once, whatever changes between two pages."""
        names = [f"p/{number:06}" for number in range(self.paged)]
        await _create_all(backend, names)

        first = await backend.list("p/", None)
        for item in first.items[:3]:
            await backend.delete(item.name, item.generation)
        await _create(backend, "p/000000+")
        listed = [item.name for item in first.items]
        token = first.token
        while token is not None:
            page = await backend.list("p/", token)
            listed += [item.name for item in page.items]
            token = page.token

        assert listed == names

    @pytest.mark.parametrize(
        ("within", "found"),
        [
            (Within(), "a b B/1 c ~"),
            (Within("p/b"), "b c ~"),
            (Within("p/b", "p/c"), "b"),
            (Within("p/b+", "p/c"), ""),
            (Within("", "p/b"), "a B/1"),
            (Within("a", "p/"), ""),
            (Within("p/c", "p/b"), ""),
            (Within("a", "z"), "a b B/1 c ~"),
            (Within("q"), ""),
        ],
        ids=str,
    )
    async def test_a_part_of_a_list(self, store: Store, within: Within, found: str) -> None:
        """Names of the prefix from the start on and before the end, whichever is narrower."""
        for name in ("o", "p/B/1", "p/a", "p/b", "p/c", "p/~", "q"):
            await _create(store.backend, name)

        listed = [item.name async for item in store.list("p/", within)]

        assert listed == sorted(f"p/{name}" for name in found.split())

    async def test_a_part_of_a_list_comes_in_pages(self, backend: Backend, store: Store) -> None:
        """Each page stays within the part that was asked for."""
        names = [f"p/{number:06}" for number in range(self.paged + 20)]
        await _create_all(backend, names)

        listed = [item.name async for item in store.list("p/", Within(names[10], names[-10]))]

        assert listed == names[10:-10]

    # -- time ------------------------------------------------------------------------------------

    async def test_time_is_the_stores_and_only_rises(self, backend: Backend) -> None:
        """`now()` and the times of successive writes never fall, and agree with each other."""
        times = []
        generation = (await _create(backend, "a")).generation
        for _ in range(20):
            times.append(backend.now() - self.clock_slack)
            written = await backend.replace("a", generation, b"", {}, True)
            assert written is not None
            generation = written.generation
            times.append(written.updated)

        assert times == sorted(times)
        assert backend.now() >= times[-1] - self.clock_slack

    # -- many at once ----------------------------------------------------------------------------

    async def test_concurrent_creates_of_one_name(self, backend: Backend) -> None:
        """Of fifty tasks that create one name, one is told that it did."""
        answers: list[Written | None] = []

        async def create(number: int) -> None:
            answers.append(await backend.create("a", b"%d" % number, {}, True))

        async with anyio.create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(create, number)

        winners = [answer for answer in answers if answer is not None]
        assert len(answers) == 50
        assert [winner.generation for winner in winners] == [(await _read(backend, "a")).generation]

    async def test_each_precondition_is_decided_by_itself(self, backend: Backend) -> None:
        """Refused writes that travel with accepted ones take none of them along."""
        await _create(backend, "0")
        answers: dict[str, bool] = {}

        async def create(name: str) -> None:
            answers[name] = await backend.create(name, name.encode(), {}, True) is not None

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(create, str(number))

        assert answers == {str(number): number > 0 for number in range(20)}
        assert len(await _list(backend, "")) == 20

    async def test_two_openers_share_the_objects(self, backend: Backend, tmp_path: Path) -> None:
        """A second backend on the same place sees, and is refused by, what the first wrote."""
        other = self.open(str(tmp_path))
        try:
            written = await _create(backend, "a", b"first")

            assert await other.create("a", b"second", {}, True) is None
            assert await other.read("a") == await backend.read("a")
            assert await other.delete("a", written.generation)
            assert await backend.read("a") is None
        finally:
            await other.aclose()

    async def test_a_cancelled_write_is_whole_or_absent(self, backend: Backend) -> None:
        """Whenever its caller is cancelled, a create has happened whole or not at all."""
        for turns in range(12):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(backend.create, f"a/{turns}", b"body", {"n": "1"}, True)
                for _ in range(turns):
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()

        await _create(backend, "behind them all")  # by now each of them is decided
        for item in await _list(backend, "a/"):
            assert (item.body, item.meta) == (b"body", {"n": "1"})

    async def test_several_event_loops_share_a_backend(self, backend: Backend) -> None:
        """Threads with event loops of their own use one backend at the same time."""
        wrong: list[BaseException | str] = []

        async def work(number: int) -> None:
            for count in range(20):
                await _create(backend, f"{number}/{count}")
            if len(await _list(backend, f"{number}/")) != 20:
                wrong.append(f"thread {number} does not see its own writes")

        def run(number: int) -> None:
            try:
                anyio.run(work, number)
            except BaseException as e:  # noqa: BLE001  # it is shown by the assertion
                wrong.append(e)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        await work(99)
        for thread in threads:
            thread.join()

        assert wrong == []
        assert len(await _list(backend, "")) == 100

    # -- one's own writes are recognised (promise P8) --------------------------------------------

    async def test_a_create_sent_again_is_recognised(self, store: Store) -> None:
        """The same nonce is told that it won, another nonce is shown who did."""
        first = await store.create("a", b"1", nonce="mine")
        again = await store.create("a", b"1", nonce="mine")
        other = await store.create("a", b"2", nonce="theirs")

        assert isinstance(first, Written)
        assert first.first
        assert again == Written(first.generation, first.updated, first=False)
        assert other == Refused(await store.read("a"))

    async def test_a_replace_is_recognised_among_the_last_writers(self, store: Store) -> None:
        """A replace sent again is ours while seven others wrote since, not after the eighth."""
        written = await store.create("a", b"", nonce="first")
        assert isinstance(written, Written)
        base = written.generation
        mine = await store.replace("a", base, b"", nonce="mine", earlier="first")
        assert isinstance(mine, Written)

        recognised = []
        for number in range(LAST_WRITERS):
            again = await store.replace("a", base, b"", nonce="mine", earlier="first")
            recognised.append(isinstance(again, Written))
            await _touch(store, "a", f"other-{number}")
        recognised.append(isinstance(await store.replace("a", base, b"", nonce="mine"), Written))

        assert recognised == [True] * LAST_WRITERS + [False]

    async def test_a_take_is_recognised_by_its_owner_token(self, store: Store) -> None:
        """An object that carries our owner token is ours, whoever touched it since."""
        written = await store.create("a", b"", nonce="first")
        assert isinstance(written, Written)
        base = written.generation
        await store.replace("a", base, b"", nonce="take", owner="me")
        for number in range(LAST_WRITERS + 1):
            await _touch(store, "a", f"other-{number}")

        mine = await store.replace("a", base, b"", nonce="take", owner="me")
        theirs = await store.replace("a", base, b"", nonce="steal", owner="you")

        assert isinstance(mine, Written)
        assert not mine.first
        assert isinstance(theirs, Refused)

    async def test_deleting_what_is_gone_is_done(self, store: Store) -> None:
        """A delete sent again is done; one whose name was reused is refused."""
        written = await store.create("a", b"", nonce="1")
        assert isinstance(written, Written)

        assert await store.delete("a", written.generation)
        assert await store.delete("a", written.generation)
        await store.create("a", b"", nonce="2")
        assert not await store.delete("a", written.generation)

    # -- races -----------------------------------------------------------------------------------

    def test_sixteen_race_and_one_wins(self, tmp_path: Path) -> None:
        """In every round exactly one of sixteen creates, then replaces, then deletes."""
        place = str(tmp_path)
        url = self.url(place)
        backend = self.open(place) if url is None else None
        with Racers(url=url, backend=backend) as racers:
            for number in range(self.rounds):
                _race(racers, f"race/{number}")
        if backend is not None:
            anyio.run(backend.aclose)


def _race(racers: Racers, name: str) -> None:
    generation = 0
    for verb in ("create", "replace"):
        winners = [a for a in racers.all(Command(verb, name, generation)) if a.won]
        there = racers.one(Command("read", name))
        assert winners == [there], f"{verb} of {name}: {winners} won, {there} is there"
        generation = there.generation
    deleted = [answer.won for answer in racers.all(Command("delete", name, generation))]
    assert sorted(deleted) == [False] * (RACERS - 1) + [True], f"delete of {name}: {deleted}"
    assert not racers.one(Command("read", name)).won


async def _create(
    backend: Backend, name: str, body: bytes = b"", meta: dict[str, str] | None = None
) -> Written:
    written = await backend.create(name, body, meta or {}, True)
    assert written is not None, f"{name} was there before"
    return written


async def _create_all(backend: Backend, names: list[str]) -> None:
    async with anyio.create_task_group() as tasks:
        for share in range(20):
            tasks.start_soon(_create_each, backend, names[share::20])


async def _create_each(backend: Backend, names: list[str]) -> None:
    for name in names:
        await _create(backend, name)


async def _read(backend: Backend, name: str) -> Stored:
    stored = await backend.read(name)
    assert stored is not None, f"{name} is not there"
    return stored


async def _list(backend: Backend, prefix: str) -> list[Stored]:
    page = await backend.list(prefix, None)
    assert page.token is None, "a short list comes in one page"
    return page.items


async def _touch(store: Store, name: str, nonce: str) -> None:
    """Replace as another writer does: keep the record, the owner and the earlier writers."""
    there = await store.read(name)
    assert there is not None
    written = await store.replace(
        name,
        there.generation,
        there.body or b"",
        nonce=nonce,
        earlier=there.meta["nonce"],
        owner=there.meta.get("owner"),
    )
    assert isinstance(written, Written)
