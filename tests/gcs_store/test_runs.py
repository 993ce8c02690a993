"""Runs on `gs://`: clients and workers through HTTP, each object with its limit of mutations."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from urllib.request import Request, urlopen

import anyio
import pytest

from durable import NeedsAttention, RunFailed, connect, workflow
from durable.client import Client
from durable.decorators import WorkflowFunction, workflows
from durable.errors import Conflict
from durable.runtime.worker import Worker
from durable.store import LOCAL_PACE
from durable.store.gcs import GcsBackend
from durable.store.memory import Bucket
from durable.store.opening import open_store
from durable.testing.gcs import Handle, Service, serving
from tests.cli.command import FLOWS, begin, durable, until
from tests.client import shop
from tests.client.shop import charge, checkout, deliver, refused

BUCKET = "some-bucket"
STARTS = 50

P = ParamSpec("P")
R = TypeVar("R")

pytestmark = pytest.mark.anyio

_folders = itertools.count()


@pytest.fixture(scope="module")
def limited() -> Iterator[Handle]:
    with serving(Service({BUCKET: Bucket()}, rate_limit=0.01)) as handle:
        yield handle


@pytest.fixture
def url(limited: Handle, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder of the test's own, on the server that the environment names."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", limited.url)
    monkeypatch.setattr(GcsBackend, "pace", LOCAL_PACE)  # it is near, and its calls cost nothing
    shop.ran.clear()
    shop.gates.clear()
    return f"gs://{BUCKET}/runs-{next(_folders)}"


@pytest.fixture
async def client(url: str, anyio_backend: str) -> AsyncIterator[Client]:
    async with connect(url) as client:
        yield client


@asynccontextmanager
async def working(url: str) -> AsyncIterator[None]:
    """A worker on a store of its own, for as long as the block lasts."""
    store = open_store(url)
    worker = Worker(store, workflows())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        yield
        worker.stop()
    await store.aclose()


# -- what a run is --------------------------------------------------------------------------------


async def test_a_worker_executes_what_a_client_starts(url: str, client: Client) -> None:
    """Started here, executed by a worker, found again and listed by anybody."""
    handle = await client.start(checkout.options(id="order/1"), "A-1")
    waiting = await handle.status()
    async with working(url):
        value = await handle.result(timeout=20)
    found = await client.get("order/1")
    listed = [(run.id, run.status) async for run in client.list()]

    assert waiting == "waiting"
    assert value == await found.result(timeout=0) == ("receipt A-1", 3)
    assert await found.status() == "completed"
    assert listed == [("order/1", "completed")]
    assert [step.path for step in await found.steps()] == ["charge.1", "deliver.1"]


async def test_a_failure_comes_back_as_its_class(client: Client) -> None:
    """The error of a step is the cause of the run's, rebuilt from the bucket."""
    with pytest.raises(RunFailed) as caught:
        await client.run(refused.options(id="x"), "A-1")
    handle = await client.get("x")

    assert type(caught.value.__cause__) is PermissionError
    assert await handle.status() == "failed"


async def test_cancelled_it_goes_on_where_it_was(client: Client) -> None:
    """A run that was handed back continues behind its last record."""
    await cut_off_in_delivery(client, checkout.options(id="x"), "A-1")
    shop.gates["A-1"].open.set()

    assert await client.run(checkout.options(id="x"), "A-1") == ("receipt A-1", 3)
    assert shop.ran == ["charge A-1", "deliver A-1", "deliver A-1"]


async def cut_off_in_delivery(
    client: Client, workflow: WorkflowFunction[P, R], *args: P.args, **kwargs: P.kwargs
) -> None:
    """Run it here up to the delivery of A-1, then cancel: the run is given back as it stands."""
    gate = shop.gate("A-1")

    async def cut_off() -> None:
        await gate.reached.wait()
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cut_off)
        await client.run(workflow, *args, **kwargs)


# -- who is first ---------------------------------------------------------------------------------


async def test_many_starts_of_one_id_are_one_run(url: str, limited: Handle) -> None:
    """Two clients that start one id 50 times at once get handles of one instance."""
    instances: list[str] = []

    async def start(client: Client) -> None:
        handle = await client.start(checkout.options(id="x"), "A-1")
        instances.append(handle.instance)

    async with connect(url) as one, connect(url) as two, anyio.create_task_group() as tasks:
        forget_calls(limited)
        for _ in range(STARTS // 2):
            tasks.start_soon(start, one)
            tasks.start_soon(start, two)

    assert len(instances) == STARTS
    assert len(set(instances)) == 1
    # Who is second with its start but first with the marker looks after the run that was first.
    made = Counter(name.split("/")[0] for name in set(created(limited, url)))
    assert (made["runs"], made["live"]) == (1, 1)


async def test_two_clients_that_run_one_id_execute_it_once(url: str) -> None:
    """The second waits for the first, and both return what the first's bodies returned."""
    values: list[tuple[str, int]] = []

    async def run(client: Client) -> None:
        values.append(await client.run(checkout.options(id="x"), "A-1"))

    async with connect(url) as one, connect(url) as two, anyio.create_task_group() as tasks:
        tasks.start_soon(run, one)
        tasks.start_soon(run, two)

    assert values == [("receipt A-1", 3)] * 2
    assert shop.ran == ["charge A-1", "deliver A-1"]


async def test_another_input_under_the_same_id_is_a_conflict(client: Client) -> None:
    """The run that exists is not touched."""
    await client.start(checkout.options(id="x"), "A-1")

    with pytest.raises(Conflict, match="'x'"):
        await client.start(checkout.options(id="x"), "B-2")


# -- the code changes -----------------------------------------------------------------------------


class Code:
    """What the workflow below does with an order; a new version charges another one."""

    charges = "A-1"


@workflow(name="gcs.changing")
async def changing() -> int:
    await charge(Code.charges)
    return await deliver("A-1")


async def test_changed_code_needs_attention_until_it_is_back(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that is not the recorded one stops the run, visibly; with the old code it goes on."""
    await cut_off_in_delivery(client, changing.options(id="x"))
    shop.gates["A-1"].open.set()
    with monkeypatch.context() as changed:
        changed.setattr(Code, "charges", "B-2")
        with pytest.raises(NeedsAttention) as caught:
            await client.run(changing.options(id="x"))
    handle = await client.get("x")
    status = await handle.status()
    listed = [run.id async for run in client.list(status="needs-attention")]
    value = await client.run(changing.options(id="x"))

    assert caught.value.reason == "drift"
    assert "charge.1" in str(caught.value)
    assert (status, listed) == ("needs-attention", ["x"])
    assert value == 3
    assert shop.ran == ["charge A-1", "deliver A-1", "deliver A-1"]


# -- a worker dies --------------------------------------------------------------------------------


def test_after_kill_9_another_worker_finishes(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The dead worker's lock file proves its death: the next takes its run over, and ends it."""
    monkeypatch.setenv("DURABLE_STORE", url)
    flow = f"{FLOWS}:three"
    started = durable("start", flow, "--id", "x", "--input", '{"word": "hi"}', folder=tmp_path)
    first = begin("worker", FLOWS, folder=tmp_path)
    try:
        until(first, "gate go")
    finally:
        first.kill()
        first.communicate(timeout=20)
    (tmp_path / "go").touch()
    second = durable("worker", FLOWS, "--until-idle", folder=tmp_path)
    result = durable("result", "x", folder=tmp_path)
    shown = durable("show", "x", "--json", folder=tmp_path)

    assert started.code == second.code == 0, started.err + second.err
    assert second.out == "gate go\nnote last\n"
    assert result.out == '["hi","go","last"]\n'
    assert [(e["epoch"], e["why"]) for e in shown.document["epochs"]] == [(2, "takeover")]


# -- what it costs --------------------------------------------------------------------------------


async def test_a_fresh_run_costs_its_writes_and_no_read(client: Client, limited: Handle) -> None:
    """Start 2, two steps 2, finish 2, and 1 for the lease of a worker that had no run.

    The first run of a process costs one look at the bucket's settings, too.
    """
    forget_calls(limited)
    await client.run(checkout.options(id="x"), "A-1")
    first = billed(limited)
    forget_calls(limited)
    await client.run(checkout.options(id="y"), "A-1")

    assert first == {"A": 7, "B": 1}
    assert billed(limited) == {"A": 6, "B": 0}
    assert not asked(limited) & {"get", "media", "list"}  # nor for what is absent, which is free


async def test_each_step_costs_one_write(client: Client, limited: Handle) -> None:
    """20 steps more are 20 writes more."""
    await client.run(many.options(id="warm"), 0)
    costs = []
    for steps in (0, 20):
        forget_calls(limited)
        await client.run(many, steps)
        costs.append(billed(limited))

    assert costs == [{"A": 4, "B": 0}, {"A": 24, "B": 0}]


@workflow(name="gcs.many")
async def many(steps: int) -> None:
    for _ in range(steps):
        await charge("A-1")


async def test_starting_for_a_worker_costs_three_writes(client: Client, limited: Handle) -> None:
    """Marker, `start` and the bell; looking for the outcome meanwhile is not billed.

    The first start of a process costs one look at the bucket's settings, too.
    """
    forget_calls(limited)
    handle = await client.start(checkout.options(id="x"), "A-1")
    with pytest.raises(TimeoutError):
        await handle.result(timeout=0)

    assert billed(limited) == {"A": 3, "B": 1}


# -- what the server saw --------------------------------------------------------------------------


def forget_calls(server: Handle) -> None:
    _control(server, "DELETE")


def billed(server: Handle) -> dict[str, int]:
    """Operations that cost something, by class; deletes are free."""
    found = _control(server, "GET")["billed"]
    return {kind: found[kind] for kind in "AB"}


def asked(server: Handle) -> set[str]:
    """The verbs of all requests, whatever they were answered."""
    return set(_control(server, "GET")["verbs"])


def created(server: Handle, url: str) -> list[str]:
    """The name of each object that was written under the URL, each time."""
    prefix = url.removeprefix(f"gs://{BUCKET}/") + "/"
    return [
        call["name"].removeprefix(prefix)
        for call in _control(server, "GET")["log"]
        if call["verb"] == "insert" and call["status"] == 200 and call["name"].startswith(prefix)
    ]


def _control(server: Handle, method: str) -> Any:
    request = Request(f"{server.url}/_durable/calls?log=1", method=method)
    with urlopen(request, timeout=10) as answer:
        return json.load(answer)
