"""`python -m durable.testing.gcs`: the server as a program, until it is interrupted."""

from __future__ import annotations

import argparse
import asyncio  # noqa: TID251  (as in durable.testing.gcs.server)
import gc
import os
import signal
import sys
from contextlib import AsyncExitStack

import msgspec

from durable.testing.gcs.faults import Faults, parse_faults
from durable.testing.gcs.server import HOST
from durable.testing.gcs.service import Service
from durable.testing.gcs.serving import serve


def main() -> int:
    """Serve until SIGINT or SIGTERM; returns the exit code."""
    options = _parser().parse_args()
    # Objects are many and live long: looking through all of them for garbage again and again
    # would make each call dearer the more there are.
    gc.freeze()
    gc.set_threshold(50_000, 100, 100)
    service = Service(
        rate_limit=options.rate_limit, ordered=options.ordered, faults=Faults(*options.faults)
    )
    return asyncio.run(_serve(service, options.port, options.latency_ms / 1000))


async def _serve(service: Service, port: int, latency: float) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        try:
            url = await stack.enter_async_context(serve(service, port=port, latency=latency))
        except OSError as e:
            why = os.strerror(e.errno or 0)
            print(f"error: cannot listen on {HOST}:{port}: {why}", file=sys.stderr)
            return 1
        print(f"listening on {url}", flush=True)
        await stop.wait()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m durable.testing.gcs",
        description=f"A strict Google Cloud Storage server for tests, on {HOST} only. It starts "
        "without buckets; make them through the API.",
    )
    parser.add_argument("--port", type=_port, default=0, help="0 (default) for any that is free")
    parser.add_argument("--latency-ms", type=float, default=0.0, help="that each call takes")
    parser.add_argument(
        "--rate-limit", action="store_true", help="one mutation per second and object, then 429"
    )
    parser.add_argument(
        "--ordered", action="store_true", help="generations count up, which GCS does not promise"
    )
    parser.add_argument(
        "--faults", type=_faults, default=[], metavar="JSON", help="a fault or a list of them"
    )
    return parser


def _port(text: str) -> int:
    if (number := int(text)) not in range(1 << 16):
        raise argparse.ArgumentTypeError("a port is a number up to 65535")
    return number


def _faults(text: str) -> list[object]:
    try:
        return list(parse_faults(text.encode()))
    except msgspec.DecodeError as e:
        raise argparse.ArgumentTypeError(f"no fault: {e}") from e


if __name__ == "__main__":
    sys.exit(main())
