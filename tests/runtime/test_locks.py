"""Lock files: what proves a death, and all that does not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from durable.errors import UsageError
from durable.protocol.records import Lease
from durable.runtime.locks import (
    STALE_SECONDS,
    LockFile,
    discard,
    orphans,
    prove_dead,
    runtime_folder,
)

pytestmark = pytest.mark.requires("flock")

WORKER = "worker-A_1"
BOOT = "this-boot"

# Holds the lock, starts a child by the given means, says so, and waits. The child lives until
# its standard input, which is ours, ends; or it lets go of everything it has and ends first.
HOLDER = """
import os, subprocess, sys
from pathlib import Path
from durable.runtime.locks import LockFile

held = LockFile.hold(Path(sys.argv[1]), sys.argv[2])
if sys.argv[3] == "exec":
    subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"])
elif sys.argv[3] == "fork":
    ready, tell = os.pipe()
    if os.fork() == 0:
        held.release()  # does nothing here: it is the parent's
        os.write(tell, b".")  # the child's copy of the descriptor is closed by now
        sys.stdin.read()
        os._exit(0)
    os.read(ready, 1)
elif sys.argv[3] == "fork and end":
    if (pid := os.fork()) == 0:
        held.release()
        os._exit(0)
    os.waitpid(pid, 0)
print("holding", flush=True)
sys.stdin.read()
"""


def lease(worker: str = WORKER, boot: str = BOOT) -> Lease:
    return Lease(worker=worker, ttl=20, margin=2, nonce="n", boot=boot, lock_file=f"{worker}.lock")


def leave_behind(folder: Path, content: str, worker: str = WORKER) -> Path:
    """The lock file of a worker that died."""
    path = folder / f"{worker}.lock"
    path.write_text(content)
    return path


@contextmanager
def holder(folder: Path, child: str) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder), WORKER, child],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "holding\n"
        yield process
    finally:
        process.stdin.close()
        process.stdout.close()
        process.kill()
        process.wait()


def test_a_live_worker_is_not_dead(tmp_path: Path) -> None:
    """While the lock is held nothing is proved, not even within one process."""
    held = LockFile.hold(tmp_path, WORKER)

    assert held.name == f"{WORKER}.lock"
    assert (tmp_path / held.name).read_text() == WORKER
    assert prove_dead(tmp_path, lease(), BOOT) is None

    held.release()


def test_released_in_good_order(tmp_path: Path) -> None:
    """A worker that ended in good order leaves no file, so nothing is proved."""
    LockFile.hold(tmp_path, WORKER).release()

    assert list(tmp_path.iterdir()) == []
    assert prove_dead(tmp_path, lease(), BOOT) is None


def test_released_while_being_probed(tmp_path: Path) -> None:
    """A lock that came free because its worker ended in good order proves nothing."""
    held = LockFile.hold(tmp_path, WORKER)
    at_flock = [held.release]

    def interfere(event: str, args: object) -> None:
        if event == "fcntl.flock" and at_flock:
            at_flock.pop()()

    sys.addaudithook(interfere)  # cannot be removed; does nothing after its first time

    assert prove_dead(tmp_path, lease(), BOOT) is None
    assert at_flock == []


def test_release_twice(tmp_path: Path) -> None:
    """Releasing again does not touch the file of whoever came next."""
    held = LockFile.hold(tmp_path, WORKER)
    held.release()
    again = LockFile.hold(tmp_path, WORKER)
    held.release()

    assert prove_dead(tmp_path, lease(), BOOT) is None
    assert (tmp_path / again.name).exists()

    again.release()


@pytest.mark.parametrize("child", ["none", "exec", "fork"])
def test_killed_worker(tmp_path: Path, child: str) -> None:
    """A killed worker is dead at once, even while a child process of it lives on."""
    with holder(tmp_path, child) as process:
        assert prove_dead(tmp_path, lease(), BOOT) is None
        process.kill()
        process.wait()

        proof = prove_dead(tmp_path, lease(), BOOT)

        assert proof is not None
        proof.done()


def test_a_fork_does_not_take_the_lock_along(tmp_path: Path) -> None:
    """A forked child has no part in the lock: its end, or its release, frees nothing."""
    with holder(tmp_path, "fork and end"):
        assert (tmp_path / f"{WORKER}.lock").exists()
        assert prove_dead(tmp_path, lease(), BOOT) is None


def test_one_prober_at_a_time(tmp_path: Path) -> None:
    """A proof that is held excludes others; released without `done` it can be had again."""
    path = leave_behind(tmp_path, WORKER)
    with prove_dead(tmp_path, lease(), BOOT) or pytest.fail("no proof"):
        assert prove_dead(tmp_path, lease(), BOOT) is None
    assert path.exists()

    second = prove_dead(tmp_path, lease(), BOOT)

    assert second is not None
    second.done()
    assert not path.exists()
    assert prove_dead(tmp_path, lease(), BOOT) is None


@pytest.mark.parametrize(
    "content", ["", "another", WORKER[:-1], WORKER + "2"], ids=["empty", "other", "cut", "longer"]
)
def test_another_id_proves_nothing(tmp_path: Path, content: str) -> None:
    """A free file that does not hold exactly the worker's id says nothing about it."""
    path = leave_behind(tmp_path, content)

    assert prove_dead(tmp_path, lease(), BOOT) is None
    assert path.exists()


def test_another_boot_proves_nothing(tmp_path: Path) -> None:
    """The file of a worker of another boot, or one that names none, says nothing about it."""
    leave_behind(tmp_path, WORKER)

    assert prove_dead(tmp_path, lease(boot="other-boot"), BOOT) is None
    assert prove_dead(tmp_path, lease(boot=""), "") is None


def test_a_worker_without_a_lock_file(tmp_path: Path) -> None:
    """A lease that names no lock file cannot be proved dead."""
    leave_behind(tmp_path, WORKER)
    without = msgspec.structs.replace(lease(), lock_file="")

    assert prove_dead(tmp_path, without, BOOT) is None


def test_looking_creates_nothing(tmp_path: Path) -> None:
    """A prober leaves no file where there was none, and needs no folder."""
    assert prove_dead(tmp_path, lease(), BOOT) is None
    assert prove_dead(tmp_path / "absent", lease(), BOOT) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("worker", ["../outside", "", ".", "a/b", "x" * 65, "a\n"])
def test_ids_never_become_paths(tmp_path: Path, worker: str) -> None:
    """A worker id that is no plain token opens nothing, wherever it points."""
    folder = tmp_path / "locks"
    folder.mkdir()
    (tmp_path / "outside.lock").write_text("../outside")

    assert prove_dead(folder, lease(worker=worker), BOOT) is None
    with pytest.raises(UsageError):
        LockFile.hold(folder, worker)


def test_links_and_pipes_prove_nothing(tmp_path: Path) -> None:
    """Only a regular file of the folder itself counts; a pipe does not block the prober."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text(WORKER)
    folder = tmp_path / "locks"
    folder.mkdir()
    (folder / f"{WORKER}.lock").symlink_to(elsewhere)
    os.mkfifo(folder / "piped.lock")

    assert prove_dead(folder, lease(), BOOT) is None
    assert prove_dead(folder, lease(worker="piped"), BOOT) is None


def test_no_place_for_lock_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A worker that cannot make its file goes on without one, and says what that means."""
    (tmp_path / "file").touch()

    held = LockFile.hold(tmp_path / "file" / "locks", WORKER)

    assert held.name == ""
    assert "DURABLE_RUNTIME_DIR" in caplog.text
    held.release()


def test_old_files_are_removed(tmp_path: Path) -> None:
    """Starting removes files older than a day whose lock is free, and no others."""
    held = LockFile.hold(tmp_path, "held")
    old = leave_behind(tmp_path, "old", "old")
    fresh = leave_behind(tmp_path, "fresh", "fresh")
    stranger = tmp_path / "notes.txt"
    stranger.touch()
    past = fresh.stat().st_mtime - STALE_SECONDS - 60
    for path in (old, stranger, tmp_path / held.name):
        os.utime(path, (past, past))

    starting = LockFile.hold(tmp_path, WORKER)

    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"held.lock", "fresh.lock", "notes.txt", starting.name}
    starting.release()
    held.release()


def test_folder_by_environment(tmp_path: Path) -> None:
    """DURABLE_RUNTIME_DIR goes before the store's own folder, which goes before the user's."""
    chosen = {"DURABLE_RUNTIME_DIR": str(tmp_path / "chosen"), "XDG_RUNTIME_DIR": str(tmp_path)}

    assert runtime_folder("/store.locks", chosen) == tmp_path / "chosen"
    assert runtime_folder("/store.locks", {}) == Path("/store.locks")
    assert runtime_folder("/store.locks", {"DURABLE_RUNTIME_DIR": ""}) == Path("/store.locks")


def test_private_folder(tmp_path: Path) -> None:
    """The user's folder is made for its owner alone, and used again."""
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}

    folder = runtime_folder(None, environ)

    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o777 == 0o700
    assert runtime_folder(None, environ) == folder


@pytest.mark.parametrize("trap", ["open to others", "a link", "a file"])
def test_private_folder_that_is_not(tmp_path: Path, trap: str) -> None:
    """A folder where others could put lock files is refused, with the way out."""
    folder = runtime_folder(None, {"XDG_RUNTIME_DIR": str(tmp_path)})
    if trap == "open to others":
        folder.chmod(0o777)
    else:
        folder.rmdir()
        if trap == "a link":
            folder.symlink_to(tmp_path)
        else:
            folder.touch()

    with pytest.raises(UsageError, match="DURABLE_RUNTIME_DIR"):
        runtime_folder(None, {"XDG_RUNTIME_DIR": str(tmp_path)})


def test_orphans_are_the_workers_whose_locks_are_free(tmp_path: Path) -> None:
    """A look at the folder tells the dead from the living, and strangers' files from both."""
    held = LockFile.hold(tmp_path, "worker-alive")
    leave_behind(tmp_path, "worker-dead", "worker-dead")
    leave_behind(tmp_path, "another id", "worker-odd")
    (tmp_path / "..lock").write_text("..")

    assert orphans(tmp_path) == ["worker-dead"]
    assert (tmp_path / "worker-dead.lock").exists()

    discard(tmp_path, "worker-dead")
    discard(tmp_path, "worker-alive")

    assert orphans(tmp_path) == []
    assert (tmp_path / "worker-alive.lock").exists()

    held.release()
