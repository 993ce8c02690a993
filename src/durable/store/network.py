"""Is a path on a network file system? SQLite's locks and shared memory do not work there."""

from __future__ import annotations

import os
import re
import subprocess
import sys

_NETWORK_TYPES = frozenset(
    {
        "9p",
        "acfs",
        "afpfs",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "prl_fs",
        "pvfs2",
        "smb",
        "smb2",
        "smb3",
        "smbfs",
        "vboxsf",
        "webdav",
    }
)
# FUSE carries sshfs, gcsfuse, s3fs, rclone and the like; these few sit on a local disk.
_LOCAL_FUSE = frozenset(
    {
        "fuse.bindfs",
        "fuse.encfs",
        "fuse.fuse-overlayfs",
        "fuse.gocryptfs",
        "fuse.lxcfs",
        "fuse.mergerfs",
    }
)


def network_type(path: str) -> str | None:
    """The type of the network file system that `path` is on, None if it is on a local one.

    Best effort: where the system does not tell, the answer is None.
    """
    real = os.path.realpath(path)
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return network_type_in(file.read(), real)
    except OSError:
        return network_type_in_mount_output(_mount_output(), real)


def network_type_in(mountinfo: str, path: str) -> str | None:
    """As `network_type`, from the text of /proc/self/mountinfo and an absolute, real path."""
    mounts = []
    for line in mountinfo.splitlines():
        left, dash, right = line.partition(" - ")
        fields = left.split(" ")
        if dash and len(fields) > 4:
            mounts.append((_unescape(fields[4]), right.split(" ")[0]))
    return _network_of(mounts, path)


def network_type_in_mount_output(output: str, path: str) -> str | None:
    """As `network_type`, from what `mount` prints on macOS and the BSDs."""
    found = re.findall(r"^.* on (/.*) \((\w+)[,)]", output, flags=re.MULTILINE)
    return _network_of(found, path)


def _network_of(mounts: list[tuple[str, str]], path: str) -> str | None:
    kind, longest = "", -1
    for point, its_kind in mounts:
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= longest:  # of two mounts on one point the later is on top
            kind, longest = its_kind, len(point)
    return kind if _is_network(kind) else None


def _is_network(kind: str) -> bool:
    if kind.startswith(("fuse.", "macfuse", "osxfuse")):
        return kind not in _LOCAL_FUSE
    return kind in _NETWORK_TYPES


def _unescape(field: str) -> str:
    r"""In mountinfo space, tab, newline and backslash are \040, \011, \012 and \134."""
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), field)


def _mount_output() -> str:
    if sys.platform == "win32":
        return ""
    try:
        return subprocess.run(
            ["/sbin/mount"], capture_output=True, text=True, timeout=5, check=False
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
