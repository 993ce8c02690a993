"""A run that is killed and goes on: `python crash_durable.py run|worker|unproven START|JOIN`.

- `run`: `client.run`, the same program started again.
- `worker`: a worker; a second one stands by.
- `unproven`: the same without lock files, as on two machines: only the lease tells of the death.
"""

from __future__ import annotations

import sys

import anyio
import crash

from durable import connect, step, workflow
from durable.decorators import workflows
from durable.runtime import locks
from durable.runtime.identity import Options
from durable.runtime.worker import Worker

URL = "sqlite:///durable.db"


@step(name="crash.one")
async def one(number: int) -> int:
    crash.die_once(number)
    await anyio.sleep(crash.SECONDS)
    return number


@workflow(name="crash.all")
async def all_of_them(steps: int) -> int:
    return sum([await one(number) for number in range(steps)])


async def main() -> None:
    _, variant, part = sys.argv
    crash.note("up")
    async with connect(URL) as client:
        wanted = all_of_them.options(id="run")
        if variant == "run":
            await client.run(wanted, crash.STEPS)
        else:
            if part == "start":
                await client.start(wanted, crash.STEPS)
            lock_folder = locks.runtime_folder(client.store.backend.lock_folder, {})
            options = Options(runtime_folder=lock_folder if variant == "worker" else None)
            worker = Worker(client.store, workflows(), options)
            async with anyio.create_task_group() as tasks:
                await tasks.start(worker.run)
                if part == "join":
                    crash.READY.touch()
                await (await client.get("run")).result()
                worker.stop()
    crash.note("end")


if __name__ == "__main__":
    anyio.run(main)
