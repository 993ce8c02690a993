"""Documents: no concurrent change is lost, none is made twice."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from durable import catalog
from durable.client import Client
from durable.errors import InvalidArguments, InvalidId, StoreUnavailable, UsageError
from durable.protocol.primitives import KEEP
from durable.store import Store
from durable.store.memory import Bucket, Fault, MemoryBackend
from tests.primitives.world import World, once
from tests.runtime.clocks import BACKENDS, virtual

pytestmark = pytest.mark.anyio


def one_more(count: int | None) -> int:
    return (count or 0) + 1


async def test_read_update_delete(client: Client) -> None:
    """A document begins as nothing, is what was written last, and ends as nothing."""
    doc = client.doc("config", label="me")
    before = await doc.read()
    first = await doc.update(lambda old: {"old": old})
    second = await doc.update(lambda old: {"old": old})
    found = await doc.read()

    assert before is None
    assert (first, second) == ({"old": None}, {"old": {"old": None}})
    assert found is not None
    assert (found.key, found.value, found.label) == ("config", second, "me")
    assert 0 <= found.age < 5
    assert await doc.delete(found.generation)
    assert await doc.read() is None
    assert await client.docs.get("config") is None


async def test_no_concurrent_change_is_lost() -> None:
    """Sixteen writers count to sixteen, on one object that all of them change at once."""
    bucket = Bucket()

    async def count() -> None:
        async with Client(Store(MemoryBackend(bucket))) as client:
            await client.doc("n").update(one_more)

    async with anyio.create_task_group() as tasks:
        for _ in range(16):
            tasks.start_soon(count)

    async with Client(Store(MemoryBackend(bucket))) as client:
        found = await client.docs.get("n")
    assert found is not None
    assert found.value == 16


@pytest.mark.parametrize("verb", ["create", "replace"])
@pytest.mark.parametrize("kind", ["unsent", "reply_lost", "late", "twice", "busy"])
async def test_a_change_is_made_once_whatever_happens_to_the_answer(verb: Any, kind: Any) -> None:
    """A lost answer neither loses the change nor makes it twice."""
    backend = MemoryBackend(faults=once(verb, Fault(kind)))
    async with Client(Store(backend)) as client:
        doc = client.doc("n")
        results = [await doc.update(one_more) for _ in range(3)]

    assert results == [1, 2, 3]


async def test_a_change_is_made_once_though_others_write_on_top() -> None:
    """The answer was lost, seven others wrote since: the writer still finds its own write."""
    bucket = Bucket()
    async with Client(Store(MemoryBackend(bucket))) as other:

        class Crowd(MemoryBackend):
            async def replace(self, *args: Any) -> Any:
                answer = await super().replace(*args)
                if not self.lost:
                    self.lost = True
                    for _ in range(7):
                        await other.doc("n").update(one_more)
                    raise StoreUnavailable("lost")
                return answer

            lost = False

        await other.doc("n").update(one_more)
        async with Client(Store(Crowd(bucket))) as client:
            mine = await client.doc("n").update(one_more)
        found = await other.doc("n").read()

    assert found is not None
    assert (mine, found.value) == (2, 9)


async def test_keep_and_errors_change_nothing(client: Client) -> None:
    """A function may look and leave it, or raise: the document stays as it is."""
    doc = client.doc("k")
    await doc.update(lambda old: [1])
    before = await doc.read()

    def refuse(old: object) -> object:
        raise LookupError("not today")

    assert await doc.update(lambda old: KEEP) == [1]
    assert await client.doc("absent").update(lambda old: KEEP) is None
    with pytest.raises(LookupError, match="not today"):
        await doc.update(refuse)
    with pytest.raises(InvalidArguments, match="document 'k'"):
        await doc.update(lambda old: object())
    after = await doc.read()
    assert before is not None
    assert after is not None
    assert after.generation == before.generation


async def test_delete_spares_what_was_changed_since(client: Client) -> None:
    """Only the very state that was read is deleted."""
    doc = client.doc("k")
    await doc.update(one_more)
    seen = await doc.read()
    await doc.update(one_more)

    assert seen is not None
    assert not await doc.delete(seen.generation)
    left = await doc.read()
    assert left is not None
    assert left.value == 2


async def test_a_list_has_the_documents_of_a_prefix(client: Client) -> None:
    """With value, label and a generation that deletes them."""
    for key in ("a/1", "a/2", "b"):
        await client.doc(key, label="me").update(lambda old: key)  # noqa: B023  # called at once

    listed = [d async for d in client.docs.list("a/")]

    assert [(d.key, d.value, d.label) for d in listed] == [
        ("a/1", "a/1", "me"),
        ("a/2", "a/2", "me"),
    ]
    assert await client.doc("a/1").delete(listed[0].generation)
    assert [d.key async for d in client.docs.list()] == ["a/2", "b"]


async def test_bad_keys_and_damage(client: Client) -> None:
    """An impossible key is refused when it is named, damage when it is read."""
    with pytest.raises(InvalidId):
        client.doc("")
    await client.store.create("docs/bad", b"[]", nonce="n")
    with pytest.raises(UsageError, match="docs/bad is damaged"):
        await client.doc("bad").read()
    with pytest.raises(UsageError, match="docs/bad is damaged"):
        await client.doc("bad").update(one_more)
    assert repr(client.doc("k")) == "<document 'k'>"


class TestVirtually:
    """On virtual time."""

    @pytest.fixture(params=BACKENDS)
    def anyio_backend(self, request: pytest.FixtureRequest) -> Any:
        return virtual(request.param)

    async def test_who_always_loses_is_told(self, world: World) -> None:
        """After a bounded number of lost races, an error that says what to do."""
        async with world.process() as me, world.process() as rival:
            called = 0

            def slow(count: int | None) -> int:
                nonlocal called
                called += 1
                stored = world.bucket.read("docs/n")
                assert stored is not None
                body = b'{"key":"n","value":0,"nonce":"r"}'
                world.bucket.replace("docs/n", stored.generation, body, {"nonce": "r"}, True)
                return 1

            await rival.client.doc("n").update(one_more)
            with pytest.raises(StoreUnavailable, match="docs/n") as caught:
                await me.client.doc("n").update(slow)

        assert called == catalog.LOST_RACES_MAX
        assert "more keys" in (caught.value.hint or "")
