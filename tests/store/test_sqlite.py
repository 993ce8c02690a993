"""What the SQLite store adds to the promises of every store: durability, sharing, clear errors."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from durable.errors import StoreError, StoreRefused, StoreUnavailable
from durable.store.network import network_type, network_type_in, network_type_in_mount_output
from durable.store.sqlite import SqliteBackend
from durable.system import System

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "objects.db")


def run(script: str, *args: str, prefix: list[str] | None = None) -> str:
    """Run a Python script in a process of its own; what it printed."""
    command = [*(prefix or []), sys.executable, "-c", script, *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# -- group commit --------------------------------------------------------------------------------


@pytest.mark.parametrize("system", [System(), System(boot=lambda: 0.0)], ids=["real", "instant"])
async def test_concurrent_writers_share_commits(path: str, system: System) -> None:
    """Concurrent creates take far fewer commits than they are, however quick the disk seems."""
    backend = SqliteBackend(path, system=system)
    for number in range(20):
        await backend.create(f"alone/{number}", b"", {}, True)
    alone = backend.commits

    async with anyio.create_task_group() as tasks:
        for number in range(200):
            tasks.start_soon(backend.create, f"together/{number}", b"", {}, True)

    assert alone == 20
    assert len((await backend.list("together/", None)).items) == 200
    assert backend.commits - alone <= 100
    await backend.aclose()


async def test_a_lone_quick_write_needs_no_thread(path: str) -> None:
    """On a quick disk a write that is alone is done where it is asked for, a slow one is not."""
    seen: list[str] = []

    took = [0.0]
    ticks = itertools.count()

    def boot() -> float:
        seen.append(threading.current_thread().name)
        return next(ticks) * took[0]

    backend = SqliteBackend(path, system=System(boot=boot))

    async def threads_of(name: str) -> set[str]:
        seen.clear()
        await backend.create(name, b"", {}, True)
        return set(seen)

    for number in range(20):
        await backend.create(str(number), b"", {}, True)
    here = threading.current_thread().name
    assert await threads_of("quick") == {here}
    took[0] = 1.0
    for number in range(5):
        await backend.create(f"slow {number}", b"", {}, True)
    assert here not in await threads_of("after some slow ones")
    await backend.aclose()


async def test_one_bad_write_takes_no_other_with_it(path: str) -> None:
    """Of writes that wait together, one that SQLite cannot take fails alone."""
    backend = SqliteBackend(path)
    outcomes: dict[str, str] = {}

    async def create(name: str, body: object) -> None:
        try:
            await backend.create(name, body, {}, True)  # type: ignore[arg-type]  # wrong on purpose
        except StoreError as e:
            outcomes[name] = type(e).__name__
        else:
            outcomes[name] = "written"

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(create, "first", b"")
        tasks.start_soon(create, "good", b"")
        tasks.start_soon(create, "bad", (1,))
        tasks.start_soon(create, "better", b"")

    assert outcomes == {
        "first": "written",
        "good": "written",
        "bad": "StoreRefused",
        "better": "written",
    }
    assert len((await backend.list("", None)).items) == 3
    await backend.aclose()


async def test_closing_finishes_what_was_asked(path: str) -> None:
    """Every write that was under way is either recorded or was refused; later ones are refused."""
    backend = SqliteBackend(path)
    recorded = []

    async def create(name: str) -> None:
        await backend.create(name, b"", {}, True)
        recorded.append(name)

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(create, str(number))
        await anyio.wait_all_tasks_blocked()
        await backend.aclose()
    with pytest.raises(StoreRefused, match="closed"):
        await backend.create("late", b"", {}, True)
    await backend.aclose()

    again = SqliteBackend(path)
    assert sorted(item.name for item in (await again.list("", None)).items) == sorted(recorded)
    assert len(recorded) == 20
    await again.aclose()


# -- crashes and full disks ----------------------------------------------------------------------

WRITE_FOR_EVER = """
import sys, anyio
from durable.store.sqlite import SqliteBackend

async def write(backend, writer):
    number = 0
    while True:
        name = f"{writer}/{number}"
        await backend.create(name, name.encode() * 100, {"nonce": name}, True)
        print(name, flush=True)
        number += 1

async def main():
    backend = SqliteBackend(sys.argv[1])
    async with anyio.create_task_group() as tasks:
        for writer in range(8):
            tasks.start_soon(write, backend, writer)

anyio.run(main)
"""


def test_kill_9_during_writes_loses_nothing_acknowledged(path: str) -> None:
    """After kill -9 every acknowledged object is there, none is half there, the file is sound."""
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITE_FOR_EVER, path], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    acknowledged = [line.strip() for line in itertools.islice(writer.stdout, 300)]
    writer.send_signal(signal.SIGKILL)
    acknowledged += [line.strip() for line in writer.stdout if line.endswith("\n")]
    writer.wait()
    writer.stdout.close()

    with closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT name, body FROM objects").fetchall()
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    objects = dict(rows)
    assert len(acknowledged) >= 300
    assert set(acknowledged) <= objects.keys()
    assert all(body == name.encode() * 100 for name, body in rows)


FILL_THE_DISK = """
import subprocess, sys, anyio
from pathlib import Path
from durable.errors import StoreRefused
from durable.store.sqlite import SqliteBackend

async def main():
    ballast = Path("ballast")
    ballast.write_bytes(b"x" * 500_000)
    backend = SqliteBackend(str(Path("x.db").resolve()))
    written, refused = [], []

    async def create(number):
        try:
            await backend.create(f"{number:03}", b"x" * 50_000, {}, True)
        except StoreRefused as e:
            refused.append(e)
        else:
            written.append(f"{number:03}")

    async with anyio.create_task_group() as tasks:
        for number in range(100):
            tasks.start_soon(create, number)
    assert written and refused, (len(written), len(refused))
    assert "is full" in str(refused[0]) and "Free some space" in str(refused[0]), refused[0]
    listed = [item.name for item in (await backend.list("", None)).items]
    assert listed == sorted(written), (listed, written)

    ballast.unlink()
    await create(200)
    assert written[-1] == "200"
    await backend.aclose()
    print("recovered")

subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", sys.argv[1]], check=True)
import os
os.chdir(sys.argv[1])
anyio.run(main)
"""


def test_a_full_disk_records_nothing_by_halves(tmp_path: Path) -> None:
    """On a full disk writes are refused with advice, are not there, and go on once it has room."""
    namespace = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-Urm"]
    if not shutil.which("unshare") or subprocess.run([*namespace, "true"], check=False).returncode:
        pytest.skip("needs unshare(1) with mount namespaces, to mount a small disk")

    assert run(FILL_THE_DISK, str(tmp_path), prefix=namespace) == "recovered\n"


# -- files that are not fit for use --------------------------------------------------------------


async def test_a_newer_schema_is_refused(path: str) -> None:
    """A file of a later version is left alone, with the advice to upgrade."""
    await SqliteBackend(path).aclose()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version=99")

    with pytest.raises(StoreRefused, match="newer version of durable") as caught:
        SqliteBackend(path)
    assert "Upgrade" in str(caught.value)


def test_another_programs_database_is_refused_and_left_alone(path: str) -> None:
    """A database with foreign tables is not touched."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE customers (name TEXT)")
    before = Path(path).read_bytes()

    with pytest.raises(StoreRefused, match="another program"):
        SqliteBackend(path)
    assert Path(path).read_bytes() == before


def test_a_file_that_is_no_database_is_refused(path: str) -> None:
    """Garbage is said to be damaged, with what to try."""
    Path(path).write_bytes(b"This is not a database. " * 100)

    with pytest.raises(StoreRefused, match="damaged") as caught:
        SqliteBackend(path)
    assert ".recover" in str(caught.value)


def test_a_place_that_cannot_be_a_file_is_refused(tmp_path: Path) -> None:
    """A folder, and a path through a file, are errors that name the path."""
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(StoreRefused, match=str(tmp_path)):
        SqliteBackend(str(tmp_path))
    with pytest.raises(StoreRefused, match="cannot be created"):
        SqliteBackend(str(tmp_path / "file" / "x.db"))


async def test_a_deleted_file_is_noticed(path: str) -> None:
    """Writes into a file that was deleted under the store are refused, not lost in silence."""
    backend = SqliteBackend(path)
    await backend.create("a", b"", {}, True)
    assert await backend.read("a") is not None
    os.unlink(path)

    with pytest.raises(StoreRefused, match="moved or deleted"):
        await backend.create("b", b"", {}, True)
    with pytest.raises(StoreRefused, match="moved or deleted"):
        await backend.read("a")
    await backend.aclose()


async def test_a_file_deleted_before_the_first_use_is_not_made_anew(path: str) -> None:
    """A store whose file vanished after it was opened does not go on with an empty one."""
    backend = SqliteBackend(path)
    os.unlink(path)

    with pytest.raises(StoreRefused, match="unable to open"):
        await backend.create("a", b"", {}, True)
    await backend.aclose()
    with pytest.raises(FileNotFoundError):
        os.stat(path)


async def test_a_lock_held_too_long_is_unavailable(path: str) -> None:
    """While another process holds the write lock, writes are unavailable and reads go on."""
    hours = itertools.count(0, 3600)  # whoever looks at the clock finds the patience spent
    backend = SqliteBackend(path)
    await backend.create("a", b"", {}, True)
    hurried = SqliteBackend(path, system=System(boot=lambda: float(next(hours))))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(StoreUnavailable, match="locked by another process"):
            await hurried.create("b", b"", {}, True)
        assert await hurried.read("a") is not None
        other.execute("ROLLBACK")

    assert await hurried.create("b", b"", {}, True) is not None
    await hurried.aclose()
    await backend.aclose()


async def test_another_process_that_writes_does_not_hold_the_event_loop(path: str) -> None:
    """A write that has to wait for another process waits in a thread, whatever came before."""
    instant = System(boot=lambda: 0.0, uniform=lambda low, _high: low)  # every answer is quick
    backend = SqliteBackend(path, system=instant)
    for number in range(20):
        await backend.create(f"quick/{number}", b"", {}, True)
    turns = 0
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(backend.create, "waits", b"", {}, True)
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
                turns += 1
            assert await backend.read("waits") is None
            other.execute("ROLLBACK")

    assert turns == 20
    assert await backend.read("waits") is not None
    await backend.aclose()


# -- several processes, forks --------------------------------------------------------------------

FORK = """
import os, sys, warnings, anyio
from durable.errors import StoreRefused
from durable.store.sqlite import SqliteBackend

warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of forking with threads
path = sys.argv[1]
used, unused = SqliteBackend(path), SqliteBackend(path + ".unused")

async def create(backend, name):
    await backend.create(name, b"", {}, True)

async def close(*backends):
    for backend in backends:
        await backend.aclose()

def in_child(use):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            use()
            print("worked", flush=True)
        except StoreRefused as e:
            print(e.message.replace(path, "PATH"), flush=True)
        os._exit(0)
    os.waitpid(pid, 0)

anyio.run(create, used, "before")
in_child(lambda: anyio.run(create, used, "child"))
in_child(lambda: SqliteBackend(path))
in_child(lambda: anyio.run(create, unused, "child"))
in_child(lambda: anyio.run(close, used))
anyio.run(create, used, "after")
anyio.run(close, used, unused)
in_child(lambda: anyio.run(close, SqliteBackend(path)))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_never_shares_a_connection(path: str) -> None:
    """A forked child is refused what its parent has open, and may use what it has not."""
    why = "and SQLite cannot be used across a fork"

    assert run(FORK, path).splitlines() == [
        f"the store was in use when this process was forked (writer of PATH), {why}",
        f"this process was forked from one that had PATH open, {why}",
        "worked",
        "worked",
        "worked",
    ]
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT name FROM objects").fetchall() == [("after",), ("before",)]


# -- time ----------------------------------------------------------------------------------------


async def test_a_wall_clock_step_changes_nothing(path: str) -> None:
    """The first process of a boot fixes the offset; a later one with a stepped wall adopts it."""
    boot = [100.0]
    first = SqliteBackend(
        path, boot="b1", system=System(wall=lambda: 1_000_000.0, boot=lambda: boot[0])
    )
    stepped = SqliteBackend(
        path, boot="b1", system=System(wall=lambda: 1_086_400.0, boot=lambda: boot[0])
    )

    boot[0] = 107.0
    written = await stepped.create("a", b"", {}, True)

    assert written is not None
    assert first.now() == stepped.now() == written.updated == 1_000_007.0
    await first.aclose()
    await stepped.aclose()


async def test_another_boot_has_a_clock_of_its_own(path: str) -> None:
    """After a reboot the boot clock begins anew, and the store says which boot its time is of."""
    before = SqliteBackend(
        path, boot="b1", system=System(wall=lambda: 1_000_000.0, boot=lambda: 5_000.0)
    )
    after = SqliteBackend(
        path, boot="b2", system=System(wall=lambda: 1_000_060.0, boot=lambda: 10.0)
    )

    assert (before.boot, after.boot) == ("b1", "b2")
    assert (before.now(), after.now()) == (1_000_000.0, 1_000_060.0)
    await before.aclose()
    await after.aclose()


# -- network file systems ------------------------------------------------------------------------

MOUNTS = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / /mnt/nfs rw,relatime shared:2 - nfs4 server:/export rw,vers=4.2
31 30 254:1 / /mnt/nfs/local rw - xfs /dev/vdb rw
32 22 0:27 / /mnt/with\040space rw - fuse.sshfs me@host: rw
33 22 0:28 / /mnt/twice rw - ext4 /dev/vdc rw
34 22 0:29 / /mnt/twice rw master:3 propagate_from:2 - cifs //server/share rw
35 22 0:30 / /mnt/overlay rw - fuse.fuse-overlayfs none rw
36 22 0:31 / /mnt/bucket rw - fuse.gcsfuse bucket rw
37 22 0:32 / /mnt/block rw - fuseblk /dev/sdb1 rw
38 22 0:33 / /mnt/c rw - 9p drvfs rw
39 22 0:34 / /scratch rw - lustre mds:/fs rw
40 22 0:35 / /mnt/smb rw - smb3 //server/share rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/me", None),
        ("/mnt/nfs", "nfs4"),
        ("/mnt/nfs/deep/folder", "nfs4"),
        ("/mnt/nfsother", None),
        ("/mnt/nfs/local/folder", None),
        ("/mnt/with space/folder", "fuse.sshfs"),
        ("/mnt/twice", "cifs"),
        ("/mnt/overlay", None),
        ("/mnt/bucket", "fuse.gcsfuse"),
        ("/mnt/block", None),
        ("/mnt/c/Users", "9p"),
        ("/scratch/me", "lustre"),
        ("/mnt/smb", "smb3"),
    ],
)
def test_network_file_systems_are_told_from_local_ones(path: str, kind: str | None) -> None:
    """The innermost and latest mount above a path decides."""
    assert network_type_in(MOUNTS, path) == kind


def test_network_file_systems_are_recognised_in_the_output_of_mount() -> None:
    """Where there is no mountinfo, as on macOS, `mount` prints name, point and type."""
    output = (
        "/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)\n"
        "//me@host/share on /Volumes/my share (smbfs, nodev, nosuid, mounted by me)\n"
        "map auto_home on /System/Volumes/Data/home (autofs, automounted, nobrowse)\n"
    )

    assert network_type_in_mount_output(output, "/Users/me") is None
    assert network_type_in_mount_output(output, "/Volumes/my share/x") == "smbfs"


def test_a_temporary_folder_is_local(tmp_path: Path) -> None:
    """The detection runs on this machine and lets its temporary folder pass."""
    assert network_type(str(tmp_path)) is None
