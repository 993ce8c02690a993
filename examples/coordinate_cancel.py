"""Somebody asks for an end, and the holder stops where it can do so cleanly.

The request is written into the state of a lease that somebody else holds. It takes nothing away:
the holder finds it with its next write, and keeps it through all of its own.

Run:     python examples/coordinate_cancel.py
Prints:
         working: page 1
         asked to stop: found {'page': 1}
         working: page 2
         stopped after page 2, because: out of paper
         left behind: {'page': 2, 'stopped': True, 'stop': 'out of paper'}
"""

from typing import Any

import anyio

from durable import connect
from durable.client import Client


async def ask_to_stop(client: Client) -> None:
    def ask(state: dict[str, Any]) -> dict[str, Any]:
        print(f"asked to stop: found {state}")
        return {**state, "stop": "out of paper"}

    await client.leases.cooperative_write("print-job", ask)


async def work(client: Client, colleague: Client) -> None:
    async with client.hold("print-job", waiting=True) as lease:
        for page in range(1, 100):
            print(f"working: page {page}")
            await lease.update_state({"page": page})  # merged with what others wrote
            if "stop" in lease.state:
                print(f"stopped after page {page}, because: {lease.state['stop']}")
                await lease.release({"page": page, "stopped": True})
                return
            if page == 1:
                await ask_to_stop(colleague)


async def main() -> None:
    async with connect() as client, connect() as colleague:
        await work(client, colleague)
        entry = await colleague.leases.get("print-job")
        print("left behind:", entry.state if entry else None)


anyio.run(main)
