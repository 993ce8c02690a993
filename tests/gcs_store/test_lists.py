"""Lists in pages of any size."""

from __future__ import annotations

import pytest

from durable.store import Store
from durable.testing.gcs import Fault, Handle

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
async def test_what_is_there_throughout_is_seen_once(
    store: Store, server: Handle, size: int
) -> None:
    """Whatever the size of pages, and whatever comes and goes between them."""
    names = [f"a/{number:03}" for number in range(60)]
    for name in names:
        await store.create(name, b"1", nonce="n")
    server.service.faults.add(Fault("short_page", verb="list", size=size))

    seen = []
    async for item in store.list("a/"):
        seen.append(item.name)
        if item.name.endswith("5"):
            await store.delete(item.name, item.generation)
            await store.create(f"{item.name}-new", b"1", nonce="n")

    assert [name for name in seen if not name.endswith("-new")] == names
    assert len(seen) == len(set(seen))
    assert seen == sorted(seen)


async def test_pages_without_items_are_gone_through(store: Store, server: Handle) -> None:
    """A page may be empty and yet not the last."""
    for number in range(3):
        await store.create(f"a/{number}", b"1", nonce="n")
    server.service.faults.add(Fault("short_page", verb="list", size=0, times=3))

    assert [item.name async for item in store.list("a/")] == ["a/0", "a/1", "a/2"]
    assert server.service.calls.by_verb()["list"] == 4


async def test_a_page_that_fails_is_asked_for_again(store: Store, server: Handle) -> None:
    """With the same parameters, so nothing is left out or repeated."""
    for number in range(6):
        await store.create(f"a/{number}", b"1", nonce="n")
    server.service.faults.add(
        Fault("short_page", verb="list", size=2),
        Fault("reply_lost", verb="list", nth=2),
        Fault("refused", verb="list", status=503, nth=3),
    )

    assert [item.name async for item in store.list("a/")] == [f"a/{n}" for n in range(6)]
