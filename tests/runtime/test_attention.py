"""A run that needs attention is a state like others, and a deployment ends it.

Also what a change of stored types is (B62): tolerated, filled with defaults, or parked.
"""

from __future__ import annotations

import dataclasses
import types
from typing import Any

import pytest

import durable
from durable.client import Client
from durable.decorators import workflows
from durable.runtime.definitions import WorkflowDefinition
from tests.runtime.clocks import BACKENDS, virtual
from tests.runtime.world import DiesAt, World, world
from tests.virtual_time import virtual_seconds

pytestmark = pytest.mark.anyio

bodies: list[str] = []  # of steps, as they begin

FLOW = """
@dataclass
class Order:
    id: str
{order}

@dataclass
class Receipt:
    total: int
{receipt}

@durable.step(name="attention-test charge")
async def charge(order: str) -> Receipt:
    bodies.append("charge")
    return Receipt({values})

@durable.step(name="attention-test ship")
async def ship(what: str) -> str:
    bodies.append("ship")
    return what

@durable.workflow(name="attention-test buy")
async def buy(order: Order) -> str:
    receipt = {first}
    await durable.sleep(60)
    return await ship(str({last}))
"""
GIVEN = {"order": "", "receipt": "", "values": "7", "first": "await charge(order.id)"}
LAST = "receipt.total"


@pytest.fixture(params=BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    bodies.clear()
    return virtual(request.param)


def deployed(**changed: str) -> dict[str, WorkflowDefinition]:
    """The code as a deployment brings it, and what a worker of it serves."""
    module = types.ModuleType("attention_test_deployed")
    module.__dict__.update(durable=durable, dataclass=dataclasses.dataclass, bodies=bodies)
    source = FLOW.format(**{**GIVEN, "last": LAST, **changed})
    exec(compile(source, "<deployed>", "exec", dont_inherit=True), module.__dict__)
    there = module.__dict__
    return {there["buy"].name: there["buy"].definition}


class Deployments:
    """Workers of one version after the other over the same runs."""

    def __init__(self, w: World) -> None:
        self.world = w
        self.number = 0

    async def deploy(self, faults: Any = None, **changed: str) -> Any:
        self.number += 1
        code = deployed(**changed)
        return await self.world.process(
            code=code, version=f"v{self.number}", faults=faults, grace=0.0
        )

    async def half_done(self, **changed: str) -> None:
        """A run whose first step is recorded, parked in its sleep; its worker has gone."""
        first = await self.deploy(**changed)
        definition = workflows()["attention-test buy"]
        order = definition.hints["order"]
        fields = {f.name: "field" for f in dataclasses.fields(order)}  # type: ignore[arg-type]  # it is a dataclass
        flow = types.SimpleNamespace(definition=definition, priority=0)
        await self.world.start("r", flow, order(**fields))  # type: ignore[operator,arg-type]  # as above
        await self.world.until(lambda: bool(self.world.hints("timers/")))
        await self.world.until(lambda: not self.world.hints("live/"))
        first.worker.stop()
        await first.gone.wait()


EXTRA = "    extra: str"


@pytest.mark.parametrize("place", ["order", "receipt"])
async def test_b62_a_field_that_is_no_more_is_passed_over(place: str) -> None:
    """B62: stored arguments and results keep it; the new type is made without it."""
    async with world() as w:
        deployments = Deployments(w)
        await deployments.half_done(
            **{place: EXTRA}, values="7, 'x'" if place == "receipt" else "7"
        )
        await deployments.deploy()

        assert await w.result("r") == "7"
    assert bodies == ["charge", "ship"]


@pytest.mark.parametrize(
    ("place", "shown"), [("order", "order.extra"), ("receipt", "receipt.extra")]
)
async def test_b62_a_new_field_gets_its_default(place: str, shown: str) -> None:
    """B62: what was stored before there was such a field reads as if it had the default."""
    async with world() as w:
        deployments = Deployments(w)
        await deployments.half_done()
        await deployments.deploy(**{place: f"{EXTRA} = 'default'"}, last=shown)

        assert await w.result("r") == "default"
    assert bodies == ["charge", "ship"]


@pytest.mark.parametrize("place", ["order", "receipt"])
async def test_b62_a_new_field_without_default_parks_the_run(place: str) -> None:
    """B62: with the decoding error, tried once; the next deployment, with a default, goes on."""
    async with world() as w:
        deployments = Deployments(w)
        await deployments.half_done()
        bad = await deployments.deploy(**{place: EXTRA})

        hint = await w.attention("r")
        assert hint.reason == "undecodable"
        assert "missing required field `extra`" in hint.message
        assert hint.hint.startswith("give the new field a default")
        if place == "receipt":
            assert (hint.recorded, hint.asked) == ('{"total":7}', "Receipt")
        await virtual_seconds(300)
        assert hint == await w.attention("r")
        bad.worker.stop()
        await bad.gone.wait()

        await deployments.deploy(**{place: f"{EXTRA} = 'default'"})
        assert await w.result("r") == "7"
    assert bodies == ["charge", "ship"]


# -- the state ------------------------------------------------------------------------------------

MOVED = {"first": "await charge('another')"}


async def test_it_is_listed_and_explained() -> None:
    """The list has it; status and hint name object, recorded, asked and remedy."""
    async with world() as w:
        deployments = Deployments(w)
        await deployments.half_done()
        await deployments.deploy(**MOVED)
        hint = await w.attention("r")
        await w.until(lambda: not w.hints("live/"))

        client = Client(w.store)
        listed = [run async for run in client.list(status="needs-attention")]
        assert [run.id for run in listed] == ["r"]
        assert listed[0].status.reason.startswith("drift: run 'r' recorded call")
        assert (await (await client.get("r")).status()) == "needs-attention"
        assert (hint.reason, hint.path) == ("drift", "attention-test%20charge.1")
        assert hint.recorded.startswith("attention-test charge ")
        assert hint.asked.startswith("attention-test charge ")
        assert hint.recorded != hint.asked
        assert "bring back the code" in hint.hint


async def test_it_is_never_tried_again_by_the_same_code() -> None:
    """Other workers of that version, and time, leave it alone."""
    async with world() as w:
        deployments = Deployments(w)
        await deployments.half_done()
        await deployments.deploy(**MOVED)
        await w.attention("r")
        await w.until(lambda: not w.hints("live/"))
        before = w.hints("runs/")

        await w.process(code=deployed(**MOVED), version=f"v{deployments.number}")
        await virtual_seconds(600)

        assert w.hints("runs/") == before
        assert w.hints("attention/")
    assert bodies == ["charge"]


async def test_it_goes_on_after_a_deployment_that_fits() -> None:
    """Nobody touches the store by hand: a worker of other code tries it once."""
    async with world() as w:
        deployments = Deployments(w)
        await deployments.half_done()
        bad = await deployments.deploy(**MOVED)
        await w.attention("r")
        bad.worker.stop()
        await bad.gone.wait()
        await deployments.deploy()

        assert await w.result("r") == "7"
        await w.until(lambda: not w.hints("attention/"))
    assert bodies == ["charge", "ship"]


@pytest.mark.parametrize("applied", [False, True])
async def test_it_is_lost_at_no_death(applied: bool) -> None:
    """Its worker dies on the way to it, sooner or later: the next one brings it there."""
    call = 1
    while await dies_on_the_way(DiesAt(call, applied)):
        call += 5
    assert call > 10


async def dies_on_the_way(death: DiesAt) -> bool:
    async with world() as w:
        deployments = Deployments(w)
        await deployments.half_done()
        await deployments.deploy(faults=death, **MOVED)
        await w.until(lambda: death.died or (not w.hints("live/") and bool(w.hints("attention/"))))
        died = death.died
        await w.process(code=deployed(**MOVED), version=f"v{deployments.number}")

        assert (await w.attention("r")).reason == "drift"
        await w.until(lambda: not w.hints("live/"))
        return died
