"""A process hands its lease to another one, and to everybody else nothing has changed.

The token is the proof of holding. It goes through a pipe: arguments and environments of a process
can be read by others.

Run:     python examples/coordinate_hand_over.py
Prints:
         parent: epoch 1, prepared
         child: epoch 1, goes on with {'prepared': True}
         parent: the child left {'prepared': True, 'done': True}, epoch 1
"""

import sys

import anyio

from durable import connect, sync

KEY = "deploy/production"


async def parent() -> None:
    async with connect() as client:
        lease = await client.lease(KEY, label="deploy")
        if not lease:
            print("not now: somebody else deploys")
            return
        await lease.update_state({"prepared": True})
        print(f"parent: epoch {lease.epoch}, prepared", flush=True)
        token = await lease.hand_over()  # from here on it holds nothing
        await anyio.run_process(
            [sys.executable, __file__, "child"], input=token.encode(), stdout=None, stderr=None
        )
        entry = await client.leases.get(KEY)
        assert entry
        print(f"parent: the child left {entry.state}, epoch {entry.epoch}")


def child() -> None:
    token = sys.stdin.read()
    with sync.connect() as client:
        lease = client.leases.attach(KEY, token)
        print(f"child: epoch {lease.epoch}, goes on with {lease.state}")
        lease.release({**lease.state, "done": True})


if sys.argv[1:] == ["child"]:
    child()
else:
    anyio.run(parent)
