"""Sixteen racers for one object: processes where a store is shared by processes, else threads.

A racer reads one command per line as JSON, does that one call and answers with one line.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from queue import SimpleQueue
from types import TracebackType
from typing import Literal, Self

import anyio
import msgspec

from durable.errors import StoreRefused
from durable.store import Backend
from durable.store.opening import open_store

RACERS = 16
RACER_SECONDS_MAX = 10.0  # to end, once told to


class Command(msgspec.Struct):
    """One call. `generation` is the precondition of replace and delete."""

    verb: Literal["create", "replace", "read", "delete"]
    name: str
    generation: int = 0


class Answer(msgspec.Struct):
    """`won`: the call took effect, or a read found something. `body`: what a read found."""

    won: bool
    generation: int = 0
    body: str = ""


async def carry_out(backend: Backend, racer: str, command: Command) -> Answer:
    """Do what the command says; the racer's name is the body of what it writes."""
    name, generation, body = command.name, command.generation, racer.encode()
    match command.verb:
        case "create":
            written = await backend.create(name, body, {}, True)
        case "replace":
            written = await backend.replace(name, generation, body, {}, True)
        case "delete":
            return Answer(await backend.delete(name, generation))
        case "read":
            stored = await backend.read(name)
            if stored is None or stored.body is None:
                return Answer(False)
            return Answer(True, stored.generation, stored.body.decode())
    return Answer(False) if written is None else Answer(True, written.generation, racer)


async def race(
    backend: Backend, racer: str, receive: Callable[[], bytes], send: Callable[[bytes], object]
) -> None:
    """Answer commands until an empty one comes."""
    send(b"ready\n")
    while line := receive().strip():
        command = msgspec.json.decode(line, type=Command)
        send(msgspec.json.encode(await carry_out(backend, racer, command)) + b"\n")


class _Process:
    """A racer in a process of its own, which opens the store by its URL."""

    def __init__(self, racer: str, url: str) -> None:
        # S603: the program is this interpreter, the URL an argument.
        self._process = subprocess.Popen(  # noqa: S603  # our own words
            [sys.executable, "-m", "durable.testing.racing", url, racer],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout

    def send(self, line: bytes) -> None:
        self._stdin.write(line)
        self._stdin.flush()

    def receive(self) -> bytes:
        line = self._stdout.readline()
        if not line:
            raise StoreRefused(
                f"a racing process ended with {self._process.wait()}",
                hint="What it printed on stderr says why.",
            )
        return line

    def close(self) -> None:
        with suppress(BrokenPipeError):
            self._stdin.close()
        try:
            self._process.wait(RACER_SECONDS_MAX)
        finally:
            self._process.kill()
            self._process.wait()
            self._stdout.close()


class _Thread:
    """A racer in a thread of this process, with an event loop of its own."""

    def __init__(self, racer: str, backend: Backend) -> None:
        self._commands: SimpleQueue[bytes] = SimpleQueue()
        self._answers: SimpleQueue[bytes] = SimpleQueue()
        self.send = self._commands.put
        self.receive = self._answers.get
        self._thread = threading.Thread(target=self._run, args=(backend, racer))
        self._thread.start()

    def _run(self, backend: Backend, racer: str) -> None:
        anyio.run(race, backend, racer, self._commands.get, self._answers.put)

    def close(self) -> None:
        self.send(b"")
        self._thread.join()


class Racers:
    """Sixteen of them; `url` for processes, `backend` for threads that share it."""

    def __init__(self, *, url: str | None = None, backend: Backend | None = None) -> None:
        self._url = url
        self._backend = backend
        self._racers: list[_Process | _Thread] = []
        self._closing = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as started:
            for number in range(RACERS):
                racer = self._start(f"racer-{number}")
                started.callback(racer.close)
                self._racers.append(racer)
            for racer in self._racers:
                assert racer.receive() == b"ready\n"
            self._closing = started.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closing.close()

    def all(self, command: Command) -> list[Answer]:
        """Everybody does it at the same time."""
        line = msgspec.json.encode(command) + b"\n"
        for racer in self._racers:
            racer.send(line)
        return [msgspec.json.decode(racer.receive(), type=Answer) for racer in self._racers]

    def one(self, command: Command) -> Answer:
        """The first of them does it alone."""
        self._racers[0].send(msgspec.json.encode(command) + b"\n")
        return msgspec.json.decode(self._racers[0].receive(), type=Answer)

    def _start(self, name: str) -> _Process | _Thread:
        if self._url is not None:
            return _Process(name, self._url)
        assert self._backend is not None, "racers need a url or a backend"
        return _Thread(name, self._backend)


async def _main(url: str, racer: str) -> None:
    def send(line: bytes) -> None:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()

    store = open_store(url)
    try:
        await race(store.backend, racer, sys.stdin.buffer.readline, send)
    finally:
        await store.aclose()


if __name__ == "__main__":
    anyio.run(_main, sys.argv[1], sys.argv[2])
