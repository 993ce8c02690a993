"""Several versions of a workflow side by side, and runs that are pinned to theirs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from durable import current, every, sleep
from durable.client import Client
from durable.client.load import look_at_load
from durable.decorators import step, workflow, workflows
from durable.errors import InvalidDefinition, InvalidId, UsageError
from durable.runtime.definitions import WorkflowDefinition, shown
from tests.runtime.clocks import BACKENDS, virtual
from tests.runtime.world import world
from tests.virtual_time import virtual_seconds

pytestmark = pytest.mark.anyio


@pytest.fixture(params=BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return virtual(request.param)


@step(name="versions-test note")
async def note(what: str) -> str:
    return what


@workflow(name="versions-test billing", version="1")
async def billing_1() -> list[str]:
    return [await note("old"), current().version]


@workflow(name="versions-test billing", version="2")
async def billing_2() -> list[str]:
    return [await note("new"), current().version]


@workflow(name="versions-test report", version="1", pinned=True)
async def report_1() -> str:
    await sleep(60)
    return await note("old report")


@workflow(name="versions-test report", version="2", pinned=True)
async def report_2() -> str:
    await sleep(60)
    return await note("new report")


def alone(definition: WorkflowDefinition) -> dict[str, WorkflowDefinition]:
    """What a worker serves that was deployed with this version only."""
    return {definition.name: msgspec.structs.replace(definition, others=())}


async def test_each_version_goes_on_with_its_own_runs() -> None:
    """One worker has both; the version that a run was started by decides which code it gets."""
    async with world() as w:
        await w.process()
        await w.start("one", billing_1)
        await w.start("two", billing_2)

        assert await w.result("one") == ["old", "1"]
        assert await w.result("two") == ["new", "2"]


async def test_a_run_that_is_not_pinned_goes_on_with_what_there_is() -> None:
    """Its version is not here: the code that is takes it, call by call."""
    async with world() as w:
        await w.process(code=alone(billing_2.definition))
        await w.start("one", billing_1)

        assert await w.result("one") == ["new", "1"]


async def test_a_pinned_run_waits_for_its_version() -> None:
    """No other version takes it, not after a sleep either; list and doctor say what it needs."""
    needs = "no live worker has version '1' of workflow 'versions-test report', which it needs"
    async with world() as w:
        first = await w.process(code=alone(report_1.definition))
        await w.start("r", report_1)
        await w.until(lambda: bool(w.hints("timers/")) and not w.hints("live/"))
        first.worker.stop()
        await first.gone.wait()
        await w.process(code=alone(report_2.definition))
        await virtual_seconds(300)

        client = Client(w.store)
        listed = [run async for run in client.list(workflow="versions-test report")]
        assert [(run.status, run.status.reason) for run in listed] == [("waiting", needs)]
        assert (await (await client.get("r")).status()).reason == needs
        found = await look_at_load(w.store, billed=False)
        assert [f.found for f in found] == [f"1 run waits: {needs} (r)"]

        await w.process(code=alone(report_1.definition))
        assert await w.result("r") == "old report"


async def test_a_pinned_run_that_was_never_taken_waits_too() -> None:
    """Its marker says which version it is for; a worker that has both takes it."""
    async with world() as w:
        await w.process(code=alone(report_2.definition))
        await w.start("r", report_1)
        await virtual_seconds(150)
        assert not [name for name in w.hints("runs/r/") if not name.endswith("/start")]

        await w.process()
        assert await w.result("r") == "old report"


@workflow(name="versions-test family")
async def family() -> str:
    return (await report_1.options(id="child").start()).id


@workflow(name="versions-test plain", version="3", pinned=True)
def plain() -> str:
    return current().version


async def test_a_child_and_a_ticks_run_are_pinned_as_well() -> None:
    """Whoever starts a run says which version it is for."""
    async with world() as w:
        await w.process(code=alone(family.definition))
        await w.start("parent", family)
        assert await w.result("parent") == "child"
        client = Client(w.store)
        await client.schedules.create("hourly", every("1h"), report_1)
        tick = await client.schedules.trigger("hourly")
        by_client = await client.start(report_1.options(id="by client"))

        for run in ("child", tick, by_client.id):
            assert (await w.facts(run)).start.pin == "1"


async def test_plain_functions_are_pinned_alike() -> None:
    """A workflow that runs in a thread has versions, too."""
    async with world() as w:
        await w.process()
        await w.start("r", plain)

        assert await w.result("r") == "3"


def test_the_version_defined_last_is_the_workflow() -> None:
    """It has the others beside it, and workers show them all."""
    newest = workflows()["versions-test billing"]

    assert newest.version == "2"
    assert [other.version for other in newest.others] == ["1"]
    assert shown({newest.name: newest}) == [
        "versions-test billing", "versions-test billing@1", "versions-test billing@2",
    ]  # fmt: skip


def test_one_version_is_defined_once() -> None:
    """Two functions of one name and version are told apart by nobody."""
    with pytest.raises(InvalidDefinition, match="two workflows are named"):

        @workflow(name="versions-test billing", version="1")
        async def again() -> None: ...


@pytest.mark.parametrize("version", [2, None, "a\nb", "x" * 300])
def test_a_version_that_no_record_can_keep_is_refused(version: Any) -> None:
    """Where it is written: a number, as versions often are, would have made runs unreadable."""
    with pytest.raises(InvalidId, match="the version"):
        workflow(name="versions-test bad", version=version)(note.definition.fn)


def test_pinning_is_a_yes_or_a_no() -> None:
    """It is stored with each run."""
    with pytest.raises(InvalidDefinition, match="pinned='3'"):
        workflow(name="versions-test bad", version="3", pinned="3")(note.definition.fn)  # type: ignore[call-overload]  # wrong on purpose


@pytest.mark.parametrize(
    "options",
    [{"tags": {"n": 1}}, {"tags": {1: "n"}}, {"tags": 5}, {"priority": "1"}, {"priority": 1.5}],
    ids=repr,
)
def test_options_that_no_record_can_keep_are_refused(options: dict[str, Any]) -> None:
    """Whoever starts the run: a client, a parent, a schedule."""
    with pytest.raises(UsageError, match=r"a tag|tags|priority"):
        plain.options(**options)


def test_pinning_needs_a_version() -> None:
    """There is nothing to be pinned to."""
    with pytest.raises(InvalidDefinition, match="pinned to no version"):

        @workflow(name="versions-test loose", pinned=True)
        async def loose() -> None: ...
