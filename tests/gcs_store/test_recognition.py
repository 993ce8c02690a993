"""Whatever happens on the wire, a writer learns whether it won (promise P8)."""

from __future__ import annotations

import pytest

from durable.store import Refused, Store, Stored, Written
from durable.testing.gcs import Fault, Handle

pytestmark = pytest.mark.anyio

# What befalls the first attempt of a call. Behind `+` it was carried out all the same.
FAULTS = {
    "+reply lost": Fault("reply_lost", times=1),
    "+delivered twice": Fault("twice", times=1),
    "+503": Fault("reply_replaced", status=503, times=1),
    "+500": Fault("reply_replaced", status=500, times=1),
    "+429": Fault("reply_replaced", status=429, times=1),
    "+reply cut in the status": Fault("truncated", size=4, times=1),
    "+reply cut in the body": Fault("truncated", size=150, times=1),
    "connection reset": Fault("unsent", times=1),
    "503": Fault("refused", status=503, times=1),
    "429": Fault("refused", status=429, times=1),
    "late": Fault("late", times=1),
}
each_fault = pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
ambiguous = pytest.mark.parametrize(
    "fault",
    [fault for name, fault in FAULTS.items() if name.startswith("+")],
    ids=[name for name in FAULTS if name.startswith("+")],
)


def _verb(fault: Fault, verb: str) -> Fault:
    return Fault(fault.kind, verb=verb, times=fault.times, status=fault.status, size=fault.size)


async def _stored(store: Store, name: str) -> Stored:
    stored = await store.read(name)
    assert stored is not None
    return stored


@each_fault
async def test_a_create_is_recognised(store: Store, server: Handle, fault: Fault) -> None:
    """It is ours, once, whether the first attempt was applied, is applied later or never."""
    server.service.faults.add(_verb(fault, "insert"))

    answer = await store.create("a", b'"mine"', nonce="n")
    server.land()
    stored = await _stored(store, "a")

    assert answer == Written(stored.generation, stored.updated, first=False)
    assert (stored.body, stored.meta) == (b'"mine"', {"nonce": "n"})


@each_fault
async def test_a_create_that_lost_is_told_who_won(
    store: Store, server: Handle, fault: Fault
) -> None:
    """Faults do not make a loser believe that it won."""
    await store.create("a", b'"theirs"', nonce="theirs")
    server.service.faults.add(_verb(fault, "insert"))

    answer = await store.create("a", b'"mine"', nonce="mine")
    server.land()

    assert answer == Refused(await _stored(store, "a"))
    assert isinstance(answer, Refused)
    assert answer.current is not None
    assert answer.current.body == b'"theirs"'


@each_fault
async def test_a_replace_is_recognised(store: Store, server: Handle, fault: Fault) -> None:
    """It is ours, and it happened once: a late delivery changes nothing any more."""
    first = await store.create("a", b"1", nonce="1")
    assert isinstance(first, Written)
    server.service.faults.add(_verb(fault, "insert"))

    answer = await store.replace("a", first.generation, b"2", nonce="2", earlier="1")
    stored = await _stored(store, "a")
    server.land()

    assert answer == Written(stored.generation, stored.updated, first=False)
    assert stored.generation != first.generation
    assert (stored.body, stored.meta) == (b"2", {"nonce": "2 1"})
    assert await store.read("a") == stored


@each_fault
async def test_a_replace_that_lost_is_told_who_won(
    store: Store, server: Handle, fault: Fault
) -> None:
    """The one that came first stays."""
    first = await store.create("a", b"1", nonce="1")
    assert isinstance(first, Written)
    await store.replace("a", first.generation, b"theirs", nonce="theirs")
    server.service.faults.add(_verb(fault, "insert"))

    answer = await store.replace("a", first.generation, b"mine", nonce="mine")
    server.land()

    assert answer == Refused(await _stored(store, "a"))
    assert (await _stored(store, "a")).body == b"theirs"


@each_fault
async def test_a_delete_is_done_once(store: Store, server: Handle, fault: Fault) -> None:
    """It is done; what is created under the name afterwards no late delivery deletes."""
    written = await store.create("a", b"old", nonce="1")
    assert isinstance(written, Written)
    server.service.faults.add(_verb(fault, "delete"))

    assert await store.delete("a", written.generation)
    assert await store.read("a") is None
    await store.create("a", b"new", nonce="2")
    server.land()

    assert (await _stored(store, "a")).body == b"new"


@each_fault
async def test_a_delete_that_lost_deletes_nothing(
    store: Store, server: Handle, fault: Fault
) -> None:
    """Another generation is there, and stays."""
    first = await store.create("a", b"1", nonce="1")
    assert isinstance(first, Written)
    await store.replace("a", first.generation, b"2", nonce="2")
    server.service.faults.add(_verb(fault, "delete"))

    assert not await store.delete("a", first.generation)
    server.land()

    assert (await _stored(store, "a")).body == b"2"


@ambiguous
async def test_a_look_that_fails_too_is_repeated(
    store: Store, server: Handle, fault: Fault
) -> None:
    """The read-back may be cut and refused like anything else."""
    server.service.faults.add(
        _verb(fault, "insert"),
        Fault("refused", verb="get", status=503, nth=1),
        Fault("truncated", verb="get", size=100, nth=2),
    )

    answer = await store.create("a", b"mine", nonce="n")

    assert isinstance(answer, Written)
    assert (await _stored(store, "a")).body == b"mine"


async def test_a_dead_connection_costs_one_attempt(store: Store, server: Handle) -> None:
    """A kept-alive connection that was closed meanwhile loses no write and invents no loss."""
    first = await store.create("a", b"1", nonce="1")
    assert isinstance(first, Written)
    server.service.faults.add(Fault("stale", times=1))
    second = await store.replace("a", first.generation, b"2", nonce="2")
    assert isinstance(second, Written)
    server.service.faults.add(Fault("stale", times=1))

    assert await store.delete("a", second.generation)
    assert await store.read("a") is None


async def test_connections_closed_by_the_server_are_replaced(store: Store, server: Handle) -> None:
    """Whatever the server closed while nobody was looking, the next call is answered."""
    for number in range(5):
        assert isinstance(await store.create(f"a/{number}", b"", nonce="n"), Written)
        server.close_idle()

    assert len([item async for item in store.list("a/")]) == 5


async def test_a_delete_that_the_client_library_repeats(store: Store, server: Handle) -> None:
    """On a reset connection aiohttp itself sends it again; the 404 that it gets is success."""
    written = await store.create("a", b"", nonce="1")
    assert isinstance(written, Written)
    server.service.faults.add(Fault("reply_lost", verb="delete", times=1))

    assert await store.delete("a", written.generation)
    deletes = [call.status for call in server.service.calls.log if call.verb == "delete"]

    assert deletes == [204, 404]
