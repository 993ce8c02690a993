"""One crash run: workers on one store, killed and stopped at random, until all faults end.

Then whatever is left must come to its end, and the checker looks at the evidence.
"""

from __future__ import annotations

import os
import random
from functools import partial
from pathlib import Path

import anyio

from durable import connect
from durable.client import Client
from tests.crash import workflows
from tests.crash.evidence import Process, Story
from tests.crash.expected import EXPECTED
from tests.crash.fleet import GLANCE, TAKEOVER, Fleet, until
from tests.crash.places import Place

PROCESSES = 6  # at a time, stopped ones included; half of them with a runtime folder of their own
ZOMBIES = 3  # stopped at a time
ZOMBIE_SHARE = 0.4  # of the number of kills
LIVE_RUNS = 14  # kept unfinished while faults go on
HOLDERS_SHARE = 0.9  # of the victims hold runs, if any process does
GAP = (0.1, 1.6)  # seconds between two faults
PATIENCE = 60.0  # seconds for anything that must happen, beyond the time of a takeover


class Harness:
    """See the module's docstring.

    Args:
        folder: of everything that it leaves behind.
        place: the store.
        kills: how many processes are killed, at least.
        minutes: how long faults go on, at least.
    """

    def __init__(
        self, folder: Path, place: Place, *, kills: int, seed: int, minutes: float
    ) -> None:
        self.kills = kills
        self.minutes = minutes
        self.chance = random.Random(seed)
        self.folder = folder
        self.place = place
        self.story = Story(seed, 0.0)
        self.feeding = True

    async def run(self) -> Story:
        os.environ.update(self.place.environment)
        async with connect(self.place.url) as client:
            self.fleet = Fleet(self.folder, self.place, self.story)
            self.story.clock_offset = self.fleet.store.clock_offset()
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self.fleet.watch)
                    tasks.start_soon(self._feed, client)
                    await self._do_harm()
                    self.feeding = False
                    await self._settle()
                    tasks.cancel_scope.cancel()
            finally:
                self.fleet.end_all()
                self.story.save(self.folder)
        return self.story

    # -- work -------------------------------------------------------------------------------------

    async def _feed(self, client: Client) -> None:
        kinds = list(EXPECTED)
        while self.feeding:
            for _ in range(LIVE_RUNS - len(self.fleet.store.holders())):
                number = len(self.story.started)
                kind, width = kinds[number % len(kinds)], self.chance.randint(1, 4)
                run = f"{kind}/{number}"  # a slash, so that ids must be encoded
                self.story.started[run] = (kind, width)
                await client.start(getattr(workflows, kind).options(id=run), width)
            await anyio.sleep(GLANCE)  # real: the pace of looking

    # -- harm -------------------------------------------------------------------------------------

    async def _do_harm(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.place.go_wrong)
            await self._kill_and_stop()
            tasks.cancel_scope.cancel()
        self.story.struck = self.place.calm()
        self.story.troubles += [
            f"no call was ever {kind}: that was not put to the test"
            for kind, times in self.story.struck.items()
            if not times
        ]

    async def _kill_and_stop(self) -> None:
        plan = self._plan()
        for number in range(PROCESSES):
            self.fleet.start(private=bool(number % 2))
        until = self.fleet.now() + 60 * self.minutes
        async with anyio.create_task_group() as zombies:
            while plan or self.fleet.now() < until:
                await anyio.sleep(self.chance.uniform(*GAP))  # real: workers get on
                if not plan:
                    plan = self._plan()
                # Somebody must be left to take over from those that are stopped.
                fault = plan[0] if len(self.fleet.zombies()) < ZOMBIES else "kill"
                if fault not in plan:
                    continue
                plan.remove(fault)
                if fault == "kill":
                    self._kill()
                else:
                    await self._make_zombie(zombies)

    def _plan(self) -> list[str]:
        """Kills and stops in random order; the first stops come early, since they take long."""
        stops = max(1, round(ZOMBIE_SHARE * self.kills))
        plan = ["kill"] * self.kills + ["stop"] * stops
        self.chance.shuffle(plan)
        for _ in range(min(ZOMBIES, stops)):
            plan.remove("stop")
        return ["stop"] * min(ZOMBIES, stops) + plan

    def _kill(self) -> None:
        victim = self._choose()
        if victim is not None:
            self.fleet.kill(victim)
            self.fleet.start(private=victim.private)

    def _choose(self) -> Process | None:
        """A process that runs; one that holds runs, as a rule."""
        self._replace_the_dead()
        processes = self.fleet.unharmed()
        holding = [p for p in processes if self.fleet.held_by(p)]
        choice = holding if holding and self.chance.random() < HOLDERS_SHARE else processes
        return self.chance.choice(choice) if choice else None

    def _replace_the_dead(self) -> None:
        for process in self.fleet.bury():
            self.story.troubles.append(
                f"worker {process.name} ended by itself with {process.exit_code}: see its log"
            )
            self.fleet.start(private=process.private)

    async def _make_zombie(self, tasks: anyio.abc.TaskGroup) -> None:
        with anyio.move_on_after(PATIENCE):
            while True:
                victim = self._choose()
                if victim is not None:
                    self.fleet.stop(victim)
                    # A process that was stopped in the middle of a commit locks the whole file.
                    if not self.fleet.store.is_locked() and (held := self.fleet.held_by(victim)):
                        tasks.start_soon(self._wake_after_takeover, victim, held)
                        return
                    self.fleet.wake(victim)
                    del victim.stops[-1], victim.wakes[-1]  # nothing to take over: no zombie
                await anyio.sleep(GLANCE)  # real: the pace of looking
        self.story.troubles.append("no worker held a run that could have been taken over")

    async def _wake_after_takeover(self, zombie: Process, held: dict[str, str]) -> None:
        def taken_over() -> bool:
            return not held.items() & self.fleet.store.holders().items()

        if not await until(taken_over, TAKEOVER + PATIENCE):
            self.story.troubles.append(
                f"nobody took over the runs {held} of {zombie.name}, stopped at {zombie.stops[-1]}"
            )
        self.fleet.wake(zombie)

    # -- the end ----------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Faults have stopped: hand over what is in flight, then finish everything."""
        self._replace_the_dead()
        leaving = self.fleet.unharmed()
        for process in leaving:
            if not await until(partial(self.fleet.serves, process), PATIENCE):
                self.story.troubles.append(f"worker {process.name} did not begin")
        for process in leaving:
            self.fleet.drain(process)
        for process in leaving:
            await self._expect_end(process, PATIENCE)
        last = [self.fleet.start(private=private, until_idle=True) for private in (False, True)]
        for process in last:
            await self._expect_end(process, TAKEOVER + PATIENCE)
        self.fleet.look()

    async def _expect_end(self, process: Process, within: float) -> None:
        if not await self.fleet.ended(process, within):
            self.story.troubles.append(f"worker {process.name} did not end within {within:g} s")
        elif process.exit_code != 0:
            self.story.troubles.append(f"worker {process.name} ended with {process.exit_code}")
