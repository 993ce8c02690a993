"""Objects in one SQLite file, shared by the processes of one machine.

Writes go through one connection, which commits all that wait as one transaction: whoever writes
at the same time shares one sync of the disk, and each write's precondition is decided by itself.
Reads and lists have a connection of their own and never wait for a writer (WAL mode). Which
thread does the work is the business of `durable.store.lanes`.

The store's time is the boot clock plus an offset that the first process of each boot of the
machine stores, so a step of the wall clock changes nothing.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import sqlite3
from contextlib import suppress
from functools import partial

import msgspec

from durable.errors import StoreUnavailable
from durable.store import (
    EVERYTHING,
    INLINE_BYTES_MAX,
    LOCAL_PACE,
    Backend,
    Page,
    Stored,
    Within,
    Written,
)
from durable.store.database import (
    BUSY_SECONDS,
    Connection,
    connect,
    explain,
    is_locked,
    patiently,
    prepare,
)
from durable.store.lanes import Batch, Lane, fail
from durable.system import System, boot_id

PAGE_SIZE = 1000  # as in GCS
SMALL_BYTES = 65_536  # of a body that may be written in the caller's thread

_encode_meta = msgspec.json.Encoder().encode
_decode_meta = msgspec.json.Decoder(dict[str, str]).decode

_CREATE = "INSERT INTO objects VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO NOTHING"
_REPLACE = """
    UPDATE objects SET generation = ?, updated = ?, meta = ?, inline = ?, body = ?
    WHERE name = ? AND generation = ?
"""
_DELETE = "DELETE FROM objects WHERE name = ? AND generation = ?"
_READ = "SELECT name, generation, created, updated, meta, body FROM objects WHERE name = ?"
_LIST = """
    SELECT name, generation, created, updated, meta, CASE WHEN inline THEN body END
    FROM objects WHERE name >= ? AND name > ? AND name < ? ORDER BY name LIMIT ?
"""
_COPY = """
    INSERT INTO objects SELECT ?, ?, ?, ?, meta, inline, body FROM objects
    WHERE name = ? AND generation = ? ON CONFLICT (name) DO NOTHING
"""
_LAST = "\U0010ffff" * 256  # behind every name, which has at most 1,024 bytes


class SqliteBackend(Backend):
    """The store port over one SQLite file.

    Args:
        path: of the file.
        system: clocks and chance.
        boot: the id of this boot of the machine, by default the system's.
        create: make the file, with its folder, if it is missing.

    Attributes:
        commits: how many transactions were committed here.

    Raises:
        StoreRefused: see `durable.store.database.prepare`.
        StoreUnavailable: another process kept the file locked.
    """

    pace = LOCAL_PACE

    def __init__(
        self,
        path: str,
        *,
        system: System | None = None,
        boot: str | None = None,
        create: bool = True,
    ) -> None:
        path = self.path = os.path.abspath(path)
        self.boot = boot or boot_id()
        self.lock_folder = f"{path}.locks"
        self.commits = 0
        self._system = system or System()
        self._seed = self._system.token()
        self._count = itertools.count()
        self._offset = prepare(path, self._system, self.boot, create=create)
        self._writer = Lane(
            f"writer of {path}",
            lambda: connect(path, self._system),
            self._write,
            self._system.boot,
        )
        self._reader = Lane(
            f"reader of {path}",
            lambda: connect(path, self._system, "query"),
            self._read,
            self._system.boot,
        )

    async def create(
        self, name: str, body: bytes, meta: dict[str, str], inline: bool
    ) -> Written | None:
        generation = self._new_generation()
        text, small = _columns(body, meta, inline)

        def work(db: Connection, now: float) -> Written | None:
            row = (name, generation, now, now, text, small, body)
            return Written(generation, now) if db.execute(_CREATE, row).rowcount == 1 else None

        return await self._writer.ask(work, small=len(body) <= SMALL_BYTES)

    async def replace(
        self, name: str, generation: int, body: bytes, meta: dict[str, str], inline: bool
    ) -> Written | None:
        new = self._new_generation()
        text, small = _columns(body, meta, inline)

        def work(db: Connection, now: float) -> Written | None:
            row = (new, now, text, small, body, name, generation)
            return Written(new, now) if db.execute(_REPLACE, row).rowcount == 1 else None

        return await self._writer.ask(work, small=len(body) <= SMALL_BYTES)

    async def read(self, name: str) -> Stored | None:
        def work(db: Connection, _now: float) -> Stored | None:
            row = db.execute(_READ, (name,)).fetchone()
            return None if row is None else _stored(row)

        return await self._reader.ask(work, small=True)

    async def list(self, prefix: str, token: str | None, within: Within = EVERYTHING) -> Page:
        first, end = max(prefix, within.start), min(prefix + _LAST, within.end or _LAST)
        bounds = (first, token or "", end, PAGE_SIZE + 1)

        def work(db: Connection, _now: float) -> Page:
            items = [_stored(row) for row in db.execute(_LIST, bounds)]
            if len(items) <= PAGE_SIZE:
                return Page(items, None)
            del items[PAGE_SIZE:]
            return Page(items, items[-1].name)

        return await self._reader.ask(work)

    async def delete(self, name: str, generation: int) -> bool:
        return await self._writer.ask(
            lambda db, _now: db.execute(_DELETE, (name, generation)).rowcount == 1, small=True
        )

    async def copy(self, source: str, generation: int, name: str) -> Written | None:
        new = self._new_generation()

        def work(db: Connection, now: float) -> Written | None:
            row = (name, new, now, now, source, generation)
            return Written(new, now) if db.execute(_COPY, row).rowcount == 1 else None

        return await self._writer.ask(work)

    def now(self) -> float:
        return self._system.boot() + self._offset

    async def aclose(self) -> None:
        """Finish what was asked, then close the file."""
        await self._reader.aclose()
        await self._writer.aclose()

    def _new_generation(self) -> int:
        """62 bits: unique for good, and in no order."""
        # Counted from a random seed: asking the system for chance each time gives the processor
        # to another thread. With the process, since a store that was opened but not used yet may
        # go on on both sides of a fork.
        text = f"{self._seed} {os.getpid()} {next(self._count)}"
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 2

    def _write(self, db: Connection, batch: Batch, patience: float) -> bool:
        """Carry out a batch as one transaction: all of it is committed, or nothing."""
        try:
            db.check_place()
            patiently(self._system, lambda: db.execute("BEGIN IMMEDIATE"), patience)
            now = self.now()  # after the lock, so that times rise in the order of commits
            answers = [request.work(db, now) for request in batch]
            db.execute("COMMIT")
        except BaseException as e:
            with suppress(sqlite3.Error):
                db.rollback()
            if not isinstance(e, Exception):
                raise  # Ctrl-C, in the caller's thread
            if is_locked(e) and patience == 0:
                return False
            self._fail(db, batch, e)
        else:
            self.commits += 1
            for request, answer in zip(batch, answers, strict=True):
                request.answer = answer
        return True

    def _fail(self, db: Connection, batch: Batch, error: Exception) -> None:
        problem = explain(error, self.path) if isinstance(error, sqlite3.Error) else error
        if len(batch) == 1 or isinstance(problem, StoreUnavailable):
            fail(batch, problem)
            return
        for request in batch:  # one that is too large, say, must not take the others with it
            self._write(db, [request], BUSY_SECONDS)

    def _read(self, db: Connection, batch: Batch, patience: float) -> bool:
        for request in batch:
            try:
                db.check_place()
                request.answer = patiently(
                    self._system, partial(request.work, db, self.now()), patience
                )
            except Exception as e:  # noqa: BLE001  # the caller is told, whatever it is
                if is_locked(e) and patience == 0:
                    return False
                fail([request], explain(e, self.path) if isinstance(e, sqlite3.Error) else e)
        return True


def _columns(body: bytes, meta: dict[str, str], inline: bool) -> tuple[str, bool]:
    """The metadata as JSON, and whether lists show the body."""
    return _encode_meta(meta).decode(), inline and len(body) <= INLINE_BYTES_MAX


def _stored(row: tuple[str, int, float, float, str, bytes | None]) -> Stored:
    name, generation, created, updated, meta, body = row
    return Stored(name, generation, created, updated, _decode_meta(meta), body)
