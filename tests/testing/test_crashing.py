"""`crash_at_every_call`: good workflows pass, each kind of bad one is told what is wrong."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from typing import Any

import anyio
import pytest

import durable
from durable import step, sync, workflow
from durable.errors import UsageError
from durable.testing import BlockingEnvironment, CrashTestFailed, crash_at_every_call
from tests.testing import shop

# Of a run with one step: bell, list, lease, take, list, step, result, history, end of the marker.
CALLS, CRASHES = 9, 15
BACKENDS = ["asyncio", pytest.param("trio", marks=pytest.mark.requires("trio"))]

ledger: list[str] = []
keyed: dict[str, int] = {}


@step
async def write_down(entry: str) -> int:
    ledger.append(entry)
    return len(ledger)


@step
async def write_once(entry: str) -> int:
    return keyed.setdefault(durable.current().idempotency_key, len(keyed) + 1)


@step
def draw() -> str:
    return uuid.uuid4().hex


@step(attempts=3)
def trip(attempt_needed: int) -> int:
    if durable.current().attempt < attempt_needed:
        raise OSError("tripped")
    return attempt_needed


@workflow
async def everything(order: str) -> str:
    first = await shop.invoice(order)
    pair = await durable.gather(shop.invoice("x"), shop.wrap_up.call("y"))
    await durable.sleep("2h")
    many = await durable.map(shop.invoice, ["a", "b", "c"], limit=2)
    third = await trip.call(3)
    await durable.sleep(5)
    return f"{first} {pair} {many} {third}"


@workflow
def everything_sync(order: str) -> str:
    one = shop.wrap_up(order)
    two = sync.map(shop.wrap_up, ["a", "b"])
    return f"{one} {two} {trip(2)}"


@step(durability="group")
def cheaply(entry: str) -> str:
    return entry.upper()


@workflow
async def grouped(order: str) -> str:
    letters = [await cheaply.call(letter) for letter in order]
    receipt = await shop.invoice("".join(letters))
    await durable.sleep("2h")
    return f"{receipt} {await cheaply.call('z')}"


@workflow
async def doomed(order: str) -> str:
    await shop.invoice(order)
    raise ValueError(f"no such order {order}")


@workflow
async def writes_twice(order: str) -> int:
    return await write_down(order)


@workflow
async def writes_once(order: str) -> int:
    return await write_once(order)


@workflow
async def drawn() -> str:
    return f"drawn {await draw.call()}"


@workflow
async def reads_clock() -> float:
    await shop.invoice("A")
    return time.monotonic()


@workflow
async def rolls_dice() -> str:
    return await shop.invoice(str(random.random()))


@workflow
async def forks() -> str:
    ledger.append("x")
    if len(ledger) % 2:
        return await shop.invoice("odd")
    return await write_down("even") and "even"


@step(at_most_once=True)
async def post() -> int:
    return 1


@workflow
async def posts_once() -> int:
    return await post()


@workflow
async def decides() -> str:
    try:
        async with durable.timeout("1h"):
            await durable.sleep("2h")
    except TimeoutError:
        pass
    won = await durable.select(body=shop.ponder(1), pause=durable.sleep("3s"))
    return f"{won[0]} {await shop.invoice('A')}"


@workflow
async def swaps() -> None:
    ledger.append("x")
    first, second = (shop.invoice, write_down) if len(ledger) == 1 else (write_down, shop.invoice)
    await first("1")
    await second("2")


@pytest.fixture(autouse=True)
def _empty() -> None:
    ledger.clear()
    keyed.clear()


def line_of(fn: Any, text: str) -> int:
    """The number of the line of a workflow's source that contains the text."""
    code = fn.definition.fn.__code__
    with open(code.co_filename) as file:
        lines = file.read().splitlines()
    return next(n for n in range(code.co_firstlineno, len(lines)) if text in lines[n - 1])


# -- what passes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_kind_of_call_survives_every_crash(backend: Any) -> None:
    """Steps, branches, retries, short and parked sleeps: the same end after each crash."""
    report = crash_at_every_call.options(backend=backend)(everything, "A")

    assert report.value is not None
    assert report.value.startswith("receipt for A ('receipt for x', 'parcel y')")
    assert report.outcome == f'returned "{report.value}"'
    assert report.calls > 20
    assert report.crashes > report.calls
    assert set(report.body_runs) == set(report.steps)
    assert report.body_runs["invoice.1"] == 2
    assert report.body_runs["trip.1"] <= 4
    assert report.varying == []
    assert str(report).startswith(
        f"everything: {report.calls} store calls, {report.crashes} crashes, each time it returned "
    )


def test_decisions_survive_every_crash() -> None:
    """The deadline of a block and the winner of a select are the same after each crash."""
    report = crash_at_every_call(decides)

    assert report.value == "pause receipt for A"


def test_children_survive_every_crash() -> None:
    """A run that a run starts and waits for is started once, whatever call is the last."""
    report = crash_at_every_call(shop.deliver_all)

    assert report.value == "receipt for two, receipt for one"
    bodies = [path for path in report.body_runs if path.startswith("invoice.1")]
    assert len(bodies) == 2
    assert max(report.body_runs.values()) == 2


def test_cheap_steps_survive_every_crash() -> None:
    """Those that were not recorded yet run again, and nothing that others see changes."""
    report = crash_at_every_call(grouped, "abc")

    assert report.value == "receipt for ABC Z"
    assert max(report.body_runs.values()) == 2


def test_sync_workflow_survives_every_crash() -> None:
    """So does a workflow that runs in threads."""
    report = crash_at_every_call(everything_sync, "A")

    assert report.value == "parcel A ['parcel a', 'parcel b'] 2"
    assert report.crashes > report.calls


def test_smallest_workflow_pins_the_calls() -> None:
    """One step is nine calls: three that read are crashed once, six that write twice."""
    report = crash_at_every_call(shop.invoice_all, ["A"])

    assert len(report.steps) == 1
    assert (report.calls, report.crashes) == (CALLS, CRASHES)


def test_failing_workflow_fails_the_same_each_time() -> None:
    """An error of the workflow is an outcome like any other."""
    report = crash_at_every_call(doomed, "A")

    assert report.outcome == "raised builtins.ValueError: no such order A"
    assert report.value is None


def test_idempotent_body_passes_where_another_does_not() -> None:
    """A body that runs again is no fault if it comes to the same."""
    report = crash_at_every_call.options(prepare=lambda env: keyed.clear())(writes_once, "A")

    assert report.value == 1
    assert report.body_runs == {"write_once.1": 2}


def test_steps_that_vary_are_taken_as_recorded() -> None:
    """A step may return something else each time it runs: what is recorded counts."""
    report = crash_at_every_call(drawn)

    assert report.varying == ["draw.1"]


def test_prepare_and_drive_are_called_for_each_run() -> None:
    """`prepare` puts stubs in place before each run, `drive` acts once it has started."""
    prepared: list[BlockingEnvironment] = []
    driven: list[str] = []

    def prepare(env: BlockingEnvironment) -> None:
        prepared.append(env)
        env.stub(shop.invoice, returns="stubbed")

    def drive(env: BlockingEnvironment, handle: sync.Handle[Any]) -> None:
        driven.append(handle.id)
        env.advance("1d")

    tested = crash_at_every_call.options(prepare=prepare, drive=drive)
    report = tested(shop.remind.options(id="mine"), "ada")

    assert report.value == "stubbed after a year"
    assert set(driven) == {"mine"}
    assert len(prepared) == len(driven)
    assert len(driven) == report.crashes + 3  # two without a crash, and the one that found none


def test_events_survive_every_crash() -> None:
    """Two events for two waits, sent early: each is taken once, in their order, crash or not."""

    def drive(env: BlockingEnvironment, handle: sync.Handle[Any]) -> None:
        handle.send("approval", "ada", key="1")
        handle.send("approval", "bob", key="2")

    report = crash_at_every_call.options(drive=drive)(shop.approve_twice, "A")

    assert report.value == "A approved by ada and bob"


def test_event_or_timeout_survives_every_crash() -> None:
    """An event at the last moment, or none: the same decision after every crash."""

    def late(env: BlockingEnvironment, handle: sync.Handle[Any]) -> None:
        env.advance("6d")
        handle.send("approval", "ada")

    assert crash_at_every_call.options(drive=late)(shop.approve, "A").value == (
        "receipt for A, approved by ada"
    )
    assert crash_at_every_call(shop.approve, "A").value == "receipt for A, approved by nobody"


def test_cancellation_survives_every_crash() -> None:
    """A run cancelled in its sleep ends cancelled, whatever call the worker dies at."""

    def cancel(env: BlockingEnvironment, handle: sync.Handle[Any]) -> None:
        env.advance("1d")
        handle.cancel()

    report = crash_at_every_call.options(drive=cancel)(shop.remind, "ada")

    assert report.outcome.startswith("raised durable.errors.RunCancelled")


def test_same_seed_same_calls() -> None:
    """Two tests with one seed try the same calls."""
    first, again = (crash_at_every_call(shop.place_order, "A") for _ in range(2))

    assert first == again


def test_crash_test_runs_inside_a_running_loop() -> None:
    """It blocks, but does not mind the event loop around it."""

    async def main() -> int:
        return crash_at_every_call(shop.invoice_all, ["A"]).crashes

    assert anyio.run(main) == CRASHES


# -- what does not ---------------------------------------------------------------------------------


def fails(workflow: Callable[..., Any], *args: Any, **options: Any) -> str:
    with pytest.raises(CrashTestFailed) as caught:
        crash_at_every_call.options(**options)(workflow, *args)  # type: ignore[arg-type]  # arguments are passed on
    return str(caught.value)


def test_body_that_is_not_idempotent_is_found() -> None:
    """The message says at which call, what differed, and how often which body ran."""
    said = fails(writes_twice, "A", prepare=lambda env: ledger.clear())

    assert "writes_twice does not survive every crash" in said
    assert "steps/write_down.1, before it was applied" in said
    assert "without a crash it returned 1\n" in said
    assert "with it, it        returned 2\n" in said
    assert "write_down.1: returned 1 without a crash, returned 2 with it" in said
    assert "its body ran 2 times" in said
    assert "idempotency_key" in said


@pytest.mark.filterwarnings("ignore::durable.errors.NotRepeatable")
@pytest.mark.parametrize(
    ("workflow", "text", "what"),
    [
        (reads_clock, "time.monotonic()", "the code ends otherwise than the run did"),
        (rolls_dice, "random.random()", "now calls it with other arguments"),
    ],
)
def test_code_that_is_not_repeatable_is_named_by_line(workflow: Any, text: str, what: str) -> None:
    """Clocks and chance between steps are found without a crash, and the line is named."""
    said = fails(workflow)

    assert "is not repeatable" in said
    assert what in said
    assert f"{__file__}:{line_of(workflow, text)}: {text[:-2]}(...)" in said


def test_at_most_once_tells_what_to_catch() -> None:
    """A crash in a step that is at most once leaves its outcome unknown: the message says so."""
    said = fails(posts_once)

    assert "raised durable.errors.OutcomeUnknown" in said
    assert "catch OutcomeUnknown in the workflow" in said


def test_calls_that_differ_from_run_to_run_are_named() -> None:
    """Code that depends on what other code changes: both lists of calls, or where they part."""
    said = fails(forks)

    assert "is not repeatable" in said
    assert "'write_down.1'" in said
    assert f"{__file__}:{line_of(forks, 'write_down(')}: write_down(...)" in said


def test_changed_order_is_named() -> None:
    """Two calls that change places are told apart by their names."""
    said = fails(swaps)

    assert "is not repeatable" in said
    assert "write_down.1" in said


def test_workflow_that_never_ends_is_told() -> None:
    """A run that waits for what nobody sends says so, and names the body."""
    said = fails(shop.stall_once)

    assert "does not end" in said
    assert "stall.1 of run 'crash-test'" in said


def test_only_workflows_are_crash_tested() -> None:
    """A step, or a plain function, is refused at once."""
    wrong: Any = shop.invoice
    with pytest.raises(UsageError, match="only workflows can be crash-tested, not 'invoice'"):
        crash_at_every_call(wrong, "A")
