"""Lists of runs: each once, without walking the folders of runs."""

from __future__ import annotations

import pytest

from durable import RunFailed
from durable.client import Client
from durable.protocol import names, records
from durable.protocol.records import Attention, History, Marker, Result
from durable.runtime import markers
from durable.store.memory import Bucket
from tests.client.shop import checkout, other, refused

pytestmark = pytest.mark.anyio

DAY = 86_400.0


async def shown(client: Client, **asked: object) -> list[tuple[str, str]]:
    return [(r.id, str(r.status)) async for r in client.list(**asked)]  # type: ignore[arg-type]  # arguments are passed on


async def test_open_runs_come_first_then_the_newest(client: Client) -> None:
    """Waiting runs, newest first; then ended ones, newest first."""
    await client.run(checkout.options(id="done-1"), "A")
    with pytest.raises(RunFailed):
        await client.run(refused.options(id="done-2"), "A")
    await client.start(checkout.options(id="open-1"), "A")
    await client.start(checkout.options(id="open-2"), "A")

    assert await shown(client) == [
        ("open-2", "waiting"),
        ("open-1", "waiting"),
        ("done-2", "failed"),
        ("done-1", "completed"),
    ]


async def test_it_never_walks_the_folders_of_runs(bucket: Bucket, client: Client) -> None:
    """Markers, attention hints, workers, pauses and history are all it looks at."""
    await client.start(checkout.options(id="x"), "A")
    start = len(bucket.log)

    await shown(client)

    assert {name for verb, name in bucket.log[start:] if verb != "list"} == {names.PAUSES}
    assert not [name for _, name in bucket.log[start:] if name.startswith("runs")]


async def test_a_run_in_two_places_is_shown_once(bucket: Bucket, client: Client) -> None:
    """An outcome goes before a marker, a marker before an attention hint."""
    for run in ("over", "tried"):
        handle = await client.start(checkout.options(id=run), "A")
        hint = Attention(
            run=run, instance=handle.instance, workflow="shop.checkout", reason="drift",
            message="m", nonce="n", time=1.0,
        )  # fmt: skip
        bucket.create(names.attention("default", run), records.encode(hint), {}, True)
    over = await client.get("over")
    put_history(bucket, "over", bucket.now(), instance=over.instance)

    assert await shown(client) == [("tried", "waiting"), ("over", "completed")]


async def test_a_run_that_ended_long_ago_is_over_though_its_marker_is_left(
    bucket: Bucket, client: Client
) -> None:
    """Its process ended before the marker's delete; one that really waits still does."""
    for run in ("over", "left"):
        await client.start(checkout.options(id=run), "A")
        found = await markers.read(client.store, "default", run)
        assert found is not None
        await client.store.delete(found[0].name, found[0].generation)
        held = Marker(run, found[1].instance, "shop.checkout", "n", holder="gone")
        await markers.create(client.store, held)
    result = Result("completed", "n", 1, bucket.now() - 2 * DAY)
    over = (await client.get("over")).instance
    bucket.create(names.result("over", over), records.encode(result), {}, True)
    put_history(bucket, "over", result.time, instance=over)

    assert await shown(client) == [("left", "waiting"), ("over", "completed")]


async def test_old_runs_are_found_too(bucket: Bucket, client: Client) -> None:
    """The history goes back as far as it goes, newest first, each run once."""
    now = bucket.now()
    for run, days in (("today", 0), ("yesterday", 1), ("last-week", 7), ("last-year", 365)):
        put_history(bucket, run, now - days * DAY)

    assert [run for run, _ in await shown(client)] == [
        "today",
        "yesterday",
        "last-week",
        "last-year",
    ]


def put_history(bucket: Bucket, run: str, ended: float, *, instance: str = "abc") -> None:
    from durable.protocol.moments import stamp

    entry = History(
        run=run, instance=instance, workflow="shop.checkout", status="completed",
        started=ended - 1, ended=ended, nonce="n",
    )  # fmt: skip
    bucket.create(names.history(stamp(ended), run), records.encode(entry), {}, True)


async def test_a_limit_stops_early(bucket: Bucket, client: Client) -> None:
    """With enough recent runs the old history is not listed."""
    put_history(bucket, "a", bucket.now())
    put_history(bucket, "b", bucket.now())
    start = len(bucket.log)

    assert len(await shown(client, limit=1)) == 1
    assert ("list", "history/") not in bucket.log[start:]


async def test_filters(client: Client) -> None:
    """By workflow, by status, and both count before the limit."""
    await client.run(checkout.options(id="a"), "A")
    await client.run(other.options(id="b"), "A")
    await client.start(other.options(id="c"), "A")

    assert await shown(client, workflow="shop.other") == [("c", "waiting"), ("b", "completed")]
    assert await shown(client, status="completed", limit=1, workflow="shop.checkout") == [
        ("a", "completed")
    ]


async def test_it_may_be_left_at_any_item(client: Client) -> None:
    """Leaving the loop early leaves nothing open behind."""
    for run in ("a", "b", "c"):
        await client.start(checkout.options(id=run), "A")

    async for run in client.list():
        assert run.id == "c"
        break


async def test_a_foreign_object_is_passed_over(bucket: Bucket, client: Client) -> None:
    """What is no record of ours does not spoil the list."""
    await client.start(checkout.options(id="x"), "A")
    bucket.create("history/2026-01-01/00/2026-01-01T00:00:00.000Z-y", b"junk", {}, True)
    bucket.create("attention/default/z", b"junk", {}, True)
    bucket.create("workers/w", b"junk", {}, True)

    assert await shown(client) == [("x", "waiting")]
