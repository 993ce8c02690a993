"""Connections belong to one event loop and end with it; threads, forks and trio."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import Future

import anyio
import anyio.to_thread
import pytest

from durable.errors import StoreError
from durable.loops import io_thread, settled
from durable.store.gcs import GcsBackend, Place
from durable.store.gcs.http import ANSWER_SECONDS
from durable.testing.gcs import Fault, Handle
from tests.commands import environment
from tests.facts import SECONDS_MAX, until
from tests.gcs_store.conftest import BUCKET
from tests.gcs_store.parrot import Parrot


def _connections(handle: Handle) -> int:
    """How many connections the server has."""
    return handle._ask(lambda: len(handle._server._connections))


def _wait_for_none(handle: Handle) -> None:
    until(lambda: not _connections(handle), "connections stay open")


def test_an_event_loop_takes_its_connections_along(place: Place, server: Handle) -> None:
    """The loop of a renewal ends; nothing stays open, nothing is warned of, the next loop works."""
    backend = GcsBackend(place)
    for _ in range(3):
        anyio.run(backend.read, "a")
        gc.collect()
        _wait_for_none(server)

    assert backend._http._by_loop == {}


def test_a_store_that_nobody_closes_leaves_nothing_open(place: Place, server: Handle) -> None:
    """Forgotten in a running event loop, its connections are closed when the loop ends."""

    async def forget() -> None:
        await GcsBackend(place).read("a")
        gc.collect()

    anyio.run(forget)
    gc.collect()

    _wait_for_none(server)


@pytest.mark.requires("trio")
@pytest.mark.parametrize("closer", ["asyncio", "trio"])
def test_closing_reaches_every_event_loop(place: Place, server: Handle, closer: str) -> None:
    """One loop closes the store; connections of loops that still run are closed, too."""
    backend = GcsBackend(place)
    used, closed = threading.Event(), threading.Event()

    async def use() -> None:
        await backend.read("a")
        used.set()
        await anyio.to_thread.run_sync(closed.wait)
        await anyio.to_thread.run_sync(_wait_for_none, server)
        assert not backend._http._by_loop

    def run() -> None:
        anyio.run(use)

    other = threading.Thread(target=run)
    other.start()
    assert used.wait(SECONDS_MAX)
    anyio.run(backend.read, "a", backend="trio")
    assert _connections(server) == 2
    anyio.run(backend.aclose, backend=closer)
    closed.set()
    other.join()

    _wait_for_none(server)


def test_connections_are_used_again(place: Place, server: Handle) -> None:
    """A hundred calls one after the other have one connection, many at once no more than needed."""

    async def use() -> tuple[int, int]:
        backend = GcsBackend(place)
        for _ in range(100):
            await backend.read("a")
        alone = _connections(server)
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(backend.read, "a")
        many = _connections(server)
        await backend.aclose()
        return alone, many

    alone, many = anyio.run(use)

    assert alone == 1
    assert many <= 20


def test_waiting_for_a_connection_is_not_held_against_a_call(place: Place, server: Handle) -> None:
    """With more calls than connections all are answered, however long the last ones wait."""
    server.service.faults.add(Fault("delayed", seconds=0.02))

    async def use() -> int:
        backend = GcsBackend(place)
        async with anyio.create_task_group() as tasks:
            for _ in range(400):
                tasks.start_soon(backend.read, "a")
        open_at_once = _connections(server)
        await backend.aclose()
        return open_at_once

    assert anyio.run(use) <= 128
    assert server.service.calls.by_verb() == {"get": 400}


@pytest.mark.requires("trio")
def test_a_cancellation_in_trio_reaches_the_request(place: Place, server: Handle) -> None:
    """The caller goes on at once, the connection is given up, the store works as before."""

    async def use() -> float:
        backend = GcsBackend(place)
        await backend.read("a")
        server.service.faults.add(Fault("silent", times=1))
        began = time.monotonic()
        with anyio.move_on_after(0.05) as scope:
            await backend.read("a")
        took = time.monotonic() - began
        assert scope.cancelled_caught
        await anyio.to_thread.run_sync(_wait_for_none, server)
        assert await backend.read("a") is None
        await backend.aclose()
        return took

    assert anyio.run(use, backend="trio") < ANSWER_SECONDS


@pytest.mark.requires("trio")
def test_trio_shares_one_thread() -> None:
    """Several runs of trio, also at the same time, use the same one."""
    seen: set[int] = set()

    async def ident() -> int:
        return threading.get_ident()

    async def use() -> None:
        for _ in range(10):
            seen.add(await io_thread().call(ident))

    threads = [threading.Thread(target=lambda: anyio.run(use, backend="trio")) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(seen) == 1


def test_a_future_is_awaited_where_its_loop_may_end(anyio_backend: str) -> None:
    """Who settles it does not stumble over an event loop that is gone."""
    future: Future[int] = Future()

    async def give_up() -> None:
        with anyio.move_on_after(0):
            await settled(future)

    anyio.run(give_up, backend=anyio_backend)
    future.set_result(1)

    assert anyio.run(settled, future, backend=anyio_backend) == 1


FORKING = """if True:
    import os, sys, threading, warnings
    import anyio
    warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 warns of forks beside threads
    from durable.store.opening import open_store

    backend = open_store(sys.argv[1]).backend

    async def read(who, count):
        for number in range(count):
            name = f"{(number * 7 + who) % 50}"
            stored = await backend.read(name)
            assert stored.body == b"body of %s" % name.encode(), (name, stored)

    async def fill():
        for number in range(50):
            await backend.create(str(number), b"body of %d" % number, {}, True)

    def run(who, count, library="asyncio"):
        try:
            anyio.run(read, who, count, backend=library)
        except BaseException as e:
            print(who, "failed:", repr(e), flush=True)
            raise

    anyio.run(fill)
    run(0, 1, "trio")  # what is imported meanwhile would stay locked in a child
    threads = [
        threading.Thread(target=run, args=(who, 100, "trio" if who % 2 else "asyncio"))
        for who in range(8)
    ]
    for thread in threads:
        thread.start()
    children = []
    for who in (20, 21):
        child = os.fork()
        if child == 0:
            try:
                run(who, 100, "trio" if who % 2 else "asyncio")
            finally:
                os._exit(0 if sys.exc_info()[0] is None else 1)
        children.append(child)
    for thread in threads:
        thread.join()
    for child in children:
        print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    run(30, 100)
    anyio.run(backend.aclose)
    print("done")
"""


@pytest.mark.requires("trio")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_threads_and_forked_children_mix_nothing_up(place: Place, server: Handle) -> None:
    """Eight threads and two children forked between them read what they asked for, always.

    B32, googleapis/python-storage#486.
    """
    url = f"gs://{BUCKET}/{place.prefix}"
    done = subprocess.run(
        [sys.executable, "-c", FORKING, url],
        env={**environment(), "STORAGE_EMULATOR_HOST": server.url},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert done.stdout.splitlines() == ["child 0", "child 0", "done"], done.stderr
    assert done.returncode == 0
    assert server.service.calls.by_verb() == {"insert": 50, "get": 1101}


# -- proxies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("endpoint", "first_line"),
    [
        ("http://gcs.test", b"GET http://gcs.test/storage/v1/b/"),
        ("https://storage.googleapis.com", b"CONNECT storage.googleapis.com:443 "),
    ],
)
def test_a_proxy_of_the_environment_is_used(
    endpoint: str, first_line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For both schemes, with the name and password that its URL has."""
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with Parrot(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n") as proxy:
        for name in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(name, f"http://user:p%40ss@127.0.0.1:{proxy.port}")
        error = _read(Place(BUCKET, "", "", endpoint, anonymous=True))

    assert "502" in error
    assert proxy.heard[0].startswith(first_line)
    assert b"Proxy-Authorization: Basic dXNlcjpwQHNz\r\n" in proxy.heard[0]  # user:p@ss


def test_a_proxy_is_not_used_where_the_environment_exempts_the_host(
    server: Handle, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither for hosts in `no_proxy`, nor ever for this machine itself."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", ".invalid")

    assert _read(place) == ""
    assert "127.0.0.1" not in _read(Place(BUCKET, "", "", "http://x.invalid", anonymous=True))


def _read(place: Place) -> str:
    """Read something; the error, if there is one."""

    async def read() -> str:
        backend = GcsBackend(place)
        try:
            await backend.read("a")
        except StoreError as e:
            return e.message
        finally:
            await backend.aclose()
        return ""

    return anyio.run(read)
