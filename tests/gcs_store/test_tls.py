"""The same requests through TLS, as at Google, and through a proxy's tunnel."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from durable.testing.gcs import Handle
from tests.commands import environment
from tests.gcs_store.certificates import FAR, Certificates
from tests.gcs_store.conftest import BUCKET

CLIENT = """if True:
    import os, sys
    import anyio
    from durable.store.opening import open_store

    LARGE = os.urandom(3 * 1024 * 1024)

    async def write_and_read(backend, name, body):
        written = await backend.create(name, body, {"nonce": "n"}, True)
        stored = await backend.read(name)
        assert stored.body == body, (name, stored)
        assert await backend.delete(name, written.generation)

    async def main():
        backend = open_store(sys.argv[1]).backend
        await write_and_read(backend, "alone", b"x")
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(write_and_read, backend, f"small-{number}", b"x" * number)
            for number in range(3):
                tasks.start_soon(write_and_read, backend, f"large-{number}", LARGE)
        assert (await backend.list("", None)).items == []
        await backend.aclose()
        print("done")

    anyio.run(main)
"""


Accept = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextmanager
def _listening(accept: Accept, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """A server in a thread of its own; its port."""
    started: list[int] = []
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    over = asyncio.Event()

    async def main() -> None:
        server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
        started.append(server.sockets[0].getsockname()[1])
        ready.set()
        await over.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),))
    thread.start()
    ready.wait()
    try:
        yield started[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def _join(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int
) -> None:
    """Pass on what either side says, until both have ended."""
    far_reader, far_writer = await asyncio.open_connection(host, port)
    await asyncio.gather(_pipe(reader, far_writer), _pipe(far_reader, writer))


@contextmanager
def _tls_front(server: Handle, certificates: Certificates) -> Iterator[int]:
    """The strict server behind TLS."""
    behind = urlsplit(server.url)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _join(reader, writer, str(behind.hostname), int(behind.port or 0))

    with _listening(accept, certificates.for_server()) as port:
        yield port


def _run_client(place: str, certificates: Certificates, **more: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", CLIENT, place],
        env={**environment(), "SSL_CERT_FILE": str(certificates.authority), **more},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    return [*done.stdout.splitlines(), *done.stderr.splitlines()]


def test_requests_go_through_tls(server: Handle, certificates: Certificates) -> None:
    """Small and large ones, one after the other and at once; nothing is left open."""
    with _tls_front(server, certificates) as port:
        said = _run_client(
            f"gs://{BUCKET}/tls", certificates, STORAGE_EMULATOR_HOST=f"https://localhost:{port}"
        )

    assert said == ["done"]
    assert server.service.calls.by_verb() == {
        "insert": 24, "get": 24, "media": 3, "delete": 24, "list": 1,
    }  # fmt: skip


def test_a_certificate_for_another_host_is_not_accepted(
    server: Handle, certificates: Certificates
) -> None:
    """Nothing is sent to it."""
    with _tls_front(server, certificates) as port:
        said = _run_client(
            f"gs://{BUCKET}/tls", certificates, STORAGE_EMULATOR_HOST=f"https://127.0.0.1:{port}"
        )

    assert "CERTIFICATE_VERIFY_FAILED" in "".join(said)
    assert "durable.errors.StoreUnavailable: https://127.0.0.1:" in "".join(said)
    assert server.service.calls.log == []


def test_requests_go_through_the_tunnel_of_a_proxy(
    server: Handle, certificates: Certificates
) -> None:
    """TLS is with the far host, whose name only the proxy resolves."""
    heard: list[bytes] = []

    with _tls_front(server, certificates) as front:

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await _join(reader, writer, "127.0.0.1", front)

        with _listening(accept) as proxy:
            said = _run_client(
                f"gs://{BUCKET}/tunnel",
                certificates,
                STORAGE_EMULATOR_HOST=f"https://{FAR}",
                https_proxy=f"http://user:p%40ss@127.0.0.1:{proxy}",
                no_proxy="",
            )

    assert said == ["done"]
    assert heard
    for head in heard:
        assert head.startswith(f"CONNECT {FAR}:443 HTTP/1.1\r\n".encode())
        assert b"\r\nProxy-Authorization: Basic dXNlcjpwQHNz\r\n" in head
