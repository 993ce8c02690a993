"""What has gone wrong for others on buckets, done to runs through HTTP.

Each test names the row of the list of reported bugs that it comes from, and where it was reported.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from durable import workflow
from durable.client import Client, purging
from durable.errors import NotFound
from durable.protocol import names
from durable.store import Store
from durable.store.gcs import GcsBackend, Place
from durable.store.memory import Bucket
from durable.testing.gcs import Fault, Handle, Service, serving
from tests.client import shop
from tests.client.shop import charge, checkout
from tests.gcs_store.conftest import BUCKET

STEPS = 200
CALLS = 7  # of the run below: marker and `start`, two steps, result, history, and the delete

pytestmark = pytest.mark.anyio


@workflow(name="reported.many")
async def many(steps: int) -> int:
    for _ in range(steps):
        await charge("A-1")
    return steps


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    shop.ran.clear()
    shop.gates.clear()


@pytest.fixture
async def client(store: Store) -> AsyncIterator[Client]:
    async with Client(store) as client:
        yield client


async def test_b26_an_outcome_whose_answer_is_lost_is_our_own(
    client: Client, server: Handle
) -> None:
    """No body is run again, and nobody takes a record for somebody else's.

    B26, googleapis/java-storage#1453.
    """
    server.service.faults.add(
        *[Fault("reply_lost", verb="insert", nth=nth, times=1) for nth in range(1, CALLS + 1)]
    )

    assert await client.run(checkout.options(id="x"), "A-1") == ("receipt A-1", 3)
    assert shop.ran == ["charge A-1", "deliver A-1"]


@pytest.mark.parametrize("kind", ["unsent", "refused", "truncated"])
@pytest.mark.parametrize("nth", range(1, CALLS + 1))
async def test_b28_a_dropped_connection_fails_no_step(
    client: Client, server: Handle, kind: str, nth: int
) -> None:
    """Whichever call it hits, the call is made again; each body runs once.

    B28, googleapis/python-storage#1231; for tokens see test_tokens.
    """
    server.service.faults.add(Fault(kind, verb="mutations", nth=nth, times=1))  # type: ignore[arg-type]  # a parameter is a plain str

    assert await client.run(checkout.options(id="x"), "A-1") == ("receipt A-1", 3)
    assert shop.ran == ["charge A-1", "deliver A-1"]


async def test_b29_no_object_is_hot() -> None:
    """Two hundred steps as fast as they go: each is an object of its own, none is refused.

    B29, bespokelabsai/curator#665.
    """
    with serving(Service({BUCKET: Bucket()}, rate_limit=0.05)) as limited:
        store = Store(GcsBackend(Place(BUCKET, "", "", limited.url, anonymous=True)))
        async with Client(store) as client:
            assert await client.run(many.options(id="x"), STEPS) == STEPS
        await store.aclose()
        statuses = [call.status for call in limited.service.calls.log if "/steps/" in call.name]

    assert statuses == [200] * STEPS


@pytest.mark.parametrize("reused", [False, True])
async def test_b35_a_write_that_lands_after_the_purge_means_nothing(
    client: Client, store: Store, place: Place, server: Handle, reused: bool
) -> None:
    """It lies in the folder of an instance that is over: the id stays free, or its new run never
    sees it. Purging the id once more removes it.

    B35, slatedb's RFC 0026.
    """
    old = await client.start(checkout.options(id="x"), "A-1")
    step = names.step("x", old.instance, "charge.1")
    fault = Fault("late", verb="insert", name=f"{place.prefix}{step}", times=1)
    server.service.faults.add(fault)
    await client.run(checkout.options(id="x"), "A-1")
    await purging.purge(store, "x")
    shop.ran.clear()
    handle = await client.start(checkout.options(id="x"), "B-2") if reused else None

    assert server.land() == 1
    assert [s.name async for s in store.list(f"runs/x/{old.instance}/")] == [step]

    if handle is None:
        with pytest.raises(NotFound):
            await client.get("x")
    else:
        assert await client.run(checkout.options(id="x"), "B-2") == ("receipt B-2", 3)
        assert (await client.get("x")).instance == handle.instance
        assert shop.ran == ["charge B-2", "deliver B-2"]
    assert await purging.purge(store, "x") >= 1
    assert [stored.name async for stored in store.list("runs/")] == ["runs/x/start"]
