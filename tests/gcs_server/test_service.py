"""Around the verbs: counting, sharing the table, running in a loop, running as a program."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import get_args

import anyio
import pytest

from durable.store.memory import Bucket, MemoryBackend
from durable.testing.gcs import Fault, Service, control, serve, serving
from durable.testing.gcs.faults import Kind
from durable.testing.gcs.fields import parse_fields, select
from durable.testing.gcs.listing import after_all
from tests.gcs_server.plain import OBJECTS, UPLOADS, Http, object_path

START_SECONDS_MAX = 2.0  # on a quiet machine
BUSY = 5  # times slower that a busy one may be


def test_calls_are_counted_as_they_are_billed() -> None:
    """By verb and class; what is refused costs nothing, deletes are free, 304 is not."""
    service = Service({"bucket": Bucket()})
    with serving(service) as server, Http(server.url) as http:
        http.create("a")
        http.create("a")
        http.get("a")
        http.get("none")
        generation = http.get("a").json()["generation"]
        http.get("a", ifGenerationNotMatch=generation)
        http.media("a")
        http.call("GET", OBJECTS, prefix="a")
        http.delete("a")
        session = http.call("POST", UPLOADS, {}, uploadType="resumable", name="b")
        http.call("PUT", session.headers["Location"], b"bytes")
        report = http.call("GET", "/_durable/calls").json()
        log = http.call("GET", "/_durable/calls", log=1).json()["log"]

    assert report["requests"] == 11
    assert report["billed"] == {"A": 3, "B": 4, "free": 2}
    assert report["verbs"]["insert"] == {
        "class": "A",
        "requests": 2,
        "billed": 1,
        "statuses": {"200": 1, "412": 1},
    }
    assert report["verbs"]["get"]["statuses"] == {"200": 2, "304": 1, "404": 1}
    assert log[0] == {"verb": "insert", "bucket": "bucket", "name": "a", "status": 200}
    assert service.calls.billed() == {"A": 3, "B": 4, "free": 2}
    assert service.calls.by_verb()["list"] == 1
    service.calls.clear()
    assert service.calls.report()["requests"] == 0


def test_a_call_whose_answer_is_lost_is_counted() -> None:
    """What was carried out is billed, also if nobody hears of it, and twice if done twice."""
    service = Service({"bucket": Bucket()})
    with serving(service) as server, Http(server.url) as http:
        http.call("POST", "/_durable/faults", [{"kind": "twice", "verb": "list", "times": 1}])
        http.call("GET", OBJECTS)
        http.call("DELETE", "/_durable/faults")
        http.call("POST", "/_durable/faults", [{"kind": "truncated", "verb": "list"}])
        with pytest.raises(OSError):
            http.call("GET", OBJECTS)
    assert service.calls.by_verb() == {"list": 3}


async def _backend_of(bucket: Bucket) -> None:
    backend = MemoryBackend(bucket)
    written = await backend.create("memory", b"from memory", {"k": "v"}, True)
    assert written is not None
    await backend.replace("memory", written.generation, b"again", {"k": "w"}, True)


def test_the_memory_store_and_the_server_share_a_bucket() -> None:
    """What one writes the other reads, with the same generation, times and metadata."""
    bucket = Bucket()
    with serving({"bucket": bucket}) as server, Http(server.url) as http:
        asyncio.run(_backend_of(bucket))
        there = bucket.read("memory")
        assert there is not None
        shown = http.get("memory").json()
        assert shown["generation"] == str(there.generation)
        assert (shown["metageneration"], shown["metadata"]) == ("1", {"k": "w"})
        assert http.media("memory").body == b"again"
        stale = http.insert("memory", b"", ifGenerationMatch=there.generation + 1)
        assert stale.status == 412

        http.insert("memory", b"from http", ifGenerationMatch=there.generation)
        http.call("PATCH", object_path("memory"), {"metadata": {"k": "x"}})
        there = bucket.read("memory")
        assert there is not None
        assert (there.body, there.meta) == (b"from http", {"k": "x"})
        # The memory store overwrites what the server has attributes of: they go with it.
        bucket.replace("memory", there.generation, b"last", {}, True)
        assert http.get("memory").json()["metageneration"] == "1"
        assert http.get("memory").json()["size"] == "4"


def test_generations_are_in_no_order() -> None:
    """They are unique, and count up only where that is asked for."""
    for ordered in (False, True):
        with serving({"bucket": Bucket(ordered=ordered)}) as server, Http(server.url) as http:
            found = [int(http.insert("a").json()["generation"]) for _ in range(50)]
        assert len(set(found)) == 50
        assert (found == sorted(found)) == ordered


def test_in_the_running_loop() -> None:
    """`serve` runs beside other tasks of an asyncio loop and leaves nothing behind."""

    async def main() -> None:
        async with serve({"bucket": Bucket()}) as url:
            answer = await asyncio.to_thread(_create, url)
            assert answer == 200
        with pytest.raises(ConnectionRefusedError):
            await asyncio.to_thread(_create, url)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


@pytest.mark.parametrize("turns", range(6))
def test_a_connection_made_while_it_stops_is_closed(turns: int) -> None:
    """However far a connection has come when the server stops, its socket does not stay open."""

    async def main() -> None:
        async with serve({"bucket": Bucket()}) as url:
            made = [socket.create_connection(("127.0.0.1", _port(url)), 5) for _ in range(3)]
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
        for each in made:
            with each, suppress(ConnectionResetError):
                assert each.recv(1) == b""

    asyncio.run(main())
    gc.collect()  # what was left open is warned of now


def test_it_stops_in_an_outage() -> None:
    """Nothing opens the port again."""

    async def main() -> int:
        async with serve({"bucket": Bucket()}) as url:
            await asyncio.to_thread(_outage, url)
        return _port(url)

    port = asyncio.run(main())
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def _outage(url: str) -> None:
    with Http(url) as http:
        assert http.call("POST", "/_durable/outage", {"seconds": 60}).status == 200


def _port(url: str) -> int:
    return int(url.rpartition(":")[2])


def _create(url: str) -> int:
    with Http(url) as http:
        return http.create("a").status


def test_a_port_that_is_taken() -> None:
    """The error comes to whoever asked, not to a thread that nobody looks at."""
    with serving({}) as server:
        port = _port(server.url)
        with pytest.raises(OSError, match="in use"), serving({}, port=port):
            pass


@contextmanager
def program(*options: str) -> Iterator[str]:
    """The server as a program; gives its URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "durable.testing.gcs", *options],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        text=True,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        match = re.fullmatch(r"listening on (http://127\.0\.0\.1:\d+)\n", line)
        assert match, line
        yield match[1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_as_a_program() -> None:
    """It is up soon, on the port asked for; buckets are made through the API; SIGTERM ends it."""
    began = time.monotonic()
    with program("--port", "0", "--rate-limit") as url, Http(url) as http:
        assert time.monotonic() - began < START_SECONDS_MAX * BUSY
        assert http.create("a").status == 404
        assert http.call("POST", "/storage/v1/b", {"name": "bucket"}, project="p").status == 200
        assert http.create("a").status == 200
        assert http.delete("a").status == 429


def test_as_a_program_with_faults() -> None:
    """Latency and faults can be given when it starts."""
    faults = json.dumps({"kind": "refused", "verb": "buckets.get", "status": 503})
    with program("--latency-ms", "50", "--faults", faults, "--ordered") as url, Http(url) as http:
        began = time.monotonic()
        assert http.call("GET", "/storage/v1/b/bucket").status == 503
        assert time.monotonic() - began >= 0.05


@pytest.mark.parametrize(
    "options", [["--faults", '{"kind":"rain"}'], ["--port", "x"], ["--port", "65536"]]
)
def test_a_program_that_cannot_start(options: list[str]) -> None:
    """Options that make no sense end it with a message."""
    done = ended(*options)
    assert done.returncode == 2
    assert "error: argument" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_program_whose_port_is_taken() -> None:
    """It says so in one line, and nothing else."""
    with serving({}) as server:
        port = _port(server.url)
        done = ended("--port", str(port))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"error: cannot listen on 127.0.0.1:{port}: Address already in use\n"


def test_the_reference_names_everything() -> None:
    """Every kind of fault, every field, every endpoint and every option is described."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "testing.md").read_text()
    assert control.__doc__ is not None
    endpoints = re.findall(r"^(\w+) +(/_durable/\w+)", control.__doc__, flags=re.MULTILINE)
    options = set(re.findall(r"--[a-z][a-z-]+", ended("--help").stdout)) - {"--help"}
    words = {*get_args(Kind), *Fault.__struct_fields__, *(" ".join(pair) for pair in endpoints)}
    assert len(endpoints) == 8
    assert len(options) == 5
    assert not [word for word in words - {"kind"} if f"`{word}`" not in page]
    assert not [option for option in options if f"| `{option}" not in page]


def ended(*options: str) -> subprocess.CompletedProcess[str]:
    """The program, which ends by itself."""
    return subprocess.run(
        [sys.executable, "-m", "durable.testing.gcs", *options],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        text=True,
        check=False,
        timeout=30,
    )


@pytest.mark.parametrize(
    ("text", "value", "selected"),
    [
        ("a", {"a": 1, "b": 2}, {"a": 1}),
        ("a,b", {"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 2}),
        ("*", {"a": 1, "b": 2}, {"a": 1, "b": 2}),
        ("a/b", {"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 1}}),
        ("a(b,c)", {"a": {"b": 1, "c": 2, "d": 3}}, {"a": {"b": 1, "c": 2}}),
        ("a(b/c,d)", {"a": {"b": {"c": 1, "x": 2}, "d": 3}}, {"a": {"b": {"c": 1}, "d": 3}}),
        ("a/b(c,d),e", {"a": {"b": {"c": 1, "d": 2, "x": 3}}, "e": 4}, None),
        ("a/b,a/c", {"a": {"b": 1, "c": 2, "d": 3}}, {"a": {"b": 1, "c": 2}}),
        ("a,a/b", {"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 2}}),
        ("items(a), x", {"items": [{"a": 1, "b": 2}, {"b": 3}]}, {"items": [{"a": 1}, {}]}),
        ("items/*", {"items": [{"a": 1}]}, {"items": [{"a": 1}]}),
        ("none", {"a": 1}, {}),
    ],
)
def test_field_selections(text: str, value: object, selected: object) -> None:
    """Names, parts, groups and lists, as the `fields` parameter writes them."""
    if selected is None:
        selected = {"a": {"b": {"c": 1, "d": 2}}, "e": 4}
    assert select(value, parse_fields(text)) == selected


@pytest.mark.parametrize(
    ("prefix", "first"),
    [
        ("a/", "a0"),
        ("a\U0010ffff", "b"),
        ("\U0010ffff", None),
        ("a\ud7ff", "a\ue000"),
        ("a\uffff", "a\U00010000"),
    ],
)
def test_the_name_behind_a_prefix(prefix: str, first: str | None) -> None:
    """The first name that can come behind all that begin with a prefix, also at the edges."""
    assert after_all(prefix) == first
    if first is not None:
        assert prefix < prefix + "\U0010ffff" * 3 < first
