"""The strict server of Google's API: small creates a second, and whether many objects slow it.

The server has a process of its own; this one sends, through asyncio's streams and nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import time
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import steps_http
from harness import machine

OBJECTS = 200_000
PART = 20_000  # the first so many are compared with the last so many
CONNECTIONS = 16
BODY = b"x" * 200
BOUNDARY = "boundary"
TARGET = (
    f"/upload/storage/v1/b/{steps_http.BUCKET}/o?uploadType=multipart&ifGenerationMatch=0"
    "&fields=generation,updated"
)


class Moment(NamedTuple):
    """When so many objects were there, and the processor time of both processes until then."""

    at: float
    server: float
    client: float


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print; returns the figures, ready for JSON."""
    load = os.getloadavg()[0]
    print(f"{'':22}creates/s{'':17}CPU us a create")
    print(f"{'first':>8}{'last':>9}{'ratio':>8}{'all':>9}", end="")
    print(f"{'first':>10}{'last':>7}{'ratio':>8}{'client':>9}")
    rounds = []
    for _ in range(options.rounds):
        rounds.append(found := _round())
        print(
            f"{found['creates_per_s_first']:>8,.0f}{found['creates_per_s_last']:>9,.0f}"
            f"{found['ratio_last_first']:>8.2f}{found['creates_per_s']:>9,.0f}"
            f"{found['cpu_us_per_create_first']:>10.1f}{found['cpu_us_per_create_last']:>7.1f}"
            f"{found['cpu_ratio_last_first']:>8.2f}{found['cpu_us_per_create_client']:>9.1f}"
        )
    medians = {
        name: round(statistics.median(each[name] for each in rounds), 3) for name in rounds[0]
    }
    loads = [round(load, 1), round(os.getloadavg()[0], 1)]
    print(
        f"\n{OBJECTS:,} objects, {CONNECTIONS} connections; first and last {PART:,}\n"
        f"{machine()}; load {loads[0]} to {loads[1]}"
    )
    counts = {"objects": OBJECTS, "connections": CONNECTIONS, "rounds": options.rounds}
    return {**medians, **counts, "machine": machine(), "load": loads}


def _round() -> dict[str, float]:
    """What a new server does until it has all objects."""
    with steps_http.server_process(0) as (url, process):
        begin, first, last, end = asyncio.run(_fill(url, process))
    rate = PART / (first.at - begin.at), PART / (end.at - last.at)
    cpu = (first.server - begin.server) / PART, (end.server - last.server) / PART
    return {
        "creates_per_s_first": rate[0],
        "creates_per_s_last": rate[1],
        "ratio_last_first": rate[1] / rate[0],
        "creates_per_s": OBJECTS / (end.at - begin.at),
        "cpu_us_per_create_first": cpu[0] * 1e6,
        "cpu_us_per_create_last": cpu[1] * 1e6,
        "cpu_ratio_last_first": cpu[1] / cpu[0],
        "cpu_us_per_create_client": (end.client - begin.client) / OBJECTS * 1e6,
    }


async def _fill(url: str, process: int) -> list[Moment]:
    """Create all objects; gives the begin, the two bounds of the parts, and the end."""
    names = (f"folder/{number:08}" for number in range(OBJECTS))
    streams = [
        await asyncio.open_connection(urlsplit(url).hostname, urlsplit(url).port)
        for _ in range(CONNECTIONS)
    ]
    moments, answered = [_moment(process)], count(1)

    async def create(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for name in names:  # one after the other; each name is taken once
            writer.write(_request(name))
            await _read_answer(reader)
            if next(answered) in (PART, OBJECTS - PART, OBJECTS):
                moments.append(_moment(process))

    async with asyncio.TaskGroup() as tasks:
        for stream in streams:
            tasks.create_task(create(*stream))
    for _, writer in streams:
        writer.close()
    return moments


async def _read_answer(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise RuntimeError(f"a create was answered {head.decode()}")
    length = head.lower().split(b"content-length:", 1)[1].split(b"\r\n", 1)[0]
    await reader.readexactly(int(length))


def _request(name: str) -> bytes:
    """A create as the store sends it: a little metadata, a small body."""
    sent = json.dumps({"name": name, "metadata": {"nonce": "0123456789abcdef"}})
    part = f"--{BOUNDARY}\r\nContent-Type: application/json\r\n\r\n"
    body = f"{part}{sent}\r\n{part}".encode() + BODY + f"\r\n--{BOUNDARY}--\r\n".encode()
    head = (
        f"POST {TARGET} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        f"Content-Type: multipart/related; boundary={BOUNDARY}\r\n\r\n"
    )
    return head.encode() + body


def _moment(process: int) -> Moment:
    # Behind the name in brackets: fields 3 and up, of which 14 and 15 are ticks used.
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return Moment(time.perf_counter(), ticks / os.sysconf("SC_CLK_TCK"), time.process_time())
