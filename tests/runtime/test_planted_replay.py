"""The test of the tester: rules of the dispatcher are left out, and crashed programs show it.

Both bugs need a certain shape of program and a certain moment, so each has a family of programs
of that shape. A seed that finds the bug finds nothing where the rule is kept.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import anyio
import pytest

from durable.runtime.turnstile import Turnstile
from tests.runtime.test_replay_fuzz import crash_lines, tried

SEEDS_MAX = 40  # programs within which each bug is found

ENDING = """
    try:
        await gather(branch(), f(3))
    except ValueError as e:
        log(repr(e))
    log(await s(4, seen()))
"""


def stray(seed: int) -> str:
    """A branch leaves a task behind that takes some turns to see that it is cancelled."""
    chance = random.Random(seed)
    call = "s(1)"
    for _ in range(chance.choice([1, 2, 2, 3])):
        call = f"asyncio.create_task(through({call}))"
    other = chance.choice(["note(s(2))", "asyncio.sleep(50)"])
    return (
        "async def program():\n"
        "    async def branch():\n"
        f"        await asyncio.gather(asyncio.shield(note({call})), {other})\n"
        f"{ENDING}"
    )


def timed(seed: int) -> str:
    """A call is abandoned while the failure that closes its branch is being recorded."""
    seconds = random.Random(seed).choice([0.1, 0.3, 0.7, 1.0, 2.0, 3.0])
    return (
        "async def program():\n"
        "    async def branch():\n"
        f"        with anyio.move_on_after({seconds}):\n"
        "            await note(s(1))\n"
        "        await note(s(2))\n"
        f"{ENDING}"
    )


def no_settling(_turnstile: Turnstile) -> anyio.Event:
    """The code behind a failed gather goes on before the tasks of its branches are cancelled."""
    event = anyio.Event()
    event.set()
    return event


def no_forgetting(_turnstile: Turnstile, _paths: Iterable[str]) -> None:
    """What a closed branch had recorded is waited for."""


def holds(source: str, seed: int) -> bool:
    """Whether the law holds for the program, wherever its owner crashes."""
    try:
        live = tried("asyncio", source, seed, [])
        for crashes in crash_lines(random.Random(seed), live.executions[0].calls):
            tried("asyncio", source, seed, crashes)
    except AssertionError:
        return False
    return True


# Programs leave tasks and coroutines behind; that is their business.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("family", "rule", "left_out"),
    [(stray, "settled", no_settling), (timed, "forget", no_forgetting)],
    ids=["no settling", "no forgetting"],
)
def test_a_rule_that_is_left_out_is_noticed(
    family: Callable[[int], str], rule: str, left_out: Callable[..., object]
) -> None:
    """Within forty programs one breaks the law, and only because the rule is not kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Turnstile, rule, left_out)
        found = next((n for n in range(SEEDS_MAX) if not holds(family(n), n)), None)

    assert found is not None
    print(f"without {rule} the program of seed {found} breaks the law")
    assert holds(family(found), found)
