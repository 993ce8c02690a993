"""A run as one readable file: everything that is recorded of its present instance.

The file is JSON. Records stand in it as they stand in the store, so what `gcloud storage cat`
shows of an object is what the file shows. What is no JSON, because the object is damaged or
foreign, stands there in base64.
"""

from __future__ import annotations

from base64 import b64decode, b64encode

import msgspec

from durable.client import reading
from durable.errors import Conflict, UsageError
from durable.protocol import moments, names, records
from durable.protocol.records import History, Result, Start
from durable.protocol.singletons import ending
from durable.store import Refused, Store, Stored
from durable.store.memory import MemoryBackend
from durable.system import System

FORMAT = 1


class _Object(msgspec.Struct, omit_defaults=True):
    name: str  # behind the instance's folder
    nonce: str
    record: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    base64: str = ""


class Archive(msgspec.Struct):
    """The content of a file.

    Attributes:
        durable: the version of the format.
        exported: when, in seconds since the epoch by the store's clock.
    """

    durable: int
    run: str
    exported: float
    start: Start
    objects: list[_Object]

    @property
    def result(self) -> Result | None:
        """The run's outcome, if it is over."""
        found = next((o for o in self.objects if o.name == "result"), None)
        if found is None or isinstance(found.record, msgspec.UnsetType):
            return None
        return msgspec.json.decode(found.record, type=Result)


async def export(store: Store, run: str) -> bytes:
    """The run as it is recorded now, as the content of a file.

    Raises:
        NotFound: there is no run of that id.
    """
    start = await reading.read_start(store, run)
    folder = names.instance_folder(run, start.instance)
    objects = []
    found = [stored async for stored in store.list(folder)]
    # Events are taken in the order of their creation, and `write` creates in the order of the file.
    for listed in sorted(found, key=lambda stored: (stored.created, stored.name)):
        stored = listed if listed.body is not None else await store.read(listed.name)
        if stored is not None:
            nonce = stored.meta.get("nonce", "")
            objects.append(_object(stored.name.removeprefix(folder), nonce, stored.body or b""))
    archive = Archive(FORMAT, run, store.now(), start, objects)
    return msgspec.json.format(msgspec.json.encode(archive), indent=1)


def _object(name: str, nonce: str, body: bytes) -> _Object:
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _Object(name, nonce, base64=b64encode(body).decode())
    return _Object(name, nonce, msgspec.Raw(body))


def read(content: bytes) -> Archive:
    """What such a file holds.

    Raises:
        UsageError: it is no such file, or of a later format.
    """
    try:
        archive = msgspec.json.decode(content, type=Archive)
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise UsageError(f"the file holds no exported run: {e}") from e
    if archive.durable != FORMAT:
        raise UsageError(
            f"the file has format {archive.durable}, and this version reads format {FORMAT}",
            hint="export the run again, or use the version that wrote the file",
        )
    names.check_id(archive.run)
    folder = names.instance_folder(archive.run, archive.start.instance)
    for one in archive.objects:
        fact = names.parse_fact(archive.run, folder + one.name)
        if fact is None or fact.instance != archive.start.instance or ".." in one.name.split("/"):
            raise UsageError(f"the file names an object that no run has: {one.name!r}")
    return archive


async def write(store: Store, archive: Archive) -> None:
    """Put the run into this store, `start` last. Nobody executes it: see `Client.retry`.

    One that was cut off is done again by importing again.

    Raises:
        Conflict: the store has a run of that id.
        NeedsAttention: what stands in the place of `start` is damaged.
    """
    run, start = archive.run, archive.start
    there = await store.read(names.start(run))
    if there is not None and not reading.decode_start(run, there).tombstone:
        raise _taken(run)
    for one in archive.objects:
        body = b64decode(one.base64)
        if not isinstance(one.record, msgspec.UnsetType):
            body = msgspec.json.format(bytes(one.record), indent=-1)  # as it was, without spaces
        name = names.instance_folder(run, start.instance) + one.name
        await store.create(name, body, nonce=one.nonce)
    result = archive.result
    if result is not None:
        entry = History.of(run, start, result, why=ending(result), nonce=start.nonce)
        name = names.history(moments.stamp(result.time), run)
        await store.create(name, records.encode(entry), nonce=entry.nonce)
    await _write_start(store, run, there, start)


async def _write_start(store: Store, run: str, there: Stored | None, start: Start) -> None:
    """In the place of nothing, or of the tombstone that is there."""
    name, body = names.start(run), records.encode(start)
    if there is None:
        written = await store.create(name, body, nonce=start.nonce)
    else:
        earlier = there.meta.get("nonce", "")
        written = await store.replace(
            name, there.generation, body, nonce=start.nonce, earlier=earlier
        )
    if isinstance(written, Refused):
        raise _taken(run)


async def unpacked(archive: Archive) -> Store:
    """A store in memory that holds this run alone."""
    store = Store(MemoryBackend(), system=System())
    await write(store, archive)
    return store


def _taken(run: str) -> Conflict:
    return Conflict(
        f"the store has a run {run!r} already",
        hint="purge that one first, or import into another store",
        run=run,
    )
