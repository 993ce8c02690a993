"""A sweeper finds work whose holder died, and finishes it.

One list shows every lease with its state and whether its holder still renews. Taking over is an
acquisition like any other: of two sweepers one gets it.

Run:     python examples/coordinate_sweeper.py
Prints:
         at first: images/crop held, images/resize held, images/upload free
         later: images/crop expired, images/resize held, images/upload free
         images/crop: taken over at epoch 2, goes on after {'tile': 7}
         at last: images/crop free, images/resize held, images/upload free
"""

import anyio

from durable import connect
from durable.client import Client
from durable.protocol.leases import Terms

# So that the example is over in seconds. Real leases say `ttl=20`, which outlives a hiccup.
SHORT = Terms.tight(3.0, 0.5)


async def show(client: Client, when: str) -> None:
    found = [f"{entry.key} {entry.status}" async for entry in client.leases.list("images/")]
    print(f"{when}: {', '.join(found)}")


async def die_at_work(key: str) -> None:
    async with connect() as client:  # closed without a release, as a process that is killed
        lease = await client.lease(key, ttl=SHORT)
        assert lease
        await lease.update_state({"tile": 7})
        await show(client, "at first")


async def sweep(client: Client) -> None:
    async for entry in client.leases.list("images/"):
        if entry.status != "expired":
            continue
        lease = await client.lease(entry.key)
        if lease:  # else another sweeper was quicker
            print(f"{entry.key}: taken over at epoch {lease.epoch}, goes on after {lease.state}")
            await lease.release({"done": True})


async def main() -> None:
    async with connect() as client:
        async with client.hold("images/upload", ttl=SHORT, waiting=True) as done:
            await done.release({"done": True})
        async with client.hold("images/resize", ttl=SHORT, waiting=True):
            await die_at_work("images/crop")
            await anyio.sleep(5)
            await show(client, "later")
            await sweep(client)
            await show(client, "at last")


anyio.run(main)
