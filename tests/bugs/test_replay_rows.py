"""Public bug reports about replay, as trials of ours. The id of a row names the report."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import types
from collections.abc import Callable
from typing import Any

import pytest

import durable
from durable import current, step, workflow
from durable.errors import NeedsAttention, NotInWorkflow, NotRecorded, RunFailed
from durable.testing import crash_at_every_call, environment
from tests.runtime.clocks import run
from tests.runtime.runs import Run, value_of
from tests.virtual_time import virtual_seconds

BIG = 200_000  # characters; far beyond what a list carries

latencies: dict[str, float] = {}
changes: dict[str, Any] = {}
shown: list[str] = []


@pytest.fixture(autouse=True)
def _as_new() -> None:
    latencies.clear()
    changes.clear()
    shown.clear()


@step(name="bug-tag")
async def tag(text: str) -> str:
    await virtual_seconds(latencies.get(text, 0.0))
    return f"<{text}>"


@step(name="bug-other")
async def other(text: str) -> str:
    return f"other {text}"


@step(name="bug-big")
async def big(letter: str) -> str:
    return letter * BIG


@step(name="bug-nested")
async def nested(lists: list[list[int]]) -> int:
    return sum(map(len, lists))


@step(name="bug-slow-once", attempts=2, timeout="10s")
async def slow_once(text: str) -> str:
    if current().attempt == 1:
        await virtual_seconds(3600)
    return text


async def chain(text: str) -> str:
    for letter in "abc":
        text = await tag(f"{text}{letter}")
    return text


# -- B40, B41, B46, B50: identity ------------------------------------------------------------------


@workflow(name="bug-B40")
async def parallel(texts: list[str]) -> list[str]:
    return [*await durable.gather(*(tag(text) for text in texts)), await tag("after")]


@pytest.mark.parametrize("order", ["abc", "bca", "cab"])
def test_b40_parallel_steps_keep_their_identity(order: str) -> None:
    """B40: parallel steps that end in any order are the same steps after every crash."""
    latencies.update({text: 1.0 + place for place, text in enumerate(order)})

    report = crash_at_every_call(parallel, ["a", "b", "c"])

    assert report.value == ["<a>", "<b>", "<c>", "<after>"]


# In which order three steps end, ties included: however their latencies are drawn, it is one of
# these thirteen.
ORDERS = sorted(
    ranks
    for ranks in itertools.product(range(3), repeat=3)
    if set(ranks) == {*range(max(ranks) + 1)}
)


@pytest.mark.parametrize("before", ORDERS, ids=lambda ranks: "".join(map(str, ranks)))
def test_b40_in_whatever_orders_before_and_after_a_crash(before: tuple[int, ...]) -> None:
    """B40: each order live, a crash after each number of records, each order again: one value.

    These are all cases that any number of seeds of latencies could draw. Only what was not
    recorded runs again.
    """
    tags = ["a", "b", "c"]

    def latency(order: tuple[int, ...]) -> None:
        latencies.update(zip(tags, (1.0 + rank for rank in order), strict=True))

    async def crashed(after: tuple[int, ...], records: int) -> None:
        one = Run(parallel, args=(tags,))
        latency(before)
        assert value_of(await one.execute()) == ["<a>", "<b>", "<c>", "<after>"]
        lost = [*one.steps()][records:]
        one.forget(*lost)
        latency(after)
        assert value_of(await one.execute()) == ["<a>", "<b>", "<c>", "<after>"]
        assert sorted(one.begun) == sorted(lost)
        assert sorted(one.steps()) == [f"bug-tag.{number}" for number in (1, 2, 3, 4)]

    async def main() -> None:
        for after, records in itertools.product(ORDERS, range(5)):
            await crashed(after, records)

    run("asyncio", main)


@workflow(name="bug-B41")
async def chains() -> tuple[str, ...]:
    return await durable.gather(chain("x"), chain("y"))


def test_b41_chains_in_parallel_branches_keep_their_identity() -> None:
    """B41: calls in a branch are numbered in the branch, not by what ended first elsewhere."""
    latencies.update({"xa": 2.0, "ya": 1.0, "<ya>b": 4.0})

    report = crash_at_every_call(chains)

    assert report.value == ("<<<xa>b>c>", "<<<ya>b>c>")


@workflow(name="bug-B46")
async def fan_out_after_timeout() -> list[str]:
    first = await slow_once("late")
    return [first, *await durable.map(tag, list("abcde"))]


def test_b46_fan_out_after_a_retried_timeout_ends() -> None:
    """B46: a step that timed out and was retried leaves no trace on the calls after it."""
    report = crash_at_every_call(fan_out_after_timeout)

    assert report.value == ["late", "<a>", "<b>", "<c>", "<d>", "<e>"]


@workflow(name="bug-B50")
async def same_step_often(times: int) -> list[str]:
    in_turn = [await tag(f"loop {i}") for i in range(times)]
    return in_turn + list(await durable.gather(*(tag(f"gather {i}") for i in range(times))))


def test_b50_one_step_called_often_mixes_nothing_up() -> None:
    """B50: 50 calls in a loop and 50 side by side have 100 records, each its own."""
    with environment() as env:
        handle = env.client.start(same_step_often, 50)

        expected = [f"<loop {i}>" for i in range(50)] + [f"<gather {i}>" for i in range(50)]
        assert handle.result() == expected
        assert len({call.path for call in env.steps(handle)}) == 100
    crashed = crash_at_every_call(same_step_often, 3)
    assert crashed.value == [f"<{kind} {i}>" for kind in ("loop", "gather") for i in range(3)]


# -- B47, B49, B52: what counts as another program ------------------------------------------------


@step(name="sleep")
async def sleep_step() -> None: ...


@workflow(name="bug-B47")
async def branches_on_a_clock(key: str | None) -> str:
    chosen = other if changes.get("night") else tag
    text = await chosen.options(key=key)("x")
    await durable.sleep("1d")
    return text


@pytest.mark.parametrize("key", [None, "greet"])
def test_b47_a_step_of_another_name_is_another_place(key: str | None) -> None:
    """B47: a path holds the step's name, so the recorded value is never another step's.

    The other step runs at its own path, as a step that a deployment adds does; whoever replays
    the record with that code is told of both by their paths.
    """
    suffix = f"={key}" if key else ".1"
    with environment() as env:
        handle = env.client.start(branches_on_a_clock, key)
        env.advance("1h")
        changes["night"] = True
        told = env.client.replay(handle.id)
        env.crash_worker()

        assert handle.result() == "other x"
        assert {step.path: step.value for step in env.steps(handle) if step.name != "sleep"} == {
            f"bug-tag{suffix}": "<x>", f"bug-other{suffix}": "other x",
        }  # fmt: skip
        assert (told.recorded, told.asked) == (f"bug-tag{suffix}", f"bug-other{suffix}")


@workflow(name="bug-B47-kind")
async def sleeps_or_works() -> str:
    """Of one name and place, but of another kind."""
    await (sleep_step() if changes.get("night") else durable.sleep("1h"))
    await durable.sleep("1d")
    return "done"


@workflow(name="bug-B47-args")
async def greets_by_the_clock() -> str:
    text = await tag("night" if changes.get("night") else "day")
    await durable.sleep("1d")
    return text


@pytest.mark.parametrize(
    ("flow", "said", "bodies"),
    [
        (
            sleeps_or_works,
            r"recorded call 'sleep\.1' as sleep 'sleep', but the code now calls step 'sleep' there",
            {},
        ),
        (
            greets_by_the_clock,
            r"recorded call 'bug-tag\.1' as 'bug-tag', .* calls it with other arguments",
            {"bug-tag.1": 1},
        ),
    ],
)
def test_b47_another_call_in_a_recorded_place_is_told(
    flow: Any, said: str, bodies: dict[str, int]
) -> None:
    """B47: the error names the place, what is recorded there and what is asked; no value passes."""
    with environment() as env:
        handle = env.client.start(flow)
        env.advance("2h")
        changes["night"] = True
        env.crash_worker()
        with pytest.raises(NeedsAttention, match=said):
            handle.result()
        assert handle.status() == "needs-attention"
        assert env.body_runs(handle) == bodies


@workflow(name="bug-B44")
async def uses_ids(keyed: bool) -> str:
    if changes.get("deployed"):
        durable.uuid()
    text = await tag(str(durable.uuid("order" if keyed else None)))
    await durable.sleep("1d")
    return text


def test_b44_an_added_id_shifts_no_other_unseen() -> None:
    """B44: an id with a key keeps its value when a deployment adds one before it; without a key
    the call that took the old value tells of the new one, instead of going on with it.
    """
    for keyed in (True, False):
        changes.clear()
        with environment() as env:
            handle = env.client.start(uses_ids, keyed)
            env.advance("1h")
            recorded = env.steps(handle)[0].value
            changes["deployed"] = True
            if keyed:
                assert handle.result() == recorded
            else:
                with pytest.raises(NeedsAttention, match="with other arguments"):
                    handle.result()


OLD = """
async def reminder(name):
    await durable.sleep("14d")
    return await tag(name)
"""
NEW = OLD.replace("    await durable.sleep", "    # two weeks\n    await durable.sleep")


def deployed(source: str) -> Any:
    """The workflow as a deployment brings it: the same function from other source."""
    module = types.ModuleType("deployed")
    module.__dict__.update(durable=durable, tag=tag)
    exec(compile(source, "<deployed>", "exec"), module.__dict__)
    return durable.workflow(name="bug-B49")(module.__dict__["reminder"])


def test_b49_a_comment_strands_no_waiting_run() -> None:
    """B49: other source with the same calls goes on with the runs of the old."""
    with environment() as env:
        handle = env.client.start(deployed(OLD), "ada")
        env.advance("7d")
        deployed(NEW)
        env.crash_worker()

        assert handle.result() == "<ada>"


@workflow(name="bug-B52")
async def shares_or_copies() -> int:
    one = [1, 2]
    lists = [one, [1, 2]] if changes.get("copied") else [one, one]
    size = await nested(lists)
    await durable.sleep("1d")
    return size


def test_b52_shared_and_copied_arguments_are_the_same() -> None:
    """B52: arguments are compared by value; whether they share objects does not matter."""
    with environment() as env:
        handle = env.client.start(shares_or_copies)
        env.advance("1h")
        changes["copied"] = True

        assert handle.result() == 4
        assert env.body_runs(handle) == {"bug-nested.1": 1}


# -- B53: large values -----------------------------------------------------------------------------


@workflow(name="bug-B53")
async def large() -> int:
    texts = await durable.map(big, ["a", "b", "c"])
    await tag("after")
    shown.append("".join(texts))
    return len("".join(texts))


def test_b53_large_results_are_exact_after_every_crash() -> None:
    """B53: a fan-out larger than any inline limit gives the same values live and on replay."""
    report = crash_at_every_call(large)

    assert report.value == 3 * BIG
    assert set(shown) == {"a" * BIG + "b" * BIG + "c" * BIG}


# -- B55: threads and callbacks --------------------------------------------------------------------


def _in_to_thread() -> Any:
    return asyncio.to_thread(sync_tag, "x")


def _in_executor() -> Any:
    return asyncio.get_running_loop().run_in_executor(None, sync_tag, "x")


def _in_pool() -> Any:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return asyncio.wrap_future(pool.submit(sync_tag, "x"))


async def _in_callback() -> str:
    done: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def call() -> None:
        try:
            done.set_result(sync_tag("x"))
        except Exception as e:
            done.set_exception(e)

    asyncio.get_running_loop().call_soon(call)
    return await done


@step(name="bug-sync-tag")
def sync_tag(text: str) -> str:
    return f"[{text}]"


@workflow(name="bug-B55")
async def leaves_its_task(how: str) -> str:
    ways: dict[str, Callable[[], Any]] = {
        "to_thread": _in_to_thread, "executor": _in_executor, "callback": _in_callback,
        "pool": _in_pool,
    }  # fmt: skip
    return str(await ways[how]())


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("to_thread", NotInWorkflow),
        ("callback", NotInWorkflow),
        # Nothing tells such a thread from code outside any run. It is warned of; here, where
        # warnings are errors, that reaches the workflow.
        ("executor", NotRecorded),
        ("pool", NotRecorded),
    ],
)
def test_b55_calls_from_threads_and_callbacks_are_loud(how: str, said: type) -> None:
    """B55: a call made where the workflow does not run is an error; it is never simply executed."""
    with environment(backend="asyncio") as env:
        handle = env.client.start(leaves_its_task, how)
        with pytest.raises(RunFailed) as failed:
            handle.result()

        assert isinstance(failed.value.__cause__, said)
        assert env.steps(handle) == []
