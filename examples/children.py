"""A parent with children: runs of their own, which it starts, owns and waits for.

While it waits the parent is parked and holds no place in a worker.

Run:     python examples/children.py
Prints:
         packed: book, lamp
         the vase broke: ValueError: vase is broken
         shipped 2 of 3 parcels
"""

import anyio

from durable import connect, errors, step, workflow


@step(attempts=1)
async def pack(item: str) -> str:
    if item == "vase":
        raise ValueError(f"{item} is broken")
    return item


@workflow
async def parcel(item: str) -> str:
    return await pack(item)


@workflow
async def order(items: list[str]) -> str:
    children = [await parcel.start(item) for item in items]
    packed: list[str] = []
    broken = ""
    for child, item in zip(children, items, strict=True):
        try:
            packed.append(await child.result())
        except errors.RunFailed as e:
            broken = f"the {item} broke: {type(e.__cause__).__name__}: {e.__cause__}"
    return f"packed: {', '.join(packed)}\n{broken}\nshipped {len(packed)} of {len(items)} parcels"


async def main() -> None:
    async with connect() as client:
        said = await client.run(order, ["book", "vase", "lamp"])
    print(said)


if __name__ == "__main__":
    anyio.run(main)
