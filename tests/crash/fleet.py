"""The worker processes of a crash run: started, killed, stopped, woken, drained."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio

from tests.commands import ROOT, environment
from tests.crash import workflows
from tests.crash.evidence import BODY_LOG, LOGS, LeaseSeen, Process, Story
from tests.crash.places import Place

CONCURRENCY = 6  # runs that one worker holds: few, so that every worker has some
TTL = 12.0  # seconds; the smallest that is allowed
MARGIN = 2.0  # seconds; what goes with it
TAKEOVER = TTL + MARGIN + 2  # the longest that a run of a dead worker waits for another
GLANCE = 0.05  # seconds between two looks at the store


class Fleet:
    """Starts workers on one store and does them harm.

    Args:
        folder: of everything that this crash run leaves behind.
        place: the store.
        story: where the fates of the processes are written down.
    """

    def __init__(self, folder: Path, place: Place, story: Story) -> None:
        self.folder = folder
        self.story = story
        self.place = place
        self.store = place.open()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        (folder / LOGS).mkdir(exist_ok=True)

    def now(self) -> float:
        """The store's present time."""
        return _boot() + self.story.clock_offset

    def start(self, *, private: bool, until_idle: bool = False) -> Process:
        process = Process(f"w{len(self.story.processes) + 1}", private, started=self.now())
        runtime = self.folder / "runtime" / (process.name if private else "shared")
        runtime.mkdir(parents=True, exist_ok=True)
        command = [
            sys.executable, "-m", "durable.cli", "worker", str(Path(workflows.__file__)),
            "--ttl", f"{TTL:g}s", "--concurrency", str(CONCURRENCY), "--name", process.name,
            *(["--until-idle"] if until_idle else []),
        ]  # fmt: skip
        with (self.folder / LOGS / f"{process.name}.log").open("wb") as log:
            child = subprocess.Popen(
                command,
                cwd=self.folder,
                stdout=log,
                stderr=log,
                env=environment()
                | self.place.environment
                | {
                    "PYTHONPATH": str(ROOT / "src"),
                    "DURABLE_STORE": self.place.url,
                    "DURABLE_RUNTIME_DIR": str(runtime),
                    "CRASH_LOG": str(self.folder / BODY_LOG),
                    "CRASH_PROCESS": process.name,
                },
            )
        process.pid = child.pid
        self._running[process.name] = child
        self.story.processes[process.name] = process
        return process

    # -- harm -------------------------------------------------------------------------------------

    def kill(self, process: Process) -> None:
        process.killed = self.now()
        self._signal(process, signal.SIGKILL)
        process.exit_code = self._running.pop(process.name).wait()

    def stop(self, process: Process) -> None:
        process.stops.append(self.now())
        self._signal(process, signal.SIGSTOP)
        # Its threads stop one after the other; this returns when the last one has.
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def wake(self, process: Process) -> None:
        process.wakes.append(self.now())
        self._signal(process, signal.SIGCONT)

    def drain(self, process: Process) -> None:
        process.drained = self.now()
        self._signal(process, signal.SIGTERM)

    def end_all(self) -> None:
        """Whatever happened, nothing is left running."""
        for child in self._running.values():
            child.kill()
            child.wait()

    def _signal(self, process: Process, number: signal.Signals) -> None:
        self._running[process.name].send_signal(number)

    # -- looking ----------------------------------------------------------------------------------

    def unharmed(self) -> list[Process]:
        """Processes that run now."""
        return [p for p in self._present() if not p.is_stopped]

    def zombies(self) -> list[Process]:
        """Processes that are stopped now."""
        return [p for p in self._present() if p.is_stopped]

    def bury(self) -> list[Process]:
        """Processes that ended without being told to; they are no longer looked after."""
        found = [p for p in self._present() if self._running[p.name].poll() is not None]
        for process in found:
            process.exit_code = self._running.pop(process.name).returncode
        return found

    def serves(self, process: Process) -> bool:
        """Whether it has begun, so that it drains when it is told to."""
        return b" serves " in (self.folder / LOGS / f"{process.name}.log").read_bytes()

    def held_by(self, process: Process) -> dict[str, str]:
        """Runs whose marker names a worker of this process, and that worker."""
        workers = {s.worker for s in self.look() if s.process == process.name}
        return {run: holder for run, holder in self.store.holders().items() if holder in workers}

    def look(self) -> list[LeaseSeen]:
        """Leases as they stand; what they said before is kept in the story."""
        for stored in self.store.objects("workers/"):
            body = stored.body
            seen = self.story.leases.setdefault(
                body["worker"],
                LeaseSeen(body["worker"], body["label"], body["ttl"], body["margin"]),
            )
            if body.get("state") == "dead":
                seen.dead = stored.updated
            else:
                seen.alive = stored.updated
        return list(self.story.leases.values())

    async def watch(self) -> None:
        """Look at the leases for ever."""
        while True:
            self.look()
            await anyio.sleep(GLANCE)  # real: the pace of looking

    async def ended(self, process: Process, within: float) -> bool:
        """Wait for a process that ends by itself."""
        child = self._running[process.name]
        if not await until(lambda: child.poll() is not None, within):
            return False
        process.exit_code = child.returncode
        del self._running[process.name]
        return True

    def _present(self) -> list[Process]:
        return [self.story.processes[name] for name in self._running]


async def until(fact: Callable[[], bool], within: float) -> bool:
    """Wait for a fact that other processes bring about; False: it did not come in time."""
    with anyio.move_on_after(within):
        while not fact():  # nothing in this process could set an event
            await anyio.sleep(GLANCE)  # real: the pace of looking
        return True
    return False


def _boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
