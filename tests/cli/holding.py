"""A process that holds all that can be held, and logs what it does down to the last detail.

It prints its secrets, then goes on until its standard input is closed.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import Any

import anyio

from durable import step, workflow
from durable.client import Client
from durable.leases import Lease
from durable.protocol import names
from durable.runtime.identity import Options
from durable.runtime.worker import Worker
from durable.store.opening import open_store

_begun: list[str] = []


@step
async def linger() -> None:
    _begun.append("linger")
    await anyio.sleep_forever()


@workflow(name="held", singleton="the only")
async def held() -> None:
    await linger()


async def main() -> None:
    store = open_store(os.environ["DURABLE_STORE"])
    async with Client(store) as client, anyio.create_task_group() as tasks:
        # Not renewed meanwhile: who releases it in a bucket would have to wait.
        lease = await client.lease("job", label="me", ttl=3600.0, state_fn=lambda old: {"n": 1})
        assert isinstance(lease, Lease)
        await client.start(held.options(id="held"))
        worker = Worker(store, {held.name: held.definition}, Options(queues=("default",), grace=0))
        await tasks.start(worker.run)
        while not _begun:
            await anyio.sleep(0.05)  # real: in another process than the tests, for a fact of it
        owners = {
            stored.meta["owner"]
            for folder in (names.WORKERS, names.LIVE)
            async for stored in client.store.list(folder)
            if "owner" in stored.meta
        }
        secrets: dict[str, Any] = {"lease": lease._token.reveal(), "owners": sorted(owners)}
        print(json.dumps(secrets), flush=True)
        await anyio.to_thread.run_sync(sys.stdin.read)
        tasks.cancel_scope.cancel()
    await store.aclose()


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG)
    anyio.run(main)
