"""Many steps at once: `gather` for a few different ones, `map` for many alike, `limit` at a time.

Run:     python examples/fan_out.py
Prints:
         fetched in any order, returned in the order asked for
         weather: 21 degrees, news: 3 stories
         thumbnails: a.png.small, b.png.small, c.png.small, d.png.small
"""

import anyio

from durable import connect, gather, map, step, workflow


@step
async def weather(town: str) -> str:
    return f"{len(town) * 3} degrees"


@step
async def news(stories: int) -> str:
    return f"{stories} stories"


@step
async def thumbnail(image: str) -> str:
    return f"{image}.small"


@workflow
async def front_page(town: str, images: list[str]) -> list[str]:
    sky, stories = await gather(weather(town), news(3))
    small = await map(thumbnail, images, limit=2)
    return [f"weather: {sky}, news: {stories}", f"thumbnails: {', '.join(small)}"]


async def main() -> None:
    async with connect() as client:
        print("fetched in any order, returned in the order asked for")
        for line in await client.run(front_page, "Croydon", ["a.png", "b.png", "c.png", "d.png"]):
            print(line)


if __name__ == "__main__":
    anyio.run(main)
