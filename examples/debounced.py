"""A page is indexed once its author pauses, and as it stands then, however often it was saved.

Run:     python examples/debounced.py
Prints:
         page 7: saved 3 times, 1 run
         page 7 indexed as: hello world
         page 8 indexed as: another page
         page 7, saved again, is indexed by another run
"""

import anyio

from durable import Queue, connect, step, workflow
from durable.client import Client, Handle
from durable.decorators import workflows
from durable.runtime.identity import Options
from durable.runtime.worker import Worker

# After half a second without a further save; after five seconds however busy the author is.
INDEXING = Queue("indexing", debounce="500ms", debounce_max="5s")


@step
async def index(page: int, text: str) -> str:
    return f"page {page} indexed as: {text}"


@workflow(queue=INDEXING)
async def reindex(page: int, text: str) -> str:
    return await index(page, text)


async def save(client: Client, page: int, text: str) -> Handle[str]:
    return await client.start(reindex.options(debounce_key=f"page-{page}"), page, text)


async def main() -> None:
    async with connect() as client:
        saved = [await save(client, 7, text) for text in ("h", "hello", "hello world")]
        other = await save(client, 8, "another page")
        print(f"page 7: saved {len(saved)} times, {len({run.id for run in saved})} run")

        async with anyio.create_task_group() as tasks:
            worker = Worker(client.store, workflows(), Options(queues=("indexing",)))
            await tasks.start(worker.run)
            print(await saved[0].result())
            print(await other.result())
            again = await save(client, 7, "hello again")
            assert again.id != saved[0].id
            print("page 7, saved again, is indexed by another run")
            worker.stop()


anyio.run(main)
