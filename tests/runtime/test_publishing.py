"""Progress that a run publishes for others to see."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest

import durable
from durable.client import reading
from durable.decorators import step, workflow
from durable.errors import InvalidArguments, InvalidId, NotInWorkflow
from durable.protocol import names
from durable.protocol.retries import Retry
from durable.testing.virtual import virtual_bucket
from tests.runtime.clocks import BACKENDS, run, run_with_threads, virtual
from tests.runtime.runs import RUN, Run, a_step, a_workflow, value_of
from tests.runtime.world import DiesAt, World, world
from tests.virtual_time import virtual_seconds

backends = pytest.mark.parametrize("backend", BACKENDS)


@pytest.fixture(params=BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return virtual(request.param)


@step(name="publish-test pages")
async def pages() -> int:
    for page in range(1, 6):
        await virtual_seconds(0.4)
        durable.publish("page", page)
    return 5


@step(name="publish-test note")
async def note(i: int) -> int:
    await virtual_seconds(0.3)
    return i


@workflow(name="publish-test flow")
async def flow() -> str:
    durable.publish("phase", "reading")
    await pages()
    for i in range(3):
        durable.publish("phase", {"writing": i})
        await note(i)
    durable.publish("phase", "done")
    return "done"


async def published(w: World, run_id: str) -> dict[str, object]:
    start = await reading.read_start(w.store, run_id)
    found = await reading.published(w.store, run_id, start.instance)
    return {name: reading.plain_value(record.value) for name, record in found.items()}


def writes(one: Run) -> list[str]:
    return [verb for verb, name in one.bucket.log if f"runs/{RUN}/i/state/" in name]


# -- how often -------------------------------------------------------------------------------------


@backends
def test_one_write_a_second_for_each_name(backend: str) -> None:
    """The first at once, then the newest of each second; nothing when nothing is new."""

    @a_step
    async def busy() -> None:
        for i in range(1000):
            durable.publish("a", i)
            await virtual_seconds(0.01)
        await virtual_seconds(100)

    async def w() -> None:
        await busy()

    one = Run(a_workflow(w))

    async def main() -> Any:
        one.bucket = virtual_bucket()
        return await one.execute()

    value_of(run(backend, main))
    assert writes(one)[0] == "create"
    assert 10 <= len(writes(one)) <= 12


@pytest.mark.anyio
async def test_the_last_value_lands_before_the_result() -> None:
    """Even if it was published a moment before the end; and a run that fails lands it too."""

    @workflow(name="publish-test quick")
    async def quick(fail: bool) -> None:
        for i in range(100):
            durable.publish("i", i)
        if fail:
            raise ValueError

    for fail in (False, True):
        async with world() as w:
            await w.process()
            await w.start("r", quick, fail)
            await w.result("r")

            assert await published(w, "r") == {"i": 99}
            made = [n for verb, n in w.bucket.log if verb in {"create", "replace"}]
            states = [i for i, n in enumerate(made) if "/state/" in n]
            result = next(i for i, n in enumerate(made) if n.endswith("/result"))
            assert max(states) < result
            assert len(states) <= 2


# -- resuming --------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("applied", [False, True], ids=["unsent", "applied"])
async def test_whatever_call_its_worker_dies_at(applied: bool) -> None:
    """Once there is a result, every name shows its last value."""
    at = 0
    while True:
        at += 1
        async with world() as w:
            death = DiesAt(at, applied)
            assert await w.survive("r", flow, death) == "done"
            assert await published(w, "r") == {"phase": "done", "page": 5}, f"died at call {at}"
        if not death.died:
            break
    assert at > 15


@backends
def test_a_replay_does_not_show_the_past_again(backend: str) -> None:
    """While recorded outcomes are handed over nothing is written; then the newest value is."""

    async def w() -> None:
        for i in range(50):
            durable.publish("i", i)
            await note(i)
        await anyio.lowlevel.checkpoint()

    one = Run(a_workflow(w))

    async def main() -> None:
        value_of(await one.execute())
        one.bucket.log.clear()
        value_of(await one.execute())

    run(backend, main)
    assert writes(one) == []  # the run ends with its replay; its owner flushes what is left


@backends
def test_what_a_body_published_last_is_in_its_record(backend: str) -> None:
    """If it is not known to be in the store; a replay takes it from there."""

    @a_step
    async def quick() -> None:
        durable.publish("i", 1)
        durable.publish("i", 2)

    async def w() -> None:
        await quick()

    one = Run(a_workflow(w))

    async def main() -> list[object]:
        seen = []
        for _ in range(2):
            value_of(await one.execute())
            assert one.execution is not None
            await one.execution.publishing.flush()
            store = one.execution._around.store
            seen.append(await reading.published(store, RUN, "i"))
        return [(found["i"].epoch, bytes(found["i"].value)) for found in seen]

    assert run(backend, main) == [(1, b"2"), (2, b"2")]
    assert {n: bytes(v) for n, v in one.steps()["quick.1"].published.items()} == {"i": b"2"}


@backends
def test_retries_publish_no_second_copy(backend: str) -> None:
    """What each attempt publishes replaces what the last one did: it is a value, not a stream."""

    @a_step(retry=Retry(attempts=3, first=2, jitter=False))
    async def flaky() -> None:
        durable.publish("attempt", durable.current().attempt)
        if durable.current().attempt < 3:
            raise ConnectionError

    async def w() -> None:
        await flaky()

    one = Run(a_workflow(w))

    async def main() -> list[str]:
        one.bucket = virtual_bucket()
        value_of(await one.execute())
        assert one.execution is not None
        await one.execution.publishing.flush()
        return [item.name for item in one.bucket.list(names.state_folder(RUN, "i"), None).items]

    assert run(backend, main) == [names.state(RUN, "i", "attempt", 1)]


# -- where -----------------------------------------------------------------------------------------


@backends
def test_from_sync_code(backend: str) -> None:
    """A sync workflow and a sync step publish from their threads."""

    @a_step
    def work() -> None:
        durable.publish("step", "s")

    def w() -> None:
        durable.publish("flow", "f")
        work()

    one = Run(a_workflow(w))

    async def main() -> dict[str, bytes]:
        value_of(await one.execute())
        assert one.execution is not None
        await one.execution.publishing.flush()
        found = await reading.published(one.execution._around.store, RUN, "i")
        return {name: bytes(record.value) for name, record in found.items()}

    assert run_with_threads(backend, main) == {"flow": b'"f"', "step": b'"s"'}


@backends
def test_misuse(backend: str) -> None:
    """A bad name, a value that cannot be stored, a stray task, or no run at all: said at once."""

    async def w() -> list[str]:
        said = []
        for name, value in (("", 1), ("a\nb", 1), ("a", object())):
            try:
                durable.publish(name, value)
            except (InvalidId, InvalidArguments) as e:
                said.append(type(e).__name__)

        async def stray() -> None:
            try:
                durable.publish("a", 1)
            except NotInWorkflow as e:
                said.append(type(e).__name__)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stray)
        return said

    one = Run(a_workflow(w))

    assert value_of(run(backend, one.execute)) == [
        "InvalidId", "InvalidId", "InvalidArguments", "NotInWorkflow",
    ]  # fmt: skip
    with pytest.raises(NotInWorkflow):
        durable.publish("a", 1)


@backends
def test_a_name_is_no_path(backend: str) -> None:
    """Whatever it looks like, it stays in its folder."""

    async def w() -> None:
        durable.publish("../../start", 1)

    one = Run(a_workflow(w))

    async def main() -> None:
        value_of(await one.execute())
        assert one.execution is not None
        await one.execution.publishing.flush()

    run(backend, main)
    (name,) = {n for _, n in one.bucket.log if "start" in n and "/state/" in n}
    assert name.startswith(names.state_folder(RUN, "i"))
    assert name.count("/") == names.state_folder(RUN, "i").count("/") + 1
