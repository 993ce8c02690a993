"""A map over 1,000 files, 50 at a time, of which one in a hundred may be unreadable.

Each file is a step with a record of its own: killed half-way, the same command goes on with the
files that are left.

Run:     python examples/map_files.py
Prints:
         1000 files, 990 read, 10 unreadable
         the longest has 99 words
"""

from pathlib import Path

import anyio

from durable import connect, map, step, workflow

FOLDER = Path("files")


@step(attempts=1)
def count_words(name: str) -> int:
    return len((FOLDER / name).read_text().split())


@workflow
async def count_all(names: list[str]) -> str:
    found = await map(count_words, names, tolerate="1%", collect=True)
    counts = [count for count in found if isinstance(count, int)]
    return (
        f"{len(names)} files, {len(counts)} read, {len(found) - len(counts)} unreadable\n"
        f"the longest has {max(counts)} words"
    )


def prepare() -> list[str]:
    FOLDER.mkdir(exist_ok=True)
    names = [f"{i:04}.txt" for i in range(1000)]
    for i, name in enumerate(names):
        if i % 100:  # the others are missing
            (FOLDER / name).write_text("word " * (i % 100))
    return names


async def main() -> None:
    async with connect() as client:
        said = await client.run(count_all, prepare())
    print(said)


if __name__ == "__main__":
    anyio.run(main)
