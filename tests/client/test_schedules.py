"""Schedules through the client: created, looked at, paused, triggered, backfilled, removed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durable import cron, every, workflow
from durable.client import Client
from durable.errors import InvalidArguments, InvalidDefinition, NotFound, UsageError
from durable.protocol import names
from durable.store.memory import Bucket
from durable.sync import connect as sync_connect
from tests.client.shop import checkout, nightly

pytestmark = pytest.mark.anyio

DAILY = cron("0 2 * * *", tz="Europe/Rome")


def names_in(bucket: Bucket, folder: str) -> list[str]:
    return [item.name for item in bucket.list(folder, None).items]


async def test_create_shows_what_is_to_come(client: Client) -> None:
    """The summary has the next ticks; without a live worker that knows it, it is an orphan."""
    made = await client.schedules.create("daily", DAILY, checkout, "A-1", express=True)

    assert (made.name, made.workflow, made.by) == ("daily", "shop.checkout", "client")
    assert made.when == "0 2 * * * (Europe/Rome)"
    assert (made.state, made.reason) == ("orphaned", "no live worker")
    assert len(made.next) == 5
    assert made.next[0] > client.store.now()
    assert await client.schedules.get("daily") == made


async def test_create_again_changes_it(client: Client) -> None:
    """One name is one schedule."""
    await client.schedules.create("daily", DAILY, checkout, "A-1")
    await client.schedules.create("daily", every("1h"), nightly, "monday")

    [found] = [s async for s in client.schedules.list()]
    assert (found.workflow, found.when) == ("shop.nightly", "every 1h")


async def test_arguments_are_checked_when_it_is_created(bucket: Bucket, client: Client) -> None:
    """What no run could begin with is refused, and nothing is written."""
    with pytest.raises(InvalidArguments):
        await client.schedules.create("daily", DAILY, checkout)  # type: ignore[call-arg]  # wrong on purpose
    with pytest.raises(UsageError, match="is no schedule"):
        await client.schedules.create("daily", "0 2 * * *", checkout, "A")  # type: ignore[arg-type]  # wrong on purpose

    assert bucket.calls == {}


async def test_pause_and_resume(client: Client) -> None:
    """A paused schedule has no next tick."""
    await client.schedules.create("daily", DAILY, checkout, "A-1")
    await client.schedules.pause("daily")
    paused = await client.schedules.get("daily")
    await client.schedules.resume("daily")
    resumed = await client.schedules.get("daily")

    assert (paused.state, paused.next) == ("paused", ())
    assert resumed.state == "orphaned"


async def test_trigger_starts_a_run_now(client: Client) -> None:
    """With the schedule's arguments and its tag; the schedule's ticks are not disturbed."""
    made = await client.schedules.create("daily", DAILY, nightly.options(tags={"a": "b"}), "monday")
    run = await client.schedules.trigger("daily")

    handle = await client.get(run)
    assert run.startswith("daily@")
    assert handle.workflow == "shop.nightly"
    [listed] = [r async for r in client.list()]
    assert listed.id == run
    after = await client.schedules.get("daily")
    assert (after.last_run, after.fired, after.next) == (run, 1, made.next)


async def test_backfill_starts_what_is_missing(client: Client) -> None:
    """Past ticks get their runs; done again, nothing starts twice."""
    await client.schedules.create("daily", cron("0 2 * * *"), nightly, "monday")
    first = datetime(2026, 3, 1, tzinfo=UTC)

    two = await client.schedules.backfill("daily", first, first + timedelta(days=2))
    again = await client.schedules.backfill("daily", first, first + timedelta(days=3))

    assert two == ("daily@2026-03-01T02:00:00Z", "daily@2026-03-02T02:00:00Z")
    assert again == ("daily@2026-03-03T02:00:00Z",)


async def test_what_cannot_be_backfilled(client: Client) -> None:
    """The future, moments without a zone, and too much at once."""
    await client.schedules.create("often", every("1s"), nightly, "monday")
    begin = datetime(2020, 1, 1, tzinfo=UTC)

    with pytest.raises(UsageError, match="more than 1000 ticks"):
        await client.schedules.backfill("often", begin, begin + timedelta(hours=1))
    with pytest.raises(UsageError, match="in the past"):
        await client.schedules.backfill("often", begin, datetime(2999, 1, 1, tzinfo=UTC))
    with pytest.raises(UsageError, match="time zone"):
        await client.schedules.backfill("often", begin.replace(tzinfo=None), begin)
    with pytest.raises(UsageError, match="ends before it begins"):
        await client.schedules.backfill("often", begin, begin - timedelta(hours=1))


async def test_remove_leaves_the_runs(bucket: Bucket, client: Client) -> None:
    """Nothing of the schedule is left but what it started."""
    await client.schedules.create("daily", DAILY, nightly, "monday")
    run = await client.schedules.trigger("daily")
    await client.schedules.remove("daily")

    assert names_in(bucket, names.SCHEDULES) == []
    assert (await client.get(run)).id == run


@pytest.mark.parametrize("verb", ["get", "pause", "resume", "trigger", "remove"])
async def test_a_name_without_a_schedule(client: Client, verb: str) -> None:
    """Every verb says that there is none."""
    with pytest.raises(NotFound, match="there is no schedule 'none'"):
        await getattr(client.schedules, verb)("none")


async def test_a_damaged_schedule_is_shown_as_such(bucket: Bucket, client: Client) -> None:
    """Lists go on with the others; asked for alone, it is an error."""
    bucket.create(names.schedule("bad"), b"no json", {"nonce": "x"}, True)
    await client.schedules.create("daily", DAILY, nightly, "monday")

    states = {s.name: s.state async for s in client.schedules.list()}
    assert states == {"bad": "damaged", "daily": "orphaned"}
    with pytest.raises(UsageError, match="damaged"):
        await client.schedules.get("bad")


def test_a_decorated_schedule_needs_no_arguments() -> None:
    """Where the schedule is written, it is checked that it can run."""
    with pytest.raises(InvalidDefinition, match="cannot run by a schedule of its own"):

        @workflow(name="schedules-test needs", schedule=every("1h"))
        async def needs(day: str) -> None: ...

    wrong: Any = "0 2 * * *"
    with pytest.raises(InvalidDefinition, match="is no schedule"):

        @workflow(name="schedules-test text", schedule=wrong)
        async def text() -> None: ...


def test_without_async(tmp_path: Any) -> None:
    """The blocking client has the same words."""
    with sync_connect(f"sqlite:///{tmp_path}/d.db") as client:
        client.schedules.create("daily", DAILY, nightly, "monday")
        run = client.schedules.trigger("daily")
        client.schedules.pause("daily")
        [found] = client.schedules.list()

        assert (found.state, found.last_run) == ("paused", run)
        assert client.get(run).workflow == "shop.nightly"
