"""Steps of Restate, one node: `python steps_restate.py run SHAPE`.

The service is served in this process; its server, from the npm package
`@restatedev/restate-server`, is the program that BENCH_RESTATE names.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
from collections.abc import AsyncIterator
from importlib.metadata import version
from pathlib import Path

import aiohttp
import hypercorn
import hypercorn.asyncio
import restate
from shapes import WARM_UP, Meter, Shape, asked, each_run

PATIENCE = 20.0  # seconds for the server to begin
TICKS = os.sysconf("SC_CLK_TCK")
service = restate.Service("bench")


async def double(number: int) -> int:
    return 2 * number


@service.handler()
async def count(ctx: restate.Context, steps: int) -> int:
    total = 0
    for number in range(steps):
        total += await ctx.run_typed("double", double, number=number)
    return total


class Server:
    """The server in a process of its own, with its data in this folder."""

    def __init__(self) -> None:
        self.ingress, self.admin, self.endpoint, self._node = (_free_port() for _ in range(4))
        environment = {
            "RESTATE_BASE_DIR": str(Path("restate").absolute()),
            "RESTATE_BIND_PORT": str(self._node),
            "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{self.ingress}",
            "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{self.admin}",
            "RESTATE_LISTEN_MODE": "tcp",
            "RESTATE_DISABLE_TELEMETRY": "true",
            "RESTATE_LOG_FILTER": "error",
        }
        self.process = subprocess.Popen(
            [os.environ["BENCH_RESTATE"], "--no-logo"], env={**os.environ, **environment},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    @property
    def cpu(self) -> float:
        """Seconds of processor time that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextlib.asynccontextmanager
async def _serving(port: int) -> AsyncIterator[None]:
    config = hypercorn.Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.loglevel = "ERROR"
    over = asyncio.Event()
    serving = asyncio.create_task(
        hypercorn.asyncio.serve(restate.app([service]), config, shutdown_trigger=over.wait)
    )
    try:
        yield
    finally:
        over.set()
        await serving


async def _register(http: aiohttp.ClientSession, server: Server) -> None:
    """Tell the server where the service is, as soon as it listens."""
    body = {"uri": f"http://127.0.0.1:{server.endpoint}"}
    async with asyncio.timeout(PATIENCE):
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                url = f"http://127.0.0.1:{server.admin}/deployments"
                async with http.post(url, json=body) as answer:
                    if answer.status in {200, 201}:
                        return
            await asyncio.sleep(0.1)


async def main() -> None:
    _, shape = asked()
    server = Server()
    try:
        async with _serving(server.endpoint), aiohttp.ClientSession() as http:
            await _register(http, server)

            async def one(steps: int) -> None:
                url = f"http://127.0.0.1:{server.ingress}/bench/count"
                async with http.post(url, json=steps) as answer:
                    assert await answer.json() == steps * (steps - 1), answer.status

            async def carry(shape: Shape) -> None:
                await each_run(shape, lambda _: one(shape.steps))

            await carry(WARM_UP)
            before = server.cpu
            with Meter() as meter:
                await carry(shape)
            used = server.cpu - before
    finally:
        server.process.kill()
        server.process.wait()
    meter.report(version=version("restate-sdk"), server_cpu=used)


if __name__ == "__main__":
    asyncio.run(main())
