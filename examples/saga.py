"""A trip is booked step by step; if it fails or is cancelled, it is undone, the last step first.

Run:     python examples/saga.py
Prints:
         room R-1 of Ana given back
         flight F-1 of Ana given back
         run 'Ana' failed: builtins.LookupError: no car left
         room R-1 of Bo given back
         flight F-1 of Bo given back
         run 'Bo' was cancelled: he stays at home
"""

import anyio

from durable import RunCancelled, RunFailed, connect, step, workflow

waiting = anyio.Event()


async def give_back(kind: str, guest: str, *, result: str | None) -> None:
    print(f"{kind} {result} of {guest} given back")


@step(undo=give_back)
async def book(kind: str, guest: str) -> str:
    return f"{kind[0].upper()}-1"


@step(attempts=1)
async def rent_car(guest: str) -> None:
    if guest == "Ana":
        raise LookupError("no car left")
    waiting.set()
    await anyio.sleep(60)


@workflow
async def trip(guest: str) -> list[str]:
    booked = [await book("flight", guest), await book("room", guest)]
    await rent_car(guest)
    return booked


async def main() -> None:
    async with connect() as client, anyio.create_task_group() as tasks:

        async def travel(guest: str) -> None:
            try:
                await client.run(trip.options(id=guest), guest)
            except (RunFailed, RunCancelled) as e:
                print(e)

        await travel("Ana")
        tasks.start_soon(travel, "Bo")
        await waiting.wait()
        await (await client.get("Bo")).cancel(reason="he stays at home")


if __name__ == "__main__":
    anyio.run(main)
