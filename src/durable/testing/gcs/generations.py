"""The generations of a bucket's objects: live ones in the shared table, the others here.

The table (`durable.store.memory.Bucket`) knows names, bodies, custom metadata and generations,
and others may write to it. What only GCS knows of a generation is kept beside it, marked with
the generation: when somebody else has overwritten the object the mark no longer fits, and the
new generation gets attributes of its own. Generations that others overwrite or delete leave
nothing behind, whatever the versioning.

Everything here is called under the table's lock.
"""

from __future__ import annotations

import binascii
import hashlib
from collections import deque
from collections.abc import Iterator
from heapq import merge
from itertools import count

import google_crc32c

from durable.store import Stored
from durable.store.memory import Bucket
from durable.testing.gcs.resources import Attributes, Settings, Version

SOFT_DELETED_MAX = 10_000  # generations; beyond that the oldest is gone before its time

_DEFAULTS: Settings = {"contentType": "application/octet-stream"}


class Generations:
    """All generations of all objects of a bucket.

    Args:
        table: where the live ones are.

    Attributes:
        versioning: what is overwritten or deleted stays as a noncurrent version.
        soft_delete: seconds for which what is gone can be restored; 0 for not at all.
    """

    def __init__(self, table: Bucket) -> None:
        self.table = table
        self.versioning = False
        self.soft_delete = 0.0
        self._attributes: dict[str, Attributes] = {}
        self._noncurrent: dict[str, list[Version]] = {}
        self._soft: deque[Version] = deque()
        self._sequence = count(1)

    def live(self, name: str) -> Version | None:
        stored = self.table.peek(name)
        return None if stored is None else self._describe(stored)

    def find(self, name: str, generation: int | None) -> Version | None:
        """The live one, or that generation, live or noncurrent."""
        live = self.live(name)
        if generation is None or (live is not None and live.stored.generation == generation):
            return live
        for version in self._noncurrent.get(name, ()):
            if version.stored.generation == generation:
                return version
        return None

    def put(
        self,
        name: str,
        body: bytes,
        meta: dict[str, str],
        settings: Settings,
        now: float,
        *,
        components: int | None = None,
    ) -> Version:
        """A new live generation; the one before goes where the bucket keeps such."""
        before = self.live(name)
        stored = self.table.put(name, body, meta, now=now)
        md5 = None if components is not None else md5_of(body)
        attributes = Attributes(
            stored.generation, 1, settings, md5, crc32c_of(body), components=components
        )
        self._attributes[name] = attributes
        if before is not None:
            self._retire(before, now, keep=self.versioning)
        return Version(stored, attributes)

    def amend(
        self,
        version: Version,
        meta: dict[str, str],
        settings: Settings,
        now: float,
        *,
        released: float | None = None,
    ) -> Version:
        """Other metadata and settings for a generation: its metageneration goes up."""
        old = version.attributes
        attributes = Attributes(
            old.generation,
            old.metageneration + 1,
            settings,
            old.md5,
            old.crc32c,
            old.components,
            old.released if released is None else released,
        )
        name = version.stored.name
        if version.deleted is None:
            self._attributes[name] = attributes
            return Version(self.table.amend(name, meta, now), attributes)
        was = version.stored
        stored = Stored(name, was.generation, was.created, now, meta, was.body)
        amended = version._replace(stored=stored, attributes=attributes)
        self._noncurrent[name] = [
            amended if each.sequence == version.sequence else each
            for each in self._noncurrent[name]
        ]
        return amended

    def remove(self, version: Version, now: float, *, for_good: bool) -> None:
        """Delete a generation. A live one stays as a noncurrent version unless `for_good`."""
        name = version.stored.name
        if version.deleted is None:
            self.table.drop(name)
            self._attributes.pop(name, None)
            self._retire(version, now, keep=self.versioning and not for_good)
            return
        left = [each for each in self._noncurrent[name] if each.sequence != version.sequence]
        if left:
            self._noncurrent[name] = left
        else:
            del self._noncurrent[name]
        self._retire(version, now, keep=False)

    def names(self, start: str, *, versions: bool) -> Iterator[str]:
        """Sorted, from `start` on; with `versions` those that have only noncurrent ones too."""
        live = self.table.names.since(start)
        if not versions or not self._noncurrent:
            yield from live
            return
        others = sorted(name for name in self._noncurrent if name >= start)
        last = None
        for name in merge(live, others):
            if name != last:
                yield name
            last = name

    def versions(self, name: str) -> list[Version]:
        """All generations of a name, oldest first, the live one last."""
        found = list(self._noncurrent.get(name, ()))
        live = self.live(name)
        return found if live is None else [*found, live]

    def soft_deleted(self, now: float) -> list[Version]:
        """Those that can still be restored, by name."""
        while self._soft and (self._soft[0].hard_delete or 0.0) <= now:
            self._soft.popleft()
        return sorted(self._soft, key=lambda version: (version.stored.name, version.sequence))

    def restore(self, version: Version, now: float) -> Version:
        """A new live generation of what a soft-deleted one was."""
        was, attributes = version.stored, version.attributes
        restored = self.put(
            was.name,
            was.body or b"",
            was.meta,
            attributes.settings,
            now,
            components=attributes.components,
        )
        self._soft.remove(version)
        return restored

    @property
    def empty(self) -> bool:
        """There is no live and no noncurrent object."""
        return not self._noncurrent and next(self.table.names.since(""), None) is None

    def _describe(self, stored: Stored) -> Version:
        attributes = self._attributes.get(stored.name)
        if attributes is None or attributes.generation != stored.generation:
            body = stored.body or b""
            attributes = Attributes(stored.generation, 1, _DEFAULTS, md5_of(body), crc32c_of(body))
            self._attributes[stored.name] = attributes
        return Version(stored, attributes)

    def _retire(self, version: Version, now: float, *, keep: bool) -> None:
        gone = version._replace(sequence=next(self._sequence), deleted=now)
        if keep:
            self._noncurrent.setdefault(version.stored.name, []).append(gone)
        elif self.soft_delete:
            self._soft.append(gone._replace(hard_delete=now + self.soft_delete))
            if len(self._soft) > SOFT_DELETED_MAX:
                self._soft.popleft()


def md5_of(body: bytes) -> str:
    """In base64, as resources carry it."""
    return _base64(hashlib.md5(body, usedforsecurity=False).digest())


def crc32c_of(body: bytes) -> str:
    """In base64 of its four bytes, as resources carry it."""
    return _base64(google_crc32c.value(body).to_bytes(4, "big"))


def _base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()
