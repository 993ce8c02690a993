"""The SQLite file: opening it safely, its schema, its clock, and what its errors mean."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Literal, TypeVar
from urllib.parse import quote

from durable.errors import StoreError, StoreRefused, StoreUnavailable
from durable.store.network import network_type
from durable.system import System

T = TypeVar("T")

SCHEMA_VERSION = 1
APPLICATION_ID = 0x64757261  # "dura"
# Seconds between two tries for the lock: the longer the fewer tries, the shorter the fairer.
RETRY_MIN, RETRY_MAX = 0.001, 0.008
BUSY_SECONDS = 5.0  # how long one attempt waits for another process's write to end

_SCHEMA = """
    CREATE TABLE objects (
        name TEXT PRIMARY KEY,
        generation INTEGER NOT NULL,
        created REAL NOT NULL,
        updated REAL NOT NULL,
        meta TEXT NOT NULL,
        inline INTEGER NOT NULL,
        body BLOB NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE boots (boot TEXT PRIMARY KEY, wall_minus_boot REAL NOT NULL) WITHOUT ROWID;
"""
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
_NEVER = threading.Event()  # waiting for it with a timeout is how a thread sleeps

# SQLite keeps track of its locks by file, and believes in a forked child that it holds what the
# parent holds. So a file that the parent had open is never opened in the child.
_open_files: dict[int, tuple[int, int]] = {}  # id of the connection -> device, inode
_inherited: set[tuple[int, int]] = set()


class Connection(sqlite3.Connection):
    """A connection that knows which file it holds open."""

    path = ""
    file = (0, 0)  # device, inode

    def hold(self, path: str) -> None:
        """Note that `path` is the file that this connection has open."""
        self.path, self.file = path, _file(path)
        _open_files[id(self)] = self.file

    def check_place(self) -> None:
        """Refuse to go on with a file that is no longer at its path.

        SQLite would (in WAL mode), and what it wrote would be lost with the last descriptor.
        """
        try:
            moved = _file(self.path) != self.file
        except FileNotFoundError:
            moved = True
        if moved:
            raise StoreRefused(
                f"the store {self.path} was moved or deleted while it was open",
                hint="Stop every process that uses it, put it back, and start them again.",
            )

    def close(self) -> None:
        super().close()
        _open_files.pop(id(self), None)


def _file(path: str) -> tuple[int, int]:
    stat = os.stat(path)
    return stat.st_dev, stat.st_ino


def _after_fork() -> None:
    _inherited.update(_open_files.values())
    _open_files.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def prepare(path: str, system: System, boot: str, *, create: bool = True) -> float:
    """Make the file ready to be used; create it, its folder and its tables where missing.

    Args:
        create: else a missing file is refused, and nothing is made.

    Returns:
        What to add to the boot clock to have the store's time: fixed by the first process of
        this boot of the machine, the same for all.

    Raises:
        StoreRefused: a network file system, a newer schema, another program's database, a
            damaged file, no permission, a full disk.
        StoreUnavailable: another process kept it locked.
    """
    if create:
        _make_folder(os.path.dirname(path))
    elif not os.path.exists(path):
        raise StoreRefused(
            f"there is no store {path}",
            hint="Check the path, and the folder you are in. `durable run`, `start` and `worker` "
            "make it, and `durable init`.",
        )
    kind = network_type(path)
    if kind is not None:
        raise StoreRefused(
            f"the store {path} is on a network file system ({kind}), where SQLite loses data",
            hint="Put it on a local disk; to share a store between machines use a bucket.",
        )
    db = connect(path, system, "create")
    try:
        with closing(db):
            return patiently(system, lambda: _prepare(db, path, system, boot))
    except sqlite3.Error as e:
        raise explain(e, path) from e


def _make_folder(folder: str) -> None:
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as e:
        raise StoreRefused(
            f"the folder {folder} of the store cannot be created: {e.strerror}",
            hint="Name another place: sqlite:///path/of/the.db",
        ) from e


def connect(
    path: str, system: System, use: Literal["create", "write", "query"] = "write"
) -> Connection:
    """A connection in autocommit mode, for use in one thread. Only `create` makes the file.

    Raises:
        StoreRefused, StoreUnavailable: see `explain`; or the parent process had the file open.
    """
    try:
        _refuse_inherited(path)
        return patiently(system, lambda: _connect(path, use))
    except sqlite3.Error as e:
        raise explain(e, path) from e


def _connect(path: str, use: str) -> Connection:
    db = sqlite3.connect(
        f"file:{quote(path)}?mode={'rwc' if use == 'create' else 'rw'}",
        uri=True,
        timeout=0,  # waiting is done in `patiently`
        isolation_level=None,
        check_same_thread=False,
        factory=Connection,
    )
    try:
        db.hold(path)
        db.execute("PRAGMA synchronous=FULL")
        db.execute("PRAGMA fullfsync=ON")  # macOS: fsync alone leaves data in the disk's cache
        if use == "query":
            db.execute("PRAGMA query_only=ON")
    except BaseException:
        db.close()
        raise
    return db


def _refuse_inherited(path: str) -> None:
    try:
        inherited = _file(path) in _inherited
    except OSError:
        return
    if inherited:
        raise StoreRefused(
            f"this process was forked from one that had {path} open, and SQLite cannot be used "
            "across a fork",
            hint="Start processes with the 'spawn' method, or open the store only in the child.",
        )


def patiently(system: System, attempt: Callable[[], T], patience: float = BUSY_SECONDS) -> T:
    """Repeat `attempt` while the database is locked, for up to `patience` seconds.

    SQLite's own waiting sleeps for up to 100 ms at a time and lets the same process win again
    and again; short jittered sleeps are fairer and quicker.
    """
    began, longest = system.boot(), RETRY_MIN
    while True:
        try:
            return attempt()
        except sqlite3.OperationalError as e:
            if not is_locked(e) or system.boot() - began >= patience:
                raise
        _NEVER.wait(system.uniform(longest / 4, longest))
        longest = min(longest * 1.2, RETRY_MAX)


def is_locked(error: BaseException) -> bool:
    """Whether the error says that another process is in the way, and nothing was done."""
    return isinstance(error, sqlite3.Error) and _primary(error) in _BUSY


def explain(error: sqlite3.Error, path: str) -> StoreError:
    """What an error of SQLite means for the caller, and what to do about it."""
    code = _primary(error)
    if is_locked(error):
        return StoreUnavailable(
            f"the store {path} was locked by another process for {BUSY_SECONDS:g} s",
            hint="Another process writes at length or is stopped in the middle of a write; "
            "`fuser` on the file names it.",
        )
    if code == sqlite3.SQLITE_IOERR:
        return StoreUnavailable(
            f"the disk under the store {path} failed: {error}",
            hint="Look at the disk and its free space; the last write may have been recorded.",
        )
    if code == sqlite3.SQLITE_FULL:
        return StoreRefused(
            f"the disk under the store {path} is full; nothing of this write was recorded",
            hint="Free some space and go on: what was recorded before is intact.",
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreRefused(
            f"the store {path} is damaged or is no database: {error}",
            hint=f'Restore it from a copy, or try: sqlite3 {path} ".recover"',
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return StoreRefused(
            f"the store {path} cannot be opened or written: {error}",
            hint="It has to exist, and this user has to read and write it and its folder.",
        )
    return StoreRefused(f"SQLite refused to work on the store {path}: {error!r}")


def _primary(error: sqlite3.Error) -> int:
    """The code without its extension."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _prepare(db: sqlite3.Connection, path: str, system: System, boot: str) -> float:
    _check_version(db, path)
    (mode,) = db.execute("PRAGMA journal_mode=WAL").fetchone()
    if mode != "wal":
        raise StoreRefused(
            f"the file system under the store {path} does not support SQLite's WAL mode",
            hint="Put the store on a local disk.",
        )
    db.execute("BEGIN IMMEDIATE")
    try:
        if _check_version(db, path) == 0:
            for statement in filter(str.strip, _SCHEMA.split(";")):
                db.execute(statement)
            db.execute(f"PRAGMA application_id={APPLICATION_ID}")
            db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        db.execute(
            "INSERT INTO boots VALUES (?, ?) ON CONFLICT (boot) DO NOTHING",
            (boot, system.wall() - system.boot()),
        )
        (offset,) = db.execute(
            "SELECT wall_minus_boot FROM boots WHERE boot = ?", (boot,)
        ).fetchone()
        db.execute("COMMIT")
    except BaseException:
        db.rollback()
        raise
    return float(offset)


def _check_version(db: sqlite3.Connection, path: str) -> int:
    """The schema's version, 0 in an empty file; refuses what is not ours to touch."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and application != APPLICATION_ID:
        raise StoreRefused(
            f"{path} is the database of another program",
            hint="Name a file of its own for the store: sqlite:///path/of/the.db",
        )
    if version > SCHEMA_VERSION:
        raise StoreRefused(
            f"the store {path} was written by a newer version of durable (schema {version}, this "
            f"version knows up to {SCHEMA_VERSION})",
            hint="Upgrade durable here: pip install --upgrade durable-gcs",
        )
    return int(version)
