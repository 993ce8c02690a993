"""The jobs of `queues.py`: each body notes its begin and its end, in one file for all."""

from __future__ import annotations

import os
import time

from durable import Queue, step, workflow

LIMIT = 3
SECONDS = 0.01  # of a body


def mark(word: str, job: int) -> None:
    """One line, appended at once: the word, the job, the process and the machine's clock."""
    line = f"{word} {job} {os.getpid()} {time.monotonic():.6f}\n"
    file = os.open(os.environ["BENCH_MARKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


@step
def work(job: int) -> int:
    mark("begin", job)
    time.sleep(SECONDS)
    mark("end", job)
    return job


@workflow(queue=Queue("bench", concurrency=LIMIT))
async def job(number: int) -> int:
    return await work.call(number)
