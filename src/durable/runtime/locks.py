"""Proof of death: lock files that the kernel lets go of when a worker's process ends.

Each worker holds a kernel file lock (flock) on `<worker id>.lock` in a folder of its host for as
long as it lives. Whoever gets that lock knows that the worker is dead, without waiting for its
lease to run out. Anything less proves nothing: a missing file (containers share a kernel, not a
file system), a file with another id in it, another boot of the machine, a file that its worker
has removed in good order. Where there is no flock nothing is ever proved, and leases run out.

flock belongs to the open file: two workers in one process exclude each other, and a child process
that inherited the descriptor would keep a dead parent's lock. So it is closed on exec (os.open
sees to that) and on fork.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import stat
import sys
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from durable.errors import UsageError
from durable.protocol.records import Lease

HAVE_FLOCK = sys.platform != "win32"
if HAVE_FLOCK:
    import fcntl

STALE_SECONDS = 86_400  # lock files of the dead that nobody asked for are removed after a day

_SUFFIX = ".lock"
_WORKER_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")  # an id from the store never becomes a path
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)

logger = logging.getLogger("durable")


def runtime_folder(store_lock_folder: str | None, environ: Mapping[str, str]) -> Path:
    """Where the lock files of this host's workers are.

    DURABLE_RUNTIME_DIR, else beside the store's file, else a private folder of this user. Only
    the last is made here; `LockFile.hold` makes the others.

    Raises:
        UsageError: the private folder is not ours alone.
    """
    chosen = environ.get("DURABLE_RUNTIME_DIR") or store_lock_folder
    return Path(chosen) if chosen else _private_folder(environ)


def _private_folder(environ: Mapping[str, str]) -> Path:
    user = os.getuid() if hasattr(os, "getuid") else None  # None: Windows, where no lock is used
    folder = Path(environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"durable-{user}"
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError:
        return folder  # `LockFile.hold` meets the same obstacle and does without
    found = folder.lstat()
    private = found.st_uid == user and not found.st_mode & 0o077
    if not stat.S_ISDIR(found.st_mode) or not (private or user is None):
        # Somebody else could put files there that make a live worker look dead.
        raise UsageError(
            f"the folder {folder} for lock files is not private to this user",
            hint="Remove it, or set DURABLE_RUNTIME_DIR to a folder of your own.",
        )
    return folder


class _Locked:
    """An open lock file. Closed in forked children, where it then does nothing."""

    def __init__(self, path: Path | None, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        if descriptor >= 0:
            _open.add(self)

    def _close(self, *, unlink: bool) -> None:
        if self._descriptor < 0:
            return
        if unlink and self._path is not None:
            self._path.unlink(missing_ok=True)  # while we hold it: it cannot be another's
        self._drop()

    def _drop(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        _open.discard(self)
        os.close(descriptor)


_open: weakref.WeakSet[_Locked] = weakref.WeakSet()


def _close_in_child() -> None:
    for locked in list(_open):
        locked._drop()  # never an unlock: that would free the parent's lock


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


class LockFile(_Locked):
    """The lock that a worker holds while it lives. Release it after its lease is gone.

    Attributes:
        name: what goes into the lease; empty where nothing could be locked.
    """

    @classmethod
    def hold(cls, folder: Path, worker_id: str) -> LockFile:
        """Create and lock the file of a worker; removes what others left behind long ago.

        Where that is impossible (no flock, no place to write) an empty one is returned and a
        warning logged: this worker's death can then not be proved, its lease has to run out.

        Raises:
            UsageError: not a worker id.
        """
        if not _WORKER_ID.fullmatch(worker_id):
            raise UsageError(f"{worker_id!r} cannot be a worker id")
        if not HAVE_FLOCK:
            return cls(None, -1)
        path = folder / f"{worker_id}{_SUFFIX}"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = _create_locked(path, worker_id)
        except OSError as e:
            logger.warning(
                "no lock file in %s (%s): should this worker die, its runs wait for its lease to "
                "run out. DURABLE_RUNTIME_DIR names another folder.",
                folder,
                e.strerror or e,
            )
            return cls(None, -1)
        _clean(folder)
        return cls(path, descriptor)

    @property
    def name(self) -> str:
        return "" if self._path is None else self._path.name

    def release(self) -> None:
        """Remove the file, then let go of the lock."""
        self._close(unlink=True)


class DeadProof(_Locked):
    """A worker is dead, and nobody else can prove it as long as this is held.

    Use it as a context manager: fence the worker, then call `done`.
    """

    def done(self) -> None:
        """The worker is fenced: remove its lock file and let go."""
        self._close(unlink=True)

    def release(self) -> None:
        """Let go; the file stays, so that the death can be proved again."""
        self._close(unlink=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


def prove_dead(folder: Path, lease: Lease, boot: str) -> DeadProof | None:
    """Try to prove that the holder of a lease is dead; None proves nothing.

    Args:
        folder: the prober's own folder of lock files.
        lease: the holder's lease.
        boot: the id of this boot of the prober's machine.
    """
    if not HAVE_FLOCK or not lease.lock_file or not boot or lease.boot != boot:
        return None
    if not _WORKER_ID.fullmatch(lease.worker):
        return None
    path = folder / f"{lease.worker}{_SUFFIX}"
    descriptor = _lock_existing(path, lease.worker)
    return None if descriptor is None else DeadProof(path, descriptor)


def orphans(folder: Path) -> list[str]:
    """Worker ids whose lock file is there and free: their processes are dead.

    It costs no store call, so it can be asked every second.
    """
    dead = []
    for path in sorted(folder.glob(f"*{_SUFFIX}")) if HAVE_FLOCK else ():
        worker = path.name.removesuffix(_SUFFIX)
        descriptor = _lock_existing(path, worker) if _WORKER_ID.fullmatch(worker) else None
        if descriptor is not None:
            DeadProof(path, descriptor).release()
            dead.append(worker)
    return dead


def discard(folder: Path, worker: str) -> None:
    """Remove the lock file of a dead worker that left no lease."""
    if _WORKER_ID.fullmatch(worker):
        path = folder / f"{worker}{_SUFFIX}"
        descriptor = _lock_existing(path, worker)
        if descriptor is not None:
            DeadProof(path, descriptor).done()


def _create_locked(path: Path, content: str) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_LINK, 0o644)
    try:
        # The lock first: a prober that reads an id must find the file locked.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(descriptor, content.encode())
    except BaseException:
        path.unlink(missing_ok=True)
        os.close(descriptor)
        raise
    return descriptor


def _lock_existing(path: Path, content: str | None) -> int | None:
    """A locked descriptor of a file that holds `content` (None: anything), or None."""
    try:
        # O_NONBLOCK: should it be a pipe, opening it must not wait for its other end.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | _NO_LINK)
    except OSError:
        return None
    try:
        expected = None if content is None else content.encode()
        if (
            stat.S_ISREG(os.fstat(descriptor).st_mode)
            and (expected is None or os.read(descriptor, len(expected) + 1) == expected)
            and _try_lock(descriptor)
            and os.fstat(descriptor).st_nlink  # 0: its worker removed it in good order
        ):
            return descriptor
    except OSError:
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as e:
        if e.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def _clean(folder: Path) -> None:
    """Remove old lock files that nobody holds. What cannot be removed stays."""
    try:
        # The file just made is the newest; its time is by the clock that made the others'.
        newest = max(path.stat().st_mtime for path in folder.glob(f"*{_SUFFIX}"))
        old = [p for p in folder.glob(f"*{_SUFFIX}") if p.stat().st_mtime < newest - STALE_SECONDS]
    except (OSError, ValueError):
        return
    for path in old:
        descriptor = _lock_existing(path, None)
        if descriptor is not None:
            DeadProof(path, descriptor).done()
