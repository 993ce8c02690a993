"""Copies that take the server several calls."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from durable.store import Refused, Store
from durable.store.gcs import GcsBackend
from durable.testing.gcs import Fault, Handle

pytestmark = pytest.mark.anyio

BODY = b"twelve bytes"


async def test_a_copy_goes_on_until_it_is_there(backend: GcsBackend, server: Handle) -> None:
    """With the token of each answer, also of one after which nothing more was done."""
    made = await backend.create("from", BODY, {"k": "v"}, False)
    assert made is not None
    server.service.faults.add(
        Fault("short_rewrite", verb="rewrite", size=5),
        Fault("short_rewrite", verb="rewrite", size=0, nth=2),
    )

    written = await backend.copy("from", made.generation, "to")

    there = await backend.read("to")
    assert written is not None
    assert there is not None
    assert (there.body, there.meta, there.generation) == (BODY, {"k": "v"}, written.generation)
    assert server.service.calls.by_verb()["rewrite"] == 4


async def test_what_appears_meanwhile_stays(backend: GcsBackend, server: Handle) -> None:
    """Whether the new name is free is decided at the end."""
    made = await backend.create("from", BODY, {}, False)
    assert made is not None
    await backend.create("to", b"there", {}, False)
    server.service.faults.add(Fault("short_rewrite", verb="rewrite", size=5))

    assert await backend.copy("from", made.generation, "to") is None
    assert await backend.copy("from", made.generation + 1, "free") is None
    there = await backend.read("to")
    assert there is not None
    assert there.body == b"there"


async def test_a_source_that_changes_meanwhile_is_not_copied(
    backend: GcsBackend, server: Handle
) -> None:
    """The generation asked for is gone: nothing is copied."""
    made = await backend.create("from", BODY, {}, False)
    assert made is not None
    server.service.faults.add(Fault("short_rewrite", verb="rewrite", size=0))  # it cannot end
    copied = []

    async def copy() -> None:
        copied.append(await backend.copy("from", made.generation, "to"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(copy)
        while not server.service.calls.by_verb().get("rewrite"):
            await anyio.lowlevel.checkpoint()
        await backend.replace("from", made.generation, b"others", {}, False)

    assert copied == [None]
    assert await backend.read("to") is None


async def test_the_store_copies_in_parts(store: Store, server: Handle) -> None:
    """It begins again where a call failed, and recognises a copy that was made unnoticed."""
    await store.create("from", BODY, nonce="n")
    server.service.faults.add(
        Fault("short_rewrite", verb="rewrite", size=5),
        Fault("refused", verb="rewrite", status=503, nth=2),
        Fault("reply_lost", verb="rewrite", nth=4),  # of the others: the last of the copy
    )
    stored = await store.read("from")
    assert stored is not None

    assert not isinstance(await store.copy(stored, "to"), Refused)

    copied = await store.read("to")
    assert copied is not None
    assert (copied.body, copied.meta) == (stored.body, stored.meta)
    assert server.service.calls.by_verb()["rewrite"] == 2 + 3 + 3
