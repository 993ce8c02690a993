"""A producer that takes no lock, and a scheduled dispatcher that drains what it left in batches.

Every second a dispatcher runs, one at a time: it sends a batch, then deletes each object by the
generation that it read, so that nothing newer goes with it.

Run:     python examples/outbox.py
Prints:
         7 requests accepted
         batches: 3 3 1
         sent: 7, different ones: 7, pending: 0
"""

import anyio

from durable import connect, every, step, workflow
from durable.decorators import workflows
from durable.runtime.identity import Options
from durable.runtime.worker import Worker

BATCH = 3
batches: list[int] = []
sent: list[str] = []
drained = anyio.Event()


@step
async def send_batch() -> int:
    """Send some, then delete what was sent; `key` is what the mail service drops repeats by."""
    async with connect() as client:
        pending = [doc async for doc in client.docs.list("mail/")][:BATCH]
        for doc in pending:
            sent.append(doc.key)  # mails.send(doc.value, idempotency_key=doc.key)
            await client.doc(doc.key).delete(doc.generation)
    return len(pending)


@workflow(schedule=every("1s"), singleton="mail-dispatcher", on_conflict="skip")
async def dispatch() -> None:
    if size := await send_batch():
        batches.append(size)
    else:
        drained.set()


async def main() -> None:
    async with connect() as client:
        for request in range(7):  # in a web handler
            await client.doc(f"mail/{request}").update(lambda _: {"to": "ada@example.org"})
    print("7 requests accepted")
    async with connect() as client, anyio.create_task_group() as tasks:
        worker = Worker(client.store, workflows(), Options())
        await tasks.start(worker.run)
        await drained.wait()
        worker.stop()
        left = len([doc.key async for doc in client.docs.list("mail/")])
        print("batches:", *batches)
        print(f"sent: {len(sent)}, different ones: {len(set(sent))}, pending: {left}")


anyio.run(main)
