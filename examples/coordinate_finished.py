"""Work that is finished is refused, in the same write that would have begun it again.

Between a look at the state and the acquisition anything may happen; `state_fn` is both at once.

Run:     python examples/coordinate_finished.py
Prints:
         import of 2026-11-29: begun, attempt 1
         import of 2026-11-29: begun, attempt 2
         import of 2026-11-29: 3 rows
         not again: finished by attempt 2
"""

from typing import Any

import anyio

from durable import connect
from durable.client import Client
from durable.errors import LeaseRefused
from durable.leases import Refuse

State = dict[str, Any]


def begin(before: State | None) -> State | Refuse:
    """What the state becomes with the acquisition; `before` is what the last holder left."""
    before = before or {"attempts": 0}
    if "rows" in before:
        return Refuse(f"finished by attempt {before['attempts']}")
    return {"attempts": before["attempts"] + 1}


async def load(client: Client, day: str, *, fails: bool = False) -> None:
    async with client.hold(f"import/{day}", state_fn=begin, waiting=True) as lease:
        attempts = lease.state["attempts"]
        print(f"import of {day}: begun, attempt {attempts}")
        if fails:
            raise ConnectionError
        await lease.release({"attempts": attempts, "rows": 3})
        print(f"import of {day}: 3 rows")


async def main() -> None:
    async with connect() as client:
        for fails in (True, False, False):
            try:
                await load(client, "2026-11-29", fails=fails)
            except ConnectionError:
                continue  # the lease is free again, and its state says how far it came
            except LeaseRefused as refused:
                print(f"not again: {refused.reason}")


anyio.run(main)
