"""Claims: one winner, one value, whatever the store answers or does not."""

from __future__ import annotations

import datetime as dt
from typing import Any

import anyio
import pytest

from durable.claims import Claim, ClaimResult
from durable.client import Client
from durable.errors import InvalidArguments, InvalidId, StoreUnavailable, UsageError
from durable.store import Store
from durable.store.memory import Bucket, Fault, MemoryBackend
from tests.primitives.world import once

pytestmark = pytest.mark.anyio

RICH = {"when": dt.date(2026, 11, 29), "parts": (1, {2}), 3: b"x", "none": None}


async def test_losers_converge_on_the_winner(client: Client) -> None:
    """The second claimer gets the first one's value and label, and knows that it lost."""
    first = await client.claim("order/1", {"by": "a"}, label="a")
    second = await client.claim("order/1", {"by": "b"}, label="b")

    assert (first.won, first.value, first.label) == (True, {"by": "a"}, "a")
    assert (second.won, second.value, second.label) == (False, {"by": "a"}, "a")
    assert 0 <= first.age <= second.age < 5


async def test_of_many_at_once_exactly_one_wins(client: Client) -> None:
    """Sixteen claimers, one winner, and everybody holds its value."""
    results: list[ClaimResult] = []

    async def one(number: int) -> None:
        results.append(await client.claim("k", number))

    async with anyio.create_task_group() as tasks:
        for number in range(16):
            tasks.start_soon(one, number)

    (winner,) = [r.value for r in results if r.won]
    assert [r.value for r in results] == [winner] * 16


async def test_values_come_back_exactly(client: Client) -> None:
    """Winner, loser and reader get equal values of the same types, none of them the given one."""
    given = dict(RICH)
    won = await client.claim("k", given)
    lost = await client.claim("k", 0)
    found = await client.claims.get("k")

    assert found is not None
    for value in (won.value, lost.value, found.value):
        assert value == RICH
        assert type(value["parts"]) is tuple
        assert value is not given


async def test_get_and_list_show_claims(client: Client) -> None:
    """Nothing under a key is None; a list has the keys with that prefix, in order."""
    for key in ("a/1", "a/2", "b", "a"):
        await client.claim(key, key, label="me")
    await client.claim("a/3", "x" * 10_000)  # too large for a list to carry

    assert await client.claims.get("nothing") is None
    found = await client.claims.get("b")
    assert found == Claim("b", "b", "me", found.age if found else 0)
    assert [c.key async for c in client.claims.list("a/")] == ["a/1", "a/2", "a/3"]
    assert [len(c.value) async for c in client.claims.list("a/")] == [3, 3, 10_000]
    assert [c.key async for c in client.claims.list()] == ["a", "a/1", "a/2", "a/3", "b"]
    assert [c async for c in client.claims.list("c")] == []


@pytest.mark.parametrize("kind", ["unsent", "reply_lost", "late", "twice", "busy"])
async def test_won_is_right_whatever_happens_to_the_answer(kind: Any) -> None:
    """A writer whose answer was lost finds its own write, not a stranger's."""
    bucket = Bucket()
    faulty = MemoryBackend(bucket, faults=once("create", Fault(kind)))
    async with Client(Store(faulty)) as client, Client(Store(MemoryBackend(bucket))) as other:
        first = await client.claim("k", "first")
        second = await other.claim("k", "second")

    assert (first.won, second.won) == (True, False)
    assert first.value == second.value == "first"


async def test_lost_to_a_rival_while_unanswered() -> None:
    """A create that never arrived, with a rival's there meanwhile, is a loss."""
    bucket = Bucket()
    rival = Store(MemoryBackend(bucket))

    async with Client(rival) as other:
        await other.claim("k", "rival")
    faulty = MemoryBackend(bucket, faults=once("create", Fault("unsent")))
    async with Client(Store(faulty)) as client:
        result = await client.claim("k", "mine")

    assert (result.won, result.value) == (False, "rival")


async def test_no_answer_within_patience_is_an_error() -> None:
    """Whether the claim was made is then unknown, and the error says so."""
    backend = MemoryBackend(faults=lambda call: Fault("unsent"))
    async with Client(Store(backend, patience=0.05)) as client:
        with pytest.raises(StoreUnavailable):
            await client.claim("k", 1)


@pytest.mark.parametrize("key", ["", ".", "..", "a\nb", "x" * 201, "\ud800"])
async def test_impossible_keys_are_refused(client: Client, key: str) -> None:
    """Nothing is written, and no key leaves its folder."""
    with pytest.raises(InvalidId):
        await client.claim(key, 1)
    with pytest.raises(InvalidId):
        await client.claims.get(key)
    assert [c async for c in client.claims.list()] == []


async def test_keys_do_not_meet(client: Client) -> None:
    """Keys that look like paths or like encoded keys are claims of their own."""
    keys = ["a/b", "a%2Fb", "a", "../leases/a", "a b", "ä"]
    for key in keys:
        assert (await client.claim(key, key)).won

    assert {c.key: c.value async for c in client.claims.list()} == {k: k for k in keys}
    assert {s.name.count("/") async for s in client.store.list("")} == {1}


async def test_what_cannot_be_stored_is_refused(client: Client) -> None:
    """The message says which part, and nothing is claimed."""
    with pytest.raises(InvalidArguments, match=r"claim 'k'.*value\['x'\]"):
        await client.claim("k", {"x": object()})
    with pytest.raises(InvalidId):
        client.claims.list(7)  # type: ignore[arg-type]  # wrong on purpose
    assert (await client.claim("k", 1)).won


async def test_damage_is_said_and_left_out_of_lists(client: Client) -> None:
    """An object that is no claim breaks nobody's list; asked for, it is named."""
    await client.claim("good", 1)
    await client.store.create("claims/bad", b"{", nonce="n")
    await client.store.create("claims/odd", b'{"key":"odd","nonce":"n","value":{"~":9}}', nonce="n")

    assert [c.key async for c in client.claims.list() if c.key != "odd"] == ["good"]
    with pytest.raises(UsageError, match="claims/bad is damaged"):
        await client.claims.get("bad")
    with pytest.raises(UsageError, match="claims/bad"):
        await client.claim("bad", 1)
